//! The JS edge: converts arguments, maps errors, and nothing else. The only importers of `napi`.

mod convert;
mod graphs;
mod info;
mod lend;
mod promises;
mod raise;
mod resources;
mod state;
mod work;

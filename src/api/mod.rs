//! The JS edge: converts arguments, maps errors, and nothing else. The only importers of `napi`.

mod class;
mod convert;
mod graphs;
mod info;
mod insight;
mod lend;
mod promises;
mod raise;
mod resources;
mod share;
mod state;
mod work;

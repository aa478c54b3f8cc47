//! The JS edge: converts arguments, maps errors, and nothing else. The only importers of `napi`.

// Check every status of the runtime. `let _ =` marks one that cannot matter, with the reason.
#![deny(unused_results)]

mod class;
mod codegen;
mod collective;
mod convert;
mod direct;
mod garbage;
mod graphs;
mod info;
mod insight;
mod pipelines;
mod promises;
mod raise;
mod resources;
mod results;
mod share;
mod state;
mod unwind;
mod values;
mod work;

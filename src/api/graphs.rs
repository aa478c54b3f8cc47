//! Recorded graphs.

use napi::Env;
use napi_derive::napi;

use super::convert::Arg;
use super::raise::call;
use super::state;
use crate::context::Context;

/// Starts recording: until `graphEnd`, this thread's dispatches, fills, uploads and copies are recorded, not executed.
/// An upload takes its data now and copies it at every launch.
#[napi(js_name = "graphBegin")]
pub fn graph_begin(env: &Env) -> napi::Result<()> {
    call(env, "graphBegin", || state::with(Context::graph_begin))
}

/// Ends the recording and returns the graph. A graph keeps alive what it uses, even buffers that are destroyed later.
#[napi(js_name = "graphEnd", ts_return_type = "GraphHandle")]
pub fn graph_end(env: &Env) -> napi::Result<i32> {
    call(env, "graphEnd", || state::with(Context::graph_end))
}

/// Runs the graph after everything called so far, in order with what follows. Returns its timeline value. One
/// submission, whatever the graph's size.
#[napi(
    js_name = "graphLaunch",
    ts_args_type = "graph: GraphHandle",
    ts_return_type = "TimelineValue"
)]
pub fn graph_launch(env: &Env, graph: Arg) -> napi::Result<f64> {
    call(env, "graphLaunch", || {
        let handle = graph.handle("graph", "graph")?;
        let value = state::with(|context| context.graph_launch(handle))?;
        state::batch_touched();
        Ok(value as f64)
    })
}

/// Destroys the graph: the handle is invalid now; what it used is freed when the device has finished with it.
#[napi(js_name = "graphDestroy", ts_args_type = "graph: GraphHandle")]
pub fn graph_destroy(env: &Env, graph: Arg) -> napi::Result<()> {
    call(env, "graphDestroy", || {
        let handle = graph.handle("graph", "graph")?;
        state::with(|context| context.graph_destroy(handle))
    })
}

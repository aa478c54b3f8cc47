//! Recorded graphs.

use napi::Env;
use napi_derive::napi;

use super::convert::Arg;
use super::raise::call;
use super::state;
use crate::context::Context;

/// From now on this thread's dispatches, fills, uploads and copies are recorded, not executed, until
/// `graphEnd`. Uploads inside a graph take their data now and copy it at every launch.
#[napi(js_name = "graphBegin")]
pub fn graph_begin(env: &Env) -> napi::Result<()> {
    call(env, "graphBegin", || state::with(Context::graph_begin))
}

/// Ends the recording. The graph keeps what it uses alive, also buffers that are destroyed later.
#[napi(js_name = "graphEnd", ts_return_type = "GraphHandle")]
pub fn graph_end(env: &Env) -> napi::Result<i32> {
    call(env, "graphEnd", || state::with(Context::graph_end))
}

/// Runs the graph behind everything called so far, in order with everything that follows; its
/// timeline value. Costs one submission, however much the graph holds.
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

/// Destroys the graph: the handle dies now, what it used goes when the GPU has finished with it.
#[napi(js_name = "graphDestroy", ts_args_type = "graph: GraphHandle")]
pub fn graph_destroy(env: &Env, graph: Arg) -> napi::Result<()> {
    call(env, "graphDestroy", || {
        let handle = graph.handle("graph", "graph")?;
        state::with(|context| context.graph_destroy(handle))
    })
}

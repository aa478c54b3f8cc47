//! Dispatches, batches, the timeline and the `dgc*` calls.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use napi::{Env, sys};
use napi_derive::napi;

use super::convert::{
    Arg, Bytes, Object, Out, array_buffer, boolean, clear_exception, typed_array,
};
use super::raise::call;
use super::{lend, state};
use crate::context::{Context, List};
use crate::decode::MAX_BINDINGS;
use crate::error::{Error, Result};

/// Arguments that `dispatch`, `batchDispatch` and `gpuTime` share.
struct Single {
    pipeline: i32,
    buffers: [i32; MAX_BINDINGS],
    count: usize,
    groups: [u32; 3],
    push: Bytes,
}

impl Single {
    fn new(pipeline: Arg, buffers: Arg, groups: [Arg; 3], push: Arg) -> Result<Self> {
        let pipeline = pipeline.handle("pipeline", "pipeline")?;
        let mut handles = [0; MAX_BINDINGS];
        let count = buffers.handles("buffers", &mut handles)?;
        let [x, y, z] = groups;
        Ok(Self {
            pipeline,
            buffers: handles,
            count,
            groups: [x.u32("gX")?, y.u32_or("gY", 1)?, z.u32_or("gZ", 1)?],
            push: push.push("push")?,
        })
    }

    fn add(&self, context: &mut Context) -> Result<()> {
        // SAFETY: used before control returns to JS.
        let push = unsafe { self.push.slice() };
        context.dispatch(
            self.pipeline,
            &self.buffers[..self.count],
            self.groups,
            push,
        )
    }
}

/// One dispatch, submitted at once; its timeline value (0 while a graph is recorded). Push constants
/// are at least the pipeline's `pushBytes` long.
#[napi(
    ts_args_type = "pipeline: PipelineHandle, buffers: ArrayLike<BufferHandle>, gX: number, gY?: number, gZ?: number, push?: ArrayBufferView | ArrayBuffer",
    ts_return_type = "TimelineValue"
)]
pub fn dispatch(
    env: &Env,
    pipeline: Arg,
    buffers: Arg,
    g_x: Arg,
    g_y: Arg,
    g_z: Arg,
    push: Arg,
) -> napi::Result<f64> {
    call(env, "dispatch", || {
        let single = Single::new(pipeline, buffers, [g_x, g_y, g_z], push)?;
        let value = state::with(|context| {
            single.add(context)?;
            submit_unless_recording(context)
        })?;
        state::batch_touched();
        Ok(value as f64)
    })
}

fn submit_unless_recording(context: &mut Context) -> Result<u64> {
    if context.recording_here() {
        return Ok(0);
    }
    context.commit()
}

/// Opens a batch.
#[napi(js_name = "batchBegin")]
pub fn batch_begin(env: &Env) -> napi::Result<()> {
    call(env, "batchBegin", || {
        state::with(|context| context.device.check_alive())?;
        state::batch_begin()
    })
}

/// Adds one dispatch to the open batch. `writeMask` may name written bindings; what the shader writes
/// is known from its SPIR-V, whatever the mask says.
#[napi(
    js_name = "batchDispatch",
    ts_args_type = "pipeline: PipelineHandle, buffers: ArrayLike<BufferHandle>, gX: number, gY?: number, gZ?: number, push?: ArrayBufferView | ArrayBuffer, writeMask?: Uint32Array"
)]
#[allow(clippy::too_many_arguments)]
pub fn batch_dispatch(
    env: &Env,
    pipeline: Arg,
    buffers: Arg,
    g_x: Arg,
    g_y: Arg,
    g_z: Arg,
    push: Arg,
    write_mask: Arg,
) -> napi::Result<()> {
    call(env, "batchDispatch", || {
        let single = Single::new(pipeline, buffers, [g_x, g_y, g_z], push)?;
        if !write_mask.missing() && write_mask.bytes("writeMask")?.len < 4 {
            return Err(Error::range("writeMask", "must hold one word", "none"));
        }
        state::with(|context| {
            context.device.check_alive()?;
            state::batch_required()?;
            single.add(context)
        })?;
        state::batch_touched();
        Ok(())
    })
}

/// Arguments of a list call: two of them for the packed form, one for the word form.
fn list<'a>(packed: Arg, count: Arg) -> Result<List<'a>> {
    // SAFETY: used before control returns to JS.
    let bytes = unsafe { packed.bytes("packed")?.slice() };
    Ok(match count.kind() {
        napi::ValueType::Undefined => List::Words(bytes),
        _ => List::Packed {
            bytes,
            count: count.u32("count")? as usize,
        },
    })
}

/// Adds a whole list of dispatches to the open batch. Two arguments: `count` packed records; one: the
/// word form. A list with an error adds nothing.
#[napi(
    js_name = "batchDispatchMany",
    ts_args_type = "packed: ArrayBuffer | ArrayBufferView, count?: number"
)]
pub fn batch_dispatch_many(env: &Env, packed: Arg, count: Arg) -> napi::Result<()> {
    call(env, "batchDispatchMany", || {
        let list = list(packed, count)?;
        let added = state::with(|context| {
            context.device.check_alive()?;
            state::batch_required()?;
            context.dispatch_list(list)
        })?;
        if added > 0 {
            state::batch_touched();
        }
        Ok(())
    })
}

/// Ends the batch; its timeline value, 0 if nothing was added.
#[napi(js_name = "batchSubmit", ts_return_type = "TimelineValue")]
pub fn batch_submit(env: &Env) -> napi::Result<f64> {
    call(env, "batchSubmit", || {
        state::with(|context| context.device.check_alive())?;
        if !state::batch_end()? {
            return Ok(0.0);
        }
        state::with(submit_unless_recording).map(|value| value as f64)
    })
}

/// Begin, dispatch many, submit, in one call.
#[napi(
    js_name = "batchExecuteAll",
    ts_args_type = "packed: ArrayBuffer | ArrayBufferView, count?: number",
    ts_return_type = "TimelineValue"
)]
pub fn batch_execute_all(env: &Env, packed: Arg, count: Arg) -> napi::Result<f64> {
    call(env, "batchExecuteAll", || {
        let list = list(packed, count)?;
        state::with(|context| {
            not_in_batch(context)?;
            match context.dispatch_list(list)? {
                0 => Ok(0.0),
                _ => submit_unless_recording(context).map(|value| value as f64),
            }
        })
    })
}

fn not_in_batch(context: &Context) -> Result<()> {
    context.device.check_alive()?;
    if state::batch_is_open() {
        return Err(Error::Batch(
            "a batch is already open: call batchSubmit() first".to_owned(),
        ));
    }
    Ok(())
}

/// `batchExecuteAll`, blocking, with GPU times in microseconds for the list and each dispatch.
#[napi(
    js_name = "batchExecuteAllProfiled",
    ts_args_type = "packed: ArrayBuffer | ArrayBufferView, count?: number",
    ts_return_type = "BatchProfile"
)]
pub fn batch_execute_all_profiled(env: &Env, packed: Arg, count: Arg) -> napi::Result<Out> {
    call(env, "batchExecuteAllProfiled", || {
        let list = list(packed, count)?;
        let profile = state::with(|context| {
            not_in_batch(context)?;
            context.profile_list(list)
        })?;
        let raw = env.raw();
        let times = &profile.dispatch_us;
        let (buffer, data) = array_buffer(raw, times.len() * 8)?;
        // SAFETY: the new ArrayBuffer has room for every time.
        unsafe { ptr::copy_nonoverlapping(times.as_ptr().cast(), data, times.len() * 8) };
        let array = typed_array(raw, sys::TypedarrayType::float64_array, times.len(), buffer);
        Ok(Out(Object::new(raw)
            .integer("timeline", profile.timeline)
            .number("batchGpuTimeUs", profile.batch_us)
            .integer("dispatchCount", times.len() as u64)
            .value("dispatchTimesUs", array)
            .raw))
    })
}

/// Blocks until the timeline value is reached. A value that nothing will signal is a RangeError.
#[napi(js_name = "waitTimeline", ts_args_type = "value: TimelineValue")]
pub fn wait_timeline(env: &Env, value: Arg) -> napi::Result<()> {
    call(env, "waitTimeline", || {
        let value = value.size("value")?;
        wait(env.raw(), |context| {
            context.check_value(value)?;
            Ok(value)
        })
    })
}

/// Waits for the value that `which` gives.
fn wait(env: sys::napi_env, which: impl FnOnce(&mut Context) -> Result<u64>) -> Result<()> {
    let waits = state::with_any_place(|context| {
        let value = which(context)?;
        context.prepare_wait(value)?;
        let timeline = &context.timeline;
        Ok((timeline.seen() < value).then(|| (Arc::clone(timeline), value)))
    })?;
    let Some((timeline, value)) = waits else {
        lend::passed();
        return state::with_any_place(Context::found_nan);
    };
    // Other threads work on while this one waits.
    let start = std::time::Instant::now();
    lend::wait(env, &timeline, value)?;
    state::with_any_place(|context| {
        context.waited(start);
        context.found_nan()
    })
}

/// Highest completed timeline value.
#[napi(js_name = "getCompleted", ts_return_type = "TimelineValue")]
pub fn get_completed(env: &Env) -> napi::Result<f64> {
    call(env, "getCompleted", || {
        state::with_any_place(Context::completed).map(|value| value as f64)
    })
}

/// Waits for everything called so far.
#[napi(js_name = "waitIdle")]
pub fn wait_idle(env: &Env) -> napi::Result<()> {
    call(env, "waitIdle", || wait(env.raw(), Context::flush))
}

/// Mean GPU time of one dispatch in microseconds over `iters` runs after `warmup` untimed ones, by
/// timestamps, each run ordered behind the one before as its hazards demand.
#[napi(
    js_name = "gpuTime",
    ts_args_type = "pipeline: PipelineHandle, buffers: ArrayLike<BufferHandle>, gX: number, gY?: number, gZ?: number, push?: ArrayBufferView | ArrayBuffer, iters?: number, warmup?: number",
    ts_return_type = "number"
)]
#[allow(clippy::too_many_arguments)]
pub fn gpu_time(
    env: &Env,
    pipeline: Arg,
    buffers: Arg,
    g_x: Arg,
    g_y: Arg,
    g_z: Arg,
    push: Arg,
    iters: Arg,
    warmup: Arg,
) -> napi::Result<f64> {
    call(env, "gpuTime", || {
        let single = Single::new(pipeline, buffers, [g_x, g_y, g_z], push)?;
        let iterations = iters.u32_or("iters", 1)?;
        if iterations == 0 {
            return Err(Error::range("iters", "must be at least 1", 0));
        }
        let warmup = warmup.u32_or("warmup", 0)?;
        // SAFETY: used before control returns to JS.
        let push = unsafe { single.push.slice() };
        state::with(|context| {
            context.gpu_time(
                single.pipeline,
                &single.buffers[..single.count],
                single.groups,
                push,
                iterations,
                warmup,
            )
        })
    })
}

/// What the `dgc*` calls can do here.
#[napi(js_name = "dgcInfo", ts_return_type = "DgcInfo")]
pub fn dgc_info(env: &Env) -> napi::Result<Out> {
    call(env, "dgcInfo", || {
        state::with(|context| {
            let addresses = context.device.plan.device_address;
            let (stride, most) = context
                .dgc
                .as_ref()
                .map_or((0, 0), |d| (d.stride(), d.max_sequences));
            Ok(Out(Object::new(env.raw())
                .boolean("hasBDA", addresses)
                .boolean("hasDGC", addresses)
                .integer("stride", u64::from(stride))
                .integer("maxSequences", u64::from(most))
                .raw))
        })
    })
}

/// Sets the pipeline (without bindings, taking device addresses) of the `dgc*` calls; false where the
/// device has no device addresses.
#[napi(
    js_name = "dgcSetup",
    ts_args_type = "pipeline: PipelineHandle, pushBytes: number, maxSequences: number",
    ts_return_type = "boolean"
)]
pub fn dgc_setup(env: &Env, pipeline: Arg, push_bytes: Arg, max: Arg) -> napi::Result<Out> {
    call(env, "dgcSetup", || {
        let pipeline = pipeline.handle("pipeline", "pipeline")?;
        let push_bytes = push_bytes.u32("pushBytes")?;
        let max = max.u32("maxSequences")?;
        let ready = state::with(|context| context.dgc_setup(pipeline, push_bytes, max))?;
        Ok(Out(boolean(env.raw(), ready)))
    })
}

thread_local! {
    /// This environment's ArrayBuffer over the sequences of one `dgcSetup`, by its id.
    static SEQUENCES: RefCell<Option<(u64, sys::napi_ref)>> = const { RefCell::new(None) };
}

type Sequences = Arc<[std::cell::UnsafeCell<u8>]>;

unsafe extern "C" fn release_sequences(_: sys::napi_env, _: *mut c_void, hint: *mut c_void) {
    // SAFETY: `hint` is the box that was leaked for exactly this call.
    drop(unsafe { Box::from_raw(hint.cast::<Sequences>()) });
}

/// The sequences of `dgcSetup` as an ArrayBuffer to write: for each, the push constants and then
/// three u32 group counts.
#[napi(js_name = "dgcGetCommandBuffer", ts_return_type = "ArrayBuffer")]
pub fn dgc_get_command_buffer(env: &Env) -> napi::Result<Out> {
    call(env, "dgcGetCommandBuffer", || {
        let raw = env.raw();
        let (id, commands) = state::with(|context| {
            context.device.check_alive()?;
            let dgc = context
                .dgc
                .as_ref()
                .ok_or_else(|| Error::Batch("dgcSetup was not called".to_owned()))?;
            Ok((dgc.id, Arc::clone(&dgc.commands)))
        })?;
        let mut buffer = ptr::null_mut();
        let known = SEQUENCES.with(|s| *s.borrow());
        if let Some((known, reference)) = known {
            if known == id {
                // SAFETY: the reference is of this thread's environment.
                unsafe { sys::napi_get_reference_value(raw, reference, &mut buffer) };
                if !buffer.is_null() {
                    return Ok(Out(buffer));
                }
            }
            // SAFETY: as above; it is not used again.
            unsafe { sys::napi_delete_reference(raw, reference) };
            SEQUENCES.with(|s| s.borrow_mut().take());
        }
        let (data, len) = (commands.as_ptr().cast_mut(), commands.len());
        let boxed: *mut Sequences = Box::into_raw(Box::new(commands));
        // SAFETY: the bytes live until `release_sequences` drops their owner.
        let status = unsafe {
            sys::napi_create_external_arraybuffer(
                raw,
                data.cast(),
                len,
                Some(release_sequences),
                boxed.cast(),
                &mut buffer,
            )
        };
        if status != sys::Status::napi_ok {
            clear_exception(raw);
            // SAFETY: the runtime refused, so the finalizer will not run.
            drop(unsafe { Box::from_raw(boxed) });
            return Err(Error::Unsupported(
                "this runtime allows no ArrayBuffer over native memory".to_owned(),
            ));
        }
        let mut reference = ptr::null_mut();
        // SAFETY: `buffer` is an object of `raw`. A weak reference: JS decides how long it lives.
        unsafe { sys::napi_create_reference(raw, buffer, 0, &mut reference) };
        SEQUENCES.with(|s| *s.borrow_mut() = Some((id, reference)));
        Ok(Out(buffer))
    })
}

/// Runs the first `count` sequences of the command buffer; their timeline value.
#[napi(
    js_name = "dgcExecute",
    ts_args_type = "count: number",
    ts_return_type = "TimelineValue"
)]
pub fn dgc_execute(env: &Env, count: Arg) -> napi::Result<f64> {
    call(env, "dgcExecute", || {
        let count = count.u32("count")?;
        let value = state::with(|context| {
            context.dgc_execute(count)?;
            if count == 0 {
                return Ok(0);
            }
            submit_unless_recording(context)
        })?;
        state::batch_touched();
        Ok(value as f64)
    })
}

/// Runs `count` operations of 28 bytes (i32 a, b, c; u32 elements; u32 gX, gY, gZ) through the pipeline
/// of `dgcSetup`, which is pushed the three device addresses, the element count and 0.
#[napi(
    js_name = "batchExecuteAllDGC",
    ts_args_type = "packed: ArrayBuffer | ArrayBufferView, count: number",
    ts_return_type = "TimelineValue"
)]
pub fn batch_execute_all_dgc(env: &Env, packed: Arg, count: Arg) -> napi::Result<f64> {
    call(env, "batchExecuteAllDGC", || {
        // SAFETY: used before control returns to JS.
        let bytes = unsafe { packed.bytes("packed")?.slice() };
        let count = count.u32("count")? as usize;
        state::with(|context| {
            not_in_batch(context)?;
            match context.dgc_list(bytes, count)? {
                0 => Ok(0.0),
                _ => submit_unless_recording(context).map(|value| value as f64),
            }
        })
    })
}

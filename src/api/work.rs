//! Dispatches, batches, the timeline and the `dgc*` calls.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use napi::{Env, sys};
use napi_derive::napi;

use super::convert::{Arg, copied, is_detached};
use super::raise::call;
use super::values::{Object, Out, boolean, clear_exception, refused};
use super::{resources, results, state};
use crate::context::{self, Context, List, Push};
use crate::error::{Error, Result};
use crate::plan::decode::{BindingRange, MAX_BINDINGS};

/// Arguments that `dispatch`, `batchDispatch` and `gpuTime` share.
struct Single {
    pipeline: i32,
    buffers: [i32; MAX_BINDINGS],
    count: usize,
    ranges: Vec<BindingRange>,
    groups: [u32; 3],
    push: Push,
}

impl Single {
    fn new(pipeline: Arg, buffers: Arg, groups: [Arg; 3], push: Arg) -> Result<Self> {
        let pipeline = pipeline.handle("pipeline", "pipeline")?;
        let mut handles = [0; MAX_BINDINGS];
        let mut ranges = Vec::new();
        let count = buffers.handles("buffers", &mut handles, &mut ranges)?;
        let [x, y, z] = groups;
        Ok(Self {
            pipeline,
            buffers: handles,
            count,
            ranges,
            groups: [x.u32("gX")?, y.u32_or("gY", 1)?, z.u32_or("gZ", 1)?],
            // SAFETY: copied here.
            push: Push::new(unsafe { push.push("push")?.source() }),
        })
    }

    fn add(&mut self, context: &mut Context) -> Result<()> {
        context.dispatch(self.single())
    }

    /// The dispatch; takes the ranges.
    fn single(&mut self) -> context::Single<'_> {
        context::Single {
            pipeline: self.pipeline,
            buffers: &self.buffers[..self.count],
            ranges: std::mem::take(&mut self.ranges),
            groups: self.groups,
            push: &self.push,
        }
    }
}

/// Submits one dispatch at once. Returns its timeline value (0 while a graph is recorded).
///
/// Push constants must be at least `pushBytes` of the pipeline long. A buffer is bound whole or as a range of it; one
/// binding covers at most the device's `maxStorageBufferRange` bytes.
#[napi(
    ts_args_type = "pipeline: PipelineHandle, buffers: ArrayLike<BufferBinding>, gX: number, gY?: number, gZ?: number, push?: ArrayBufferView | ArrayBuffer",
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
        let mut single = Single::new(pipeline, buffers, [g_x, g_y, g_z], push)?;
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

/// Adds one dispatch to the open batch. `writeMask` may name the written bindings but is not needed: the shader's
/// SPIR-V says what it writes.
#[napi(
    js_name = "batchDispatch",
    ts_args_type = "pipeline: PipelineHandle, buffers: ArrayLike<BufferBinding>, gX: number, gY?: number, gZ?: number, push?: ArrayBufferView | ArrayBuffer, writeMask?: Uint32Array"
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
        let mut single = Single::new(pipeline, buffers, [g_x, g_y, g_z], push)?;
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

/// Copies the bytes of a list, so that what is checked is what is recorded.
fn list_bytes(packed: Arg) -> Result<Vec<u8>> {
    // SAFETY: copied here.
    copied(unsafe { packed.bytes("packed")?.source() })
}

/// The arguments of a list call: two for the packed form, one for the word form.
fn list(bytes: &[u8], count: Arg) -> Result<List<'_>> {
    Ok(match count.kind() {
        napi::ValueType::Undefined => List::Words(bytes),
        _ => List::Packed {
            bytes,
            count: count.u32("count")? as usize,
        },
    })
}

/// Adds a whole list of dispatches to the open batch. With two arguments it is `count` packed records, with one the
/// word form. A list with an error adds nothing.
#[napi(
    js_name = "batchDispatchMany",
    ts_args_type = "packed: ArrayBuffer | ArrayBufferView, count?: number"
)]
pub fn batch_dispatch_many(env: &Env, packed: Arg, count: Arg) -> napi::Result<()> {
    call(env, "batchDispatchMany", || {
        let bytes = list_bytes(packed)?;
        let list = list(&bytes, count)?;
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

/// Submits the batch. Returns its timeline value, 0 if nothing was added.
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

/// `batchBegin`, `batchDispatchMany` and `batchSubmit` in one call.
#[napi(
    js_name = "batchExecuteAll",
    ts_args_type = "packed: ArrayBuffer | ArrayBufferView, count?: number",
    ts_return_type = "TimelineValue"
)]
pub fn batch_execute_all(env: &Env, packed: Arg, count: Arg) -> napi::Result<f64> {
    call(env, "batchExecuteAll", || {
        let bytes = list_bytes(packed)?;
        let list = list(&bytes, count)?;
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

/// `batchExecuteAll` that blocks, with GPU times in microseconds for the list and for each dispatch.
#[napi(
    js_name = "batchExecuteAllProfiled",
    ts_args_type = "packed: ArrayBuffer | ArrayBufferView, count?: number",
    ts_return_type = "BatchProfile"
)]
pub fn batch_execute_all_profiled(env: &Env, packed: Arg, count: Arg) -> napi::Result<Out> {
    call(env, "batchExecuteAllProfiled", || {
        let bytes = list_bytes(packed)?;
        let list = list(&bytes, count)?;
        let profile = state::with(|context| {
            not_in_batch(context)?;
            context.profile_list(list)
        })?;
        let raw = env.raw();
        let times = &profile.dispatch_us;
        let (buffer, data) = results::array_buffer(raw, times.len() * 8)?;
        // SAFETY: the new ArrayBuffer has room for every time.
        unsafe { ptr::copy_nonoverlapping(times.as_ptr().cast(), data, times.len() * 8) };
        let kind = sys::TypedarrayType::float64_array;
        let array = results::view(raw, kind, times.len(), buffer)?;
        Object::new(raw)
            .integer("timeline", profile.timeline)
            .number("batchGpuTimeUs", profile.batch_us)
            .integer("dispatchCount", times.len() as u64)
            .value("dispatchTimesUs", Ok(array))
            .done()
            .map(Out)
    })
}

/// Blocks until the timeline value is reached. Throws a RangeError for a value that nothing will signal.
#[napi(js_name = "waitTimeline", ts_args_type = "value: TimelineValue")]
pub fn wait_timeline(env: &Env, value: Arg) -> napi::Result<()> {
    call(env, "waitTimeline", || {
        let value = value.size("value")?;
        wait(env, |context| {
            context.check_value(value)?;
            Ok(value)
        })
    })
}

/// Waits for the value that `which` gives.
fn wait(env: &Env, which: impl FnOnce(&mut Context) -> Result<u64>) -> Result<()> {
    let waits = state::with(|context| {
        let value = which(context)?;
        context.prepare_wait(value)?;
        let timeline = &context.timeline;
        if timeline.seen() >= value {
            timeline.check_valid(value)?;
            return context.found_nan().map(|()| None);
        }
        Ok(Some((Arc::clone(timeline), value)))
    })?;
    let Some((timeline, value)) = waits else {
        return Ok(());
    };
    resources::wait(env.raw(), &timeline, value)
}

/// The highest timeline value reached so far.
#[napi(js_name = "getCompleted", ts_return_type = "TimelineValue")]
pub fn get_completed(env: &Env) -> napi::Result<f64> {
    call(env, "getCompleted", || {
        state::with(Context::completed).map(|value| value as f64)
    })
}

/// Blocks until everything called so far is done.
#[napi(js_name = "waitIdle")]
pub fn wait_idle(env: &Env) -> napi::Result<()> {
    call(env, "waitIdle", || wait(env, Context::flush))
}

/// Measures the mean GPU time of one dispatch in microseconds, by timestamps, over `iters` runs after `warmup` untimed
/// ones. Each run is ordered after the one before as its hazards require.
#[napi(
    js_name = "gpuTime",
    ts_args_type = "pipeline: PipelineHandle, buffers: ArrayLike<BufferBinding>, gX: number, gY?: number, gZ?: number, push?: ArrayBufferView | ArrayBuffer, iters?: number, warmup?: number",
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
        let mut single = Single::new(pipeline, buffers, [g_x, g_y, g_z], push)?;
        let iterations = iters.u32_or("iters", 1)?;
        if iterations == 0 {
            return Err(Error::range("iters", "must be at least 1", 0));
        }
        let warmup = warmup.u32_or("warmup", 0)?;
        state::with(|context| context.gpu_time(single.single(), iterations, warmup))
    })
}

/// What the `dgc*` calls support on this device.
#[napi(js_name = "dgcInfo", ts_return_type = "DgcInfo")]
pub fn dgc_info(env: &Env) -> napi::Result<Out> {
    call(env, "dgcInfo", || {
        state::with(|context| {
            let addresses = context.device.plan.device_address;
            let (stride, most) = context
                .dgc
                .as_ref()
                .map_or((0, 0), |d| (d.stride(), d.max_sequences));
            Object::new(env.raw())
                .boolean("hasBDA", addresses)
                .boolean("hasDGC", addresses)
                .integer("stride", u64::from(stride))
                .integer("maxSequences", u64::from(most))
                .done()
                .map(Out)
        })
    })
}

/// Sets the pipeline of the `dgc*` calls: one without bindings that takes device addresses. False if the device has no
/// device addresses.
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
        boolean(env.raw(), ready).map(Out)
    })
}

thread_local! {
    /// This environment's ArrayBuffer over the sequences of one `dgcSetup`, with the id of that set-up.
    static SEQUENCES: RefCell<Option<(u64, sys::napi_ref)>> = const { RefCell::new(None) };
}

type Sequences = Arc<[AtomicU32]>;

unsafe extern "C" fn release_sequences(_: sys::napi_env, _: *mut c_void, hint: *mut c_void) {
    // SAFETY: `hint` is the box that was leaked for exactly this call. To drop it frees memory, no more.
    drop(unsafe { Box::from_raw(hint.cast::<Sequences>()) });
}

/// The sequences of `dgcSetup` as an ArrayBuffer to write to: for each, the push constants, then three u32 group
/// counts.
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
                // SAFETY: the reference is of this thread's environment. If it fails, the value stays null.
                let _ = unsafe { sys::napi_get_reference_value(raw, reference, &mut buffer) };
                if !buffer.is_null() && !is_detached(raw, buffer) {
                    return Ok(Out(buffer));
                }
            }
            SEQUENCES.with(|s| *s.borrow_mut() = None);
            // SAFETY: as above; it is not used again. If it fails, a weak reference is left over.
            let _ = unsafe { sys::napi_delete_reference(raw, reference) };
        }
        if !results::on_main_thread() {
            // When a worker ends, Node calls its finalizers, although another thread may own the memory by then: leak
            // it.
            std::mem::forget(Arc::clone(&commands));
        }
        let (data, len) = (commands.as_ptr().cast_mut(), size_of_val(&*commands));
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
        if status != sys::Status::napi_ok && status != sys::Status::napi_no_external_buffers_allowed
        {
            // Whether the runtime will call the finalizer is unknown, so the box is left to it.
            return Err(refused(raw, "napi_create_external_arraybuffer", status));
        }
        if status != sys::Status::napi_ok {
            clear_exception(raw);
            // SAFETY: the runtime refused, so the finalizer will not run.
            drop(unsafe { Box::from_raw(boxed) });
            return Err(Error::Unsupported(
                "this runtime allows no ArrayBuffer over native memory, as Electron allows none: \
                 call batchExecuteAllDGC"
                    .to_owned(),
            ));
        }
        let mut reference = ptr::null_mut();
        // SAFETY: `buffer` is an object of `raw`. A weak reference: JS decides how long it lives.
        let status = unsafe { sys::napi_create_reference(raw, buffer, 0, &mut reference) };
        // Without a reference the next call makes another ArrayBuffer over the same bytes.
        let known = (status == sys::Status::napi_ok).then_some((id, reference));
        SEQUENCES.with(|s| *s.borrow_mut() = known);
        Ok(Out(buffer))
    })
}

/// Runs the first `count` sequences of the command buffer. Returns their timeline value.
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

/// Runs `count` operations of 28 bytes each (i32 a, b, c; u32 elements; u32 gX, gY, gZ) through the pipeline of
/// `dgcSetup`. Its push constants are the device addresses of buffers a, b and c, the element count and 0.
#[napi(
    js_name = "batchExecuteAllDGC",
    ts_args_type = "packed: ArrayBuffer | ArrayBufferView, count: number",
    ts_return_type = "TimelineValue"
)]
pub fn batch_execute_all_dgc(env: &Env, packed: Arg, count: Arg) -> napi::Result<f64> {
    call(env, "batchExecuteAllDGC", || {
        let bytes = list_bytes(packed)?;
        let count = count.u32("count")? as usize;
        state::with(|context| {
            not_in_batch(context)?;
            match context.dgc_list(&bytes, count)? {
                0 => Ok(0.0),
                _ => submit_unless_recording(context).map(|value| value as f64),
            }
        })
    })
}

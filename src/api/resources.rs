//! Buffers and pipelines: creation, data, names.

use std::sync::Arc;
use std::time::Instant;

use napi::{Env, sys};
use napi_derive::napi;

use super::convert::{Arg, FEW};
use super::raise::call;
use super::values::{Out, array, number, still_runs};
use super::{results, state};
use crate::context::{NameKind, Read};
use crate::error::Result;
use crate::memory::staging::Lease;
use crate::queue::completion;
use crate::queue::timeline::Timeline;

/// Creates a storage buffer of `byteLength` bytes, usable as copy source and target. Its contents are undefined. A
/// buffer of 0 bytes is valid: reads return no elements, and shaders see four bytes that no other buffer shares.
///
/// `hostVisible = 0` makes it device-local. A third argument that is not an object is `options.temporary`. For
/// `options.exportable` see `exportBuffer`.
///
/// Throws a RangeError beyond the device's limit, and `ERR_HELIOS_OUT_OF_MEMORY` if no memory is left after all idle
/// memory has been returned. If the device reported gigabytes to spare and another process has just taken them, the
/// next call that may use the buffer throws that error instead.
#[napi(
    js_name = "createBuffer",
    ts_args_type = "byteLength: number, hostVisible?: number | boolean, options?: number | boolean | BufferOptions",
    ts_return_type = "BufferHandle"
)]
pub fn create_buffer(
    env: &Env,
    byte_length: Arg,
    host_visible: Arg,
    options: Arg,
) -> napi::Result<i32> {
    call(env, "createBuffer", || {
        let bytes = byte_length.size("byteLength")?;
        let visible = host_visible.flag_or("hostVisible", true)?;
        let (temporary, exportable) = if options.kind() == napi::ValueType::Object {
            let flag = |name| {
                let value = options.property(name)?;
                value.flag_or(&format!("options.{name}"), false)
            };
            (flag("temporary")?, flag("exportable")?)
        } else {
            (options.flag_or("temporary", false)?, false)
        };
        if exportable {
            return state::with(|context| context.create_exportable(bytes));
        }
        state::with(|context| context.create_buffer(bytes, visible, temporary))
    })
}

/// Destroys a buffer: the handle is invalid now; its memory is reused when the device has finished with it.
#[napi(js_name = "destroyBuffer", ts_args_type = "handle: BufferHandle")]
pub fn destroy_buffer(env: &Env, handle: Arg) -> napi::Result<()> {
    call(env, "destroyBuffer", || {
        let handle = handle.handle("handle", "buffer")?;
        state::with(|context| {
            context.device.check_alive()?;
            context.destroy_buffer(handle)
        })
    })
}

/// The size of a buffer in bytes, as it was created.
#[napi(
    js_name = "bufferBytes",
    ts_args_type = "handle: BufferHandle",
    ts_return_type = "number"
)]
pub fn buffer_bytes(env: &Env, handle: Arg) -> napi::Result<f64> {
    call(env, "bufferBytes", || {
        let handle = handle.handle("handle", "buffer")?;
        state::with(|context| Ok(context.buffer_bytes("handle", handle)? as f64))
    })
}

/// Copies `data` to the start of the buffer, in order with all other calls. Returns at once: `data` may be changed
/// right after. If `data` is shorter than the buffer, the rest stays as it was.
#[napi(
    js_name = "uploadBuffer",
    ts_args_type = "handle: BufferHandle, data: ArrayBufferView | ArrayBuffer"
)]
pub fn upload_buffer(env: &Env, handle: Arg, data: Arg) -> napi::Result<()> {
    call(env, "uploadBuffer", || {
        let handle = handle.handle("handle", "buffer")?;
        let mut few = [0; 4 * FEW];
        // SAFETY: used before control returns to JS.
        let data = unsafe { data.upload("data", &mut few)?.source() };
        let _value = state::with(|context| context.upload(handle, data, 0, false))?;
        state::batch_touched();
        Ok(())
    })
}

/// Copies `data` to `byteOffset` in the buffer through the staging ring, in order with all other calls. Returns the
/// timeline value at which it has arrived (0 while a graph is recorded). Blocks only while unfinished copies fill the
/// ring.
#[napi(
    js_name = "uploadAsync",
    ts_args_type = "handle: BufferHandle, data: ArrayBufferView | ArrayBuffer, byteOffset?: number",
    ts_return_type = "TimelineValue"
)]
pub fn upload_async(env: &Env, handle: Arg, data: Arg, byte_offset: Arg) -> napi::Result<f64> {
    call(env, "uploadAsync", || {
        let handle = handle.handle("handle", "buffer")?;
        let mut few = [0; 4 * FEW];
        // SAFETY: used before control returns to JS.
        let data = unsafe { data.upload("data", &mut few)?.source() };
        let offset = byte_offset.size_or("byteOffset", 0)?;
        let value = state::with(|context| context.upload(handle, data, offset, true))?;
        state::batch_touched();
        Ok(value as f64)
    })
}

/// Fills the first `bytes` bytes (a multiple of 4) with the 32-bit `pattern`, in order with all other calls.
#[napi(
    js_name = "fillBuffer",
    ts_args_type = "handle: BufferHandle, bytes: number, pattern: number"
)]
pub fn fill_buffer(env: &Env, handle: Arg, bytes: Arg, pattern: Arg) -> napi::Result<()> {
    call(env, "fillBuffer", || {
        let handle = handle.handle("handle", "buffer")?;
        let bytes = bytes.size("bytes")?;
        let pattern = pattern.u32("pattern")?;
        state::with(|context| context.fill(handle, bytes, pattern))?;
        state::batch_touched();
        Ok(())
    })
}

/// Copies `byteLength` bytes from one buffer to another, or between ranges of one that do not overlap, in order with
/// all other calls. Without a length it copies as much as both buffers hold from their offsets.
#[napi(
    js_name = "copyBuffer",
    ts_args_type = "source: BufferHandle, target: BufferHandle, byteLength?: number, sourceOffset?: number, targetOffset?: number"
)]
pub fn copy_buffer(
    env: &Env,
    source: Arg,
    target: Arg,
    byte_length: Arg,
    source_offset: Arg,
    target_offset: Arg,
) -> napi::Result<()> {
    call(env, "copyBuffer", || {
        let source = source.handle("source", "buffer")?;
        let target = target.handle("target", "buffer")?;
        let from = source_offset.size_or("sourceOffset", 0)?;
        let to = target_offset.size_or("targetOffset", 0)?;
        state::with(|context| {
            let most = context
                .buffer_bytes("source", source)?
                .saturating_sub(from)
                .min(context.buffer_bytes("target", target)?.saturating_sub(to));
            let bytes = byte_length.size_or("byteLength", most)?;
            context.copy_buffer(source, from, target, to, bytes)
        })?;
        state::batch_touched();
        Ok(())
    })
}

/// Reads the bytes `offset … offset + bytes` of the buffer into an ArrayBuffer, after everything called so far. Waits
/// without the lock.
pub(super) fn read_bytes(
    env: sys::napi_env,
    handle: i32,
    offset: u64,
    bytes: u64,
) -> Result<sys::napi_value> {
    let (read, timeline) = results::collecting(env, || {
        state::with(|context| {
            Ok((
                context.read(handle, offset, bytes)?,
                Arc::clone(&context.timeline),
            ))
        })
    })?;
    match read {
        Read::Direct { value } => {
            let (buffer, data) = results::array_buffer(env, bytes as usize)?;
            wait(env, &timeline, value)?;
            state::with(|context| {
                // SAFETY: the new ArrayBuffer has `len` bytes.
                unsafe { context.read_direct(handle, offset, bytes, data) }
            })?;
            Ok(buffer)
        }
        Read::Staged { lease, value } => {
            results::array_buffer_of(env, filled(env, &timeline, value, lease)?)
        }
    }
}

/// Waits without the lock; ends with an error if JavaScript may no longer run in this environment.
pub(super) fn wait(env: sys::napi_env, timeline: &Timeline, value: u64) -> Result<()> {
    let start = Instant::now();
    timeline.wait_while(value, || still_runs(env))?;
    state::with(|context| {
        context.waited(start);
        context.found_nan()
    })
}

/// The block of a read, once the device has filled it.
pub(super) fn filled(
    env: sys::napi_env,
    timeline: &Arc<Timeline>,
    value: u64,
    lease: Lease,
) -> Result<Lease> {
    match wait(env, timeline, value) {
        Ok(()) => Ok(lease),
        Err(error) => {
            // The device may still write to the block: it returns to the pool once the device has finished.
            match completion::start() {
                Ok(()) => completion::when(timeline, value, Some(lease), Box::new(drop)),
                // The process is ending.
                Err(_) => std::mem::forget(lease),
            }
            Err(error)
        }
    }
}

/// Reads the whole buffer as floats (`byteLength / 4` elements), after everything called so far. Blocks.
#[napi(
    js_name = "readBuffer",
    ts_args_type = "handle: BufferHandle",
    ts_return_type = "Float32Array"
)]
pub fn read_buffer(env: &Env, handle: Arg) -> napi::Result<Out> {
    call(env, "readBuffer", || {
        let handle = handle.handle("handle", "buffer")?;
        let bytes = state::with(|context| context.buffer_bytes("handle", handle))?;
        let whole = bytes & !3;
        let buffer = read_bytes(env.raw(), handle, 0, whole)?;
        Ok(Out(results::floats(env.raw(), buffer, whole as usize)?))
    })
}

/// Destroys a pipeline: the handle is invalid now. What the driver compiled is freed when no other handle, no graph and
/// no work called so far needs it.
#[napi(js_name = "destroyPipeline", ts_args_type = "handle: PipelineHandle")]
pub fn destroy_pipeline(env: &Env, handle: Arg) -> napi::Result<()> {
    call(env, "destroyPipeline", || {
        let handle = handle.handle("handle", "pipeline")?;
        state::with(|context| context.destroy_pipeline(handle))
    })
}

/// Names a buffer or pipeline for profiles, reports and validation messages.
#[napi(
    js_name = "setName",
    ts_args_type = "handle: BufferHandle | PipelineHandle, name: string, kind?: 'buffer' | 'pipeline'"
)]
pub fn set_name(env: &Env, handle: Arg, name: Arg, kind: Arg) -> napi::Result<()> {
    call(env, "setName", || {
        let text = name.string("name")?;
        let kind = if kind.missing() {
            NameKind::Buffer
        } else {
            match kind.string("kind")?.as_str() {
                "buffer" => NameKind::Buffer,
                "pipeline" => NameKind::Pipeline,
                _ => return Err(kind.wrong("kind", "'buffer' or 'pipeline'")),
            }
        };
        let handle = handle.handle("handle", "object")?;
        state::with(|context| context.set_name(handle, kind, text))
    })
}

/// The device address of a buffer as `[low, high]` 32-bit halves.
#[napi(
    js_name = "dgcGetBufferAddress",
    ts_args_type = "handle: BufferHandle",
    ts_return_type = "[lo: number, hi: number]"
)]
pub fn dgc_get_buffer_address(env: &Env, handle: Arg) -> napi::Result<Out> {
    call(env, "dgcGetBufferAddress", || {
        let handle = handle.handle("handle", "buffer")?;
        let address = state::with(|context| context.buffer_address(handle))?;
        let raw = env.raw();
        let halves = [address & 0xffff_ffff, address >> 32];
        array(raw, halves.map(|half| number(raw, half as f64))).map(Out)
    })
}

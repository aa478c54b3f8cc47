//! Buffers in memory that others see too.

use napi::Env;
use napi_derive::napi;

use super::convert::Arg;
use super::raise::call;
use super::state;
use super::values::{Object, Out};

/// A new file descriptor for the memory of a buffer made by `createBuffer(bytes, 0, { exportable:
/// true })`, for another API (CUDA) or process on the same device (VK_KHR_external_memory_fd, opaque).
///
/// The descriptor is the caller's: close it, or hand it to something that takes it. It keeps the
/// memory alive, also after `destroyBuffer`. It is closed on exec; a child process gets it through
/// `stdio`.
///
/// What others do is outside the order of calls: finish before handing over (`waitTimeline`,
/// `waitIdle`), and let them finish before the next call that touches the buffer.
///
/// Throws `ERR_HELIOS_UNSUPPORTED` where the device cannot export.
#[napi(
    js_name = "exportBuffer",
    ts_args_type = "handle: BufferHandle",
    ts_return_type = "ExportedBuffer"
)]
pub fn export_buffer(env: &Env, handle: Arg) -> napi::Result<Out> {
    call(env, "exportBuffer", || {
        let handle = handle.handle("handle", "buffer")?;
        let exported = state::with(|context| context.export_buffer(handle))?;
        Object::new(env.raw())
            .number("fd", f64::from(exported.fd))
            .integer("size", exported.size)
            .integer("byteLength", exported.bytes)
            .boolean("dedicated", exported.dedicated)
            .done()
            .map(Out)
    })
}

/// A buffer over the memory that a file descriptor stands for: one of `exportBuffer`, or an opaque one
/// of another API, made on this very device and driver. `size` is the memory's, in bytes, and the
/// buffer's.
///
/// The descriptor is duplicated and stays the caller's. `destroyBuffer` lets go of the memory. Two
/// buffers over the same memory are two to the order of calls: see `exportBuffer`.
///
/// Throws a RangeError for what is no such memory, as far as the driver tells, and
/// `ERR_HELIOS_UNSUPPORTED` where the device cannot import.
#[napi(
    js_name = "importBuffer",
    ts_args_type = "fd: number, size: number",
    ts_return_type = "BufferHandle"
)]
pub fn import_buffer(env: &Env, fd: Arg, size: Arg) -> napi::Result<i32> {
    call(env, "importBuffer", || {
        let fd = fd.integer("fd", i32::MAX as u64)? as i32;
        let size = size.size("size")?;
        state::with(|context| context.import_buffer(fd, size))
    })
}

//! Buffers whose memory is shared with other processes and APIs.

use napi::Env;
use napi_derive::napi;

use super::convert::Arg;
use super::raise::call;
use super::state;
use super::values::{Object, Out};

/// Returns a new file descriptor for the memory of a buffer made by `createBuffer(bytes, 0, { exportable: true })`, for
/// another API (CUDA) or process on the same device (VK_KHR_external_memory_fd, opaque).
///
/// The descriptor is the caller's: close it, or pass it to something that takes ownership. It keeps the memory alive,
/// even after `destroyBuffer`. It is closed on exec; pass it to a child process through `stdio`.
///
/// The order of calls does not cover what others do with the memory. Finish your work before you hand over
/// (`waitTimeline`, `waitIdle`), and let them finish theirs before the next call that touches the buffer.
///
/// Throws `ERR_HELIOS_UNSUPPORTED` if the device cannot export.
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

/// Makes a buffer over the memory of a file descriptor: one from `exportBuffer`, or an opaque one that another API made
/// on the same device and driver. `size` is the size in bytes of both the memory and the buffer.
///
/// The descriptor is duplicated and stays the caller's. `destroyBuffer` releases the memory. Calls treat two buffers
/// over the same memory as independent: see `exportBuffer`.
///
/// Throws a RangeError if the descriptor is no such memory, as far as the driver can tell, and `ERR_HELIOS_UNSUPPORTED`
/// if the device cannot import.
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

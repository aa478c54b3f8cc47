//! CUDA's driver: the calls that import Vulkan's memory and timelines, and a stream to work on them.
//!
//! Names and layouts are those of `cuda.h` 12.8; all of them exist since CUDA 11.4. What is made here is freed when it is
//! dropped: the stream must be done with it by then.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::Library;

use super::bind::{functions, reason};
use crate::failure::{Cause, Failure};
use crate::mpi::library::{Scope, open};

#[cfg(unix)]
pub use std::os::fd::OwnedFd;
/// There are none.
#[cfg(not(unix))]
#[derive(Debug)]
pub enum OwnedFd {}

#[cfg(unix)]
fn number(fd: &OwnedFd) -> c_int {
    std::os::fd::AsRawFd::as_raw_fd(fd)
}

#[cfg(not(unix))]
fn number(fd: &OwnedFd) -> c_int {
    match *fd {}
}

type Status = c_int;
pub type Handle = *mut c_void;
/// `CUdeviceptr`.
pub type Address = u64;
/// `CUuuid`.
pub type Uuid = [u8; 16];

const NOT_READY: Status = 600;
const MEMORY_OPAQUE_FD: c_uint = 1;
const MEMORY_DEDICATED: c_uint = 1;
const SEMAPHORE_TIMELINE_FD: c_uint = 9;
const STREAM_NON_BLOCKING: c_uint = 1;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
struct MemoryHandle {
    kind: c_uint,
    _padding: c_uint,
    /// The first member of a union of two pointers.
    fd: c_int,
    _union: [c_uint; 3],
    size: u64,
    flags: c_uint,
    _reserved: [c_uint; 17],
}
const _: () = assert!(size_of::<MemoryHandle>() == 104);

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
struct MappedRange {
    offset: u64,
    size: u64,
    flags: c_uint,
    _reserved: [c_uint; 17],
}
const _: () = assert!(size_of::<MappedRange>() == 88);

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`.
#[repr(C, align(8))]
struct SemaphoreHandle {
    kind: c_uint,
    _padding: c_uint,
    fd: c_int,
    _union: [c_uint; 3],
    flags: c_uint,
    _reserved: [c_uint; 17],
}
const _: () = assert!(size_of::<SemaphoreHandle>() == 96);

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS`, which begins with the value.
#[repr(C)]
struct SemaphoreValue {
    value: u64,
    _reserved: [c_uint; 34],
}
const _: () = assert!(size_of::<SemaphoreValue>() == 144);

functions! { Calls:
    init = "cuInit" (c_uint);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device = "cuDeviceGet" (*mut c_int, c_int);
    uuid = "cuDeviceGetUuid_v2" (*mut Uuid, c_int);
    retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    set_current = "cuCtxSetCurrent" (Handle);
    create_stream = "cuStreamCreate" (*mut Handle, c_uint);
    query_stream = "cuStreamQuery" (Handle);
    destroy_stream = "cuStreamDestroy_v2" (Handle);
    allocate = "cuMemAlloc_v2" (*mut Address, usize);
    free = "cuMemFree_v2" (Address);
    allocate_host = "cuMemHostAlloc" (*mut Handle, usize, c_uint);
    free_host = "cuMemFreeHost" (Handle);
    to_device = "cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
    to_host = "cuMemcpyDtoHAsync_v2" (Handle, Address, usize, Handle);
    import_memory = "cuImportExternalMemory" (*mut Handle, *const MemoryHandle);
    map_memory = "cuExternalMemoryGetMappedBuffer" (*mut Address, Handle, *const MappedRange);
    destroy_memory = "cuDestroyExternalMemory" (Handle);
    import_semaphore = "cuImportExternalSemaphore" (*mut Handle, *const SemaphoreHandle);
    signal = "cuSignalExternalSemaphoresAsync" (*const Handle, *const SemaphoreValue, c_uint, Handle);
    destroy_semaphore = "cuDestroyExternalSemaphore" (Handle);
    error_name = "cuGetErrorName" (Status, *mut *const c_char);
}

/// The driver, started; it stays loaded.
#[derive(Clone, Copy)]
pub struct Cuda {
    calls: &'static Calls,
}

/// Runs a call of the driver, which has no other name for errors than its own.
macro_rules! checked {
    ($cuda:expr, $name:ident($($argument:expr),*)) => {{
        let calls = $cuda.calls;
        // SAFETY: declared as in the header; the arguments are live, as the caller of this says.
        let status = unsafe { (calls.$name.call)($($argument),*) };
        $cuda.check(calls.$name.name, status)
    }};
}

impl Cuda {
    /// Loads the first library that is a driver of CUDA, and starts it.
    pub fn load(libraries: &[String]) -> Result<Self, Failure> {
        let mut tried = String::new();
        for name in libraries {
            let bound = open(name, Scope::Local)
                .map_err(|e| reason(&e))
                .and_then(|library| Calls::bind(Box::leak(Box::new(library)) as &'static Library));
            match bound {
                Ok(calls) => {
                    let cuda = Self {
                        calls: Box::leak(Box::new(calls)),
                    };
                    checked!(cuda, init(0))?;
                    return Ok(cuda);
                }
                Err(reason) => tried += &format!("\n  {name}: {reason}"),
            }
        }
        let text = format!("no driver of CUDA loads. Tried:{tried}");
        Err(Failure::new(Cause::NoEngine, text, None))
    }

    fn check(self, call: &str, status: Status) -> Result<(), Failure> {
        if status == 0 {
            return Ok(());
        }
        let mut name: *const c_char = ptr::null();
        // SAFETY: as declared; the text is static.
        unsafe { (self.calls.error_name.call)(status, &raw mut name) };
        let name = match name.is_null() {
            true => "an unknown error".into(),
            // SAFETY: a text of the driver's, which ends with a zero.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy(),
        };
        Err(Failure::engine(format!("{call} failed: {name} ({status})")))
    }

    /// The number of the device that has this identifier, which Vulkan gives too.
    fn find(self, uuid: &Uuid) -> Result<c_int, Failure> {
        let mut count = 0;
        checked!(self, device_count(&raw mut count))?;
        for ordinal in 0..count {
            let mut device = 0;
            checked!(self, device(&raw mut device, ordinal))?;
            let mut found = [0; 16];
            checked!(self, uuid(&raw mut found, device))?;
            if found == *uuid {
                return Ok(device);
            }
        }
        Err(Failure::engine(format!(
            "none of CUDA's {count} devices is the one that Vulkan computes on: CUDA_VISIBLE_DEVICES may hide it"
        )))
    }

    /// Makes the primary context of the device with this identifier the one of this thread.
    pub fn open(self, uuid: &Uuid) -> Result<Context, Failure> {
        let device = self.find(uuid)?;
        let mut raw = ptr::null_mut();
        checked!(self, retain(&raw mut raw, device))?;
        let context = Context { cuda: self, device };
        checked!(self, set_current(raw))?;
        Ok(context)
    }
}

/// The device's primary context, which NCCL works in too. Of the thread that opened it.
pub struct Context {
    pub cuda: Cuda,
    device: c_int,
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = checked!(self.cuda, set_current(ptr::null_mut()));
        let _ = checked!(self.cuda, release(self.device));
    }
}

pub struct Stream {
    cuda: Cuda,
    pub raw: Handle,
}

impl Stream {
    pub fn new(cuda: Cuda) -> Result<Self, Failure> {
        let mut raw = ptr::null_mut();
        checked!(cuda, create_stream(&raw mut raw, STREAM_NON_BLOCKING))?;
        Ok(Self { cuda, raw })
    }

    /// Whether all that was given to it has ended.
    pub fn done(&self) -> Result<bool, Failure> {
        let query = &self.cuda.calls.query_stream;
        // SAFETY: the stream is live.
        match unsafe { (query.call)(self.raw) } {
            NOT_READY => Ok(false),
            status => self.cuda.check(query.name, status).map(|()| true),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = checked!(self.cuda, destroy_stream(self.raw));
    }
}

/// The same number of bytes on the device and, locked in memory, on the host.
pub struct Mirror {
    cuda: Cuda,
    pub device: Address,
    host: Handle,
    bytes: usize,
}

impl Mirror {
    pub fn new(cuda: Cuda, bytes: usize) -> Result<Self, Failure> {
        let mut mirror = Self {
            cuda,
            device: 0,
            host: ptr::null_mut(),
            bytes,
        };
        checked!(cuda, allocate(&raw mut mirror.device, bytes))?;
        checked!(cuda, allocate_host(&raw mut mirror.host, bytes, 0))?;
        Ok(mirror)
    }

    /// The host's bytes. The stream is done with them.
    pub fn host(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes were allocated. The stream is not at work on them, as the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.host.cast(), self.bytes) }
    }

    pub fn to_device(&self, stream: &Stream) -> Result<(), Failure> {
        let (from, bytes) = (self.host.cast_const(), self.bytes);
        checked!(self.cuda, to_device(self.device, from, bytes, stream.raw))
    }

    pub fn to_host(&self, stream: &Stream) -> Result<(), Failure> {
        let (to, bytes) = (self.host, self.bytes);
        checked!(self.cuda, to_host(to, self.device, bytes, stream.raw))
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if self.device != 0 {
            let _ = checked!(self.cuda, free(self.device));
        }
        if !self.host.is_null() {
            let _ = checked!(self.cuda, free_host(self.host));
        }
    }
}

/// Memory of Vulkan's, mapped from its first byte to its last.
pub struct Imported {
    cuda: Cuda,
    raw: Handle,
    pub address: Address,
}

impl Imported {
    /// `dedicated`: whether Vulkan allocated it for one buffer alone.
    pub fn new(cuda: Cuda, fd: OwnedFd, size: u64, dedicated: bool) -> Result<Self, Failure> {
        let handle = MemoryHandle {
            kind: MEMORY_OPAQUE_FD,
            _padding: 0,
            fd: number(&fd),
            _union: [0; 3],
            size,
            flags: if dedicated { MEMORY_DEDICATED } else { 0 },
            _reserved: [0; 17],
        };
        let mut imported = Self {
            cuda,
            raw: ptr::null_mut(),
            address: 0,
        };
        checked!(
            cuda,
            import_memory(&raw mut imported.raw, &raw const handle)
        )?;
        // The driver's from here on.
        std::mem::forget(fd);
        let range = MappedRange {
            offset: 0,
            size,
            flags: 0,
            _reserved: [0; 17],
        };
        let raw = imported.raw;
        checked!(
            cuda,
            map_memory(&raw mut imported.address, raw, &raw const range)
        )?;
        Ok(imported)
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        if self.address != 0 {
            let _ = checked!(self.cuda, free(self.address));
        }
        if !self.raw.is_null() {
            let _ = checked!(self.cuda, destroy_memory(self.raw));
        }
    }
}

/// A timeline semaphore of Vulkan's.
pub struct Semaphore {
    cuda: Cuda,
    raw: Handle,
}

impl Semaphore {
    pub fn new(cuda: Cuda, fd: OwnedFd) -> Result<Self, Failure> {
        let handle = SemaphoreHandle {
            kind: SEMAPHORE_TIMELINE_FD,
            _padding: 0,
            fd: number(&fd),
            _union: [0; 3],
            flags: 0,
            _reserved: [0; 17],
        };
        let mut raw = ptr::null_mut();
        checked!(cuda, import_semaphore(&raw mut raw, &raw const handle))?;
        std::mem::forget(fd);
        Ok(Self { cuda, raw })
    }

    /// Reaches the value when the stream comes here.
    pub fn signal(&self, stream: &Stream, value: u64) -> Result<(), Failure> {
        let value = SemaphoreValue {
            value,
            _reserved: [0; 34],
        };
        let semaphores = &raw const self.raw;
        checked!(
            self.cuda,
            signal(semaphores, &raw const value, 1, stream.raw)
        )
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        let _ = checked!(self.cuda, destroy_semaphore(self.raw));
    }
}

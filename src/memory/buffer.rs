//! What a buffer handle stands for.

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;

use crate::memory::allocator::Resource;
use crate::plan::hazard::Marks;

pub const STREAM: usize = 0;
pub const GRAPH: usize = 1;

/// A live buffer. The hot fields come first: a dispatch touches only these.
pub struct Buffer {
    pub raw: vk::Buffer,
    /// Where it starts in `raw`, which it may share with others.
    pub offset: u64,
    /// Device address of the first byte of `raw`; 0 without device addresses.
    pub address: u64,
    /// Bytes that a descriptor covers: the size, up to the device's limit for one binding.
    pub range: u64,
    /// Hazards of the stream ([`STREAM`]), and of the graph being recorded ([`GRAPH`]).
    pub marks: [Marks; 2],
    /// Timeline value after which the device no longer uses the buffer.
    pub last_use: u64,
    /// Bytes as requested.
    pub bytes: u64,
    pub mapped: Option<NonNull<u8>>,
    /// Whether host reads of `mapped` are fast.
    pub cached: bool,
    /// Shared with the graphs that use it, which may outlive the handle.
    pub resource: Arc<Resource>,
    pub name: Option<String>,
    /// Timeline value of the first work that can have used it.
    pub born: u64,
}

// SAFETY: what is not `Send` by itself is the mapped pointer. It is that of the resource, which the buffer keeps alive,
// and is written and read by `upload_direct` and `read_direct` alone, in calls that hold the lock of the process's
// one context.
unsafe impl Send for Buffer {}

//! What a buffer handle stands for.

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;

use crate::hazard::Marks;
use crate::memory::Resource;

/// A live buffer. The hot fields come first: a dispatch touches only these.
pub struct Buffer {
    pub raw: vk::Buffer,
    /// Where it starts in `raw`, which it may share with others.
    pub offset: u64,
    /// Bytes that a descriptor names: the size, within the device's limit for one binding.
    pub range: u64,
    /// Hazards of the stream, and of the graph being recorded.
    pub marks: Marks,
    pub graph_marks: Marks,
    /// Timeline value after which the device no longer uses the buffer.
    pub last_use: u64,
    /// Number of the last write to it by a command, as [`crate::foresight::Foresight`] counts; 0 if none.
    pub wrote: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    pub mapped: Option<NonNull<u8>>,
    /// Whether host reads of `mapped` are fast.
    pub cached: bool,
    /// Whether its memory goes back to the driver with it.
    pub shared: bool,
    /// Shared with the graphs that use it, which may outlive the handle.
    pub resource: Arc<Resource>,
    pub name: Option<String>,
    /// Timeline value of the first work that can have used it.
    pub born: u64,
}

impl Buffer {
    /// Takes its place. `staged`: as if the host did not see it.
    pub fn settle_in(&mut self, resource: Arc<Resource>, staged: bool) {
        self.raw = resource.raw;
        self.offset = resource.offset;
        self.mapped = resource.mapped.filter(|_| !staged);
        self.cached = resource.cached;
        self.resource = resource;
    }
}

// SAFETY: the mapped pointer is used under the context's lock.
unsafe impl Send for Buffer {}

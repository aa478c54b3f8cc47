//! Memory of the readback blocks: some host words each, without any lock.

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk::{self, Handle};

use crate::device::Device;
use crate::error::{self, Result};
use crate::plain::Block;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Upload,
    Readback,
}

pub struct Resource {
    pub raw: vk::Buffer,
    pub offset: u64,
    pub capacity: u64,
    pub mapped: Option<NonNull<u8>>,
}

// SAFETY: whether one thread at a time uses its words is what the sanitizer is to find out.
unsafe impl Send for Resource {}
// SAFETY: as above.
unsafe impl Sync for Resource {}

pub struct Memory {
    pub device: Arc<Device>,
}

impl Memory {
    pub fn new(device: &Arc<Device>) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
        })
    }

    /// Without a lock, which would order those who make blocks.
    pub fn create(&self, capacity: u64, kind: Kind) -> Result<Resource> {
        assert!(kind == Kind::Readback);
        let info = vk::BufferCreateInfo::default().size(capacity);
        // SAFETY: as all calls of the stand-in.
        let raw = unsafe { self.device.raw.create_buffer(&info, None) }
            .map_err(error::vulkan("vkCreateBuffer"))?;
        Ok(Resource {
            raw,
            offset: 0,
            capacity,
            mapped: Some(Block::of(raw.as_raw()).start()),
        })
    }

    pub fn create_alone(&self, capacity: u64, kind: Kind) -> Result<Resource> {
        self.create(capacity, kind)
    }

    pub fn destroy(&self, resource: Resource) {
        // SAFETY: it came from `create`.
        unsafe { self.device.raw.destroy_buffer(resource.raw, None) };
    }
}

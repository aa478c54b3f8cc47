//! What the arenas take from the memory module.

use ash::vk;

use crate::error::Error;
use crate::vulkan::AllocationError;

#[derive(Clone, Copy)]
pub enum Kind {
    Device,
}

impl Kind {
    pub fn name(self) -> &'static str {
        "device buffer"
    }
}

pub fn usage(_: bool) -> vk::BufferUsageFlags {
    vk::BufferUsageFlags::STORAGE_BUFFER
}

pub fn map_allocation(_: AllocationError, kind: Kind, _: u64) -> Error {
    Error::OutOfMemory(kind.name())
}

//! What the arenas take from `gpu_allocator::vulkan`: each allocation is of one buffer.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use ash::vk::{self, Handle};

use crate::device::Raw;

pub enum MemoryLocation {
    Unknown,
}

#[derive(Default)]
pub struct AllocationSizes(());

/// The instance's functions, of which none is called.
#[derive(Clone)]
pub struct Functions;

#[derive(Debug)]
pub struct AllocationError;

impl fmt::Display for AllocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory")
    }
}

#[allow(dead_code)]
pub struct AllocatorCreateDesc {
    pub instance: Functions,
    pub device: Raw,
    pub physical_device: (),
    pub debug_settings: (),
    pub buffer_device_address: bool,
    pub allocation_sizes: AllocationSizes,
}

pub enum AllocationScheme {
    DedicatedBuffer(vk::Buffer),
}

#[allow(dead_code)]
pub struct AllocationCreateDesc<'a> {
    pub name: &'a str,
    pub requirements: vk::MemoryRequirements,
    pub location: MemoryLocation,
    pub linear: bool,
    pub allocation_scheme: AllocationScheme,
}

pub struct Allocation(vk::Buffer);

impl Allocation {
    pub fn memory_properties(&self) -> vk::MemoryPropertyFlags {
        vk::MemoryPropertyFlags::DEVICE_LOCAL
    }

    pub fn mapped_ptr(&self) -> Option<NonNull<c_void>> {
        None
    }

    pub fn offset(&self) -> u64 {
        0
    }

    /// # Safety
    /// As that of the real one; nothing relies on it.
    pub unsafe fn memory(&self) -> vk::DeviceMemory {
        vk::DeviceMemory::from_raw(self.0.as_raw())
    }
}

/// Used by one thread at a time.
pub struct Allocator {
    device: Raw,
    made: u64,
}

impl Allocator {
    pub fn new(desc: &AllocatorCreateDesc) -> Result<Self, AllocationError> {
        Ok(Self {
            device: desc.device.clone(),
            made: 0,
        })
    }

    pub fn allocate(
        &mut self,
        desc: &AllocationCreateDesc<'_>,
    ) -> Result<Allocation, AllocationError> {
        self.made += 1;
        let front = &self.device.front;
        let scarce = front.scarce.load(Ordering::Relaxed);
        if scarce != 0 && self.made.is_multiple_of(scarce) {
            return Err(AllocationError);
        }
        front.objects.fetch_add(1, Ordering::Relaxed);
        // As the driver: half a millisecond.
        std::thread::sleep(std::time::Duration::from_micros(500));
        let AllocationScheme::DedicatedBuffer(buffer) = desc.allocation_scheme;
        Ok(Allocation(buffer))
    }

    pub fn free(&mut self, _: Allocation) -> Result<(), AllocationError> {
        self.device.front.objects.fetch_add(-1, Ordering::Relaxed);
        Ok(())
    }
}

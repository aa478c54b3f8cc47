//! Arenas: large device buffers, parts of which are handed out as buffers of their own. Taking and
//! returning a part is arithmetic; only a new arena asks the driver. An arena's memory is dedicated to
//! its buffer: NVIDIA's driver gives 32 MiB of such in 65 µs, and of other memory in 550 µs (measured on
//! an H200, driver 580.159.04). So arenas are made when they are needed, and none waits unused.

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes};
use range_alloc::RangeAllocator;

use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::memory::{Kind, map_allocation, usage};

/// Parts start on addresses of this alignment, as much as Vulkan lets a device ask for.
pub const GRAIN: u64 = 256;
/// Arenas have this size…
const MIN_ARENA: u64 = 32 << 20;
/// …up to this in a program that holds much, so that there are never very many.
const MAX_ARENA: u64 = 256 << 20;
const MOST_ARENAS: u64 = 1024;
/// Largest part; a larger buffer gets memory of its own.
pub const MAX_PART: u64 = MIN_ARENA / 4 * 3;

/// Where a part lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    arena: usize,
    pub raw: vk::Buffer,
    pub offset: u64,
    bytes: u64,
    pub mapped: Option<NonNull<u8>>,
    pub cached: bool,
}

/// One block of device memory under one buffer.
struct Arena {
    raw: vk::Buffer,
    allocation: Allocation,
    /// Host address of its first byte, where its memory is host-visible and coherent.
    mapped: Option<NonNull<u8>>,
    cached: bool,
    ranges: RangeAllocator<u64>,
    bytes: u64,
    free: u64,
    /// The smallest size that was found not to fit since the last part came back.
    too_large: u64,
}

// SAFETY: the mapped pointer is handed out, not used here.
unsafe impl Send for Arena {}

impl Arena {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        match self.ranges.allocate_range(bytes) {
            Ok(range) => {
                self.free -= bytes;
                Some(range.start)
            }
            Err(_) => {
                self.too_large = bytes;
                None
            }
        }
    }

    fn give_back(&mut self, part: &Part) {
        self.ranges
            .free_range(part.offset..part.offset + part.bytes);
        self.free += part.bytes;
        self.too_large = u64::MAX;
    }

    fn may_fit(&self, bytes: u64) -> bool {
        self.free >= bytes && bytes < self.too_large
    }

    fn is_empty(&self) -> bool {
        self.free == self.bytes
    }
}

/// The arenas.
pub struct Arenas {
    list: Vec<Option<Arena>>,
    /// Places in `list` of the arenas that are not full.
    open: Vec<usize>,
    bytes: u64,
    allocator: Allocator,
    device: Arc<Device>,
}

impl Arenas {
    fn make(&mut self, bytes: u64) -> Result<Arena> {
        let device = Arc::clone(&self.device);
        let kind = Kind::Device;
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(usage(device.plan.device_address));
        // SAFETY: the device is live and the description valid.
        let raw = unsafe { device.raw.create_buffer(&info, None) }
            .map_err(|e| device.observe(error::create("vkCreateBuffer", kind.name(), bytes)(e)))?;
        // SAFETY: `raw` was created above.
        let mut requirements = unsafe { device.raw.get_buffer_memory_requirements(raw) };
        let wanted = 1 << device.plan.device_memory;
        if requirements.memory_type_bits & wanted != 0 {
            requirements.memory_type_bits = wanted;
        }
        let allocated = self.allocator.allocate(&AllocationCreateDesc {
            name: "arena",
            requirements,
            // The mask above names the memory type.
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::DedicatedBuffer(raw),
        });
        let allocation = allocated.map_err(|e| {
            // SAFETY: nothing uses the buffer yet.
            unsafe { device.raw.destroy_buffer(raw, None) };
            map_allocation(e, kind, bytes)
        })?;
        let properties = allocation.memory_properties();
        // SAFETY: the memory is live and was made for this buffer.
        let bound = unsafe {
            device
                .raw
                .bind_buffer_memory(raw, allocation.memory(), allocation.offset())
        };
        let arena = Arena {
            raw,
            // Incoherent memory would need flushes and invalidations: treated as not mapped.
            mapped: properties
                .contains(vk::MemoryPropertyFlags::HOST_COHERENT)
                .then(|| allocation.mapped_ptr().map(NonNull::cast))
                .flatten(),
            cached: properties.contains(vk::MemoryPropertyFlags::HOST_CACHED),
            allocation,
            ranges: RangeAllocator::new(0..bytes),
            bytes,
            free: bytes,
            too_large: u64::MAX,
        };
        if let Err(e) = bound {
            self.unmake(arena);
            let failed = error::create("vkBindBufferMemory", kind.name(), bytes)(e);
            return Err(device.observe(failed));
        }
        device.name(raw, "helios arena");
        Ok(arena)
    }

    fn unmake(&mut self, arena: Arena) {
        // SAFETY: no part is in use, and the device has finished with all of them.
        unsafe { self.device.raw.destroy_buffer(arena.raw, None) };
        // Fails only for an allocation of another allocator.
        let freed = self.allocator.free(arena.allocation);
        debug_assert!(freed.is_ok());
    }

    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: device.instance.raw.clone(),
            device: device.raw.clone(),
            physical_device: device.physical,
            debug_settings: Default::default(),
            buffer_device_address: device.plan.device_address,
            allocation_sizes: AllocationSizes::default(),
        })
        .map_err(|e: AllocationError| Error::Internal(format!("gpu-allocator: {e}")))?;
        Ok(Self {
            list: Vec::new(),
            open: Vec::new(),
            bytes: 0,
            allocator,
            device: Arc::clone(device),
        })
    }

    /// A part of `bytes` bytes (a multiple of [`GRAIN`], at most [`MAX_PART`]) of the fullest arena
    /// that has room, or of a new one.
    pub fn take(&mut self, bytes: u64) -> Result<Part> {
        debug_assert!(bytes.is_multiple_of(GRAIN) && bytes <= MAX_PART);
        while let Some(at) = self.fullest_for(bytes) {
            if let Some(part) = self.part_of(at, bytes) {
                return Ok(part);
            }
        }
        let next = (self.bytes / MOST_ARENAS).clamp(MIN_ARENA, MAX_ARENA);
        let arena = self.make(next.next_multiple_of(1 << 20))?;
        self.bytes += arena.bytes;
        let at = self.list.iter().position(Option::is_none);
        let at = at.unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() - 1
        });
        self.list[at] = Some(arena);
        self.open.push(at);
        self.part_of(at, bytes)
            .ok_or_else(|| Error::Internal("a new arena is full".to_owned()))
    }

    fn fullest_for(&self, bytes: u64) -> Option<usize> {
        let arenas = self.open.iter();
        arenas
            .filter_map(|&at| Some((at, self.list[at].as_ref()?)))
            .filter(|(_, arena)| arena.may_fit(bytes))
            .min_by_key(|(_, arena)| arena.free)
            .map(|(at, _)| at)
    }

    fn part_of(&mut self, at: usize, bytes: u64) -> Option<Part> {
        let arena = self.list.get_mut(at)?.as_mut()?;
        let offset = arena.take(bytes)?;
        if arena.free == 0 {
            self.open.retain(|&open| open != at);
        }
        Some(Part {
            arena: at,
            raw: arena.raw,
            offset,
            bytes,
            // SAFETY: the offset lies inside the mapped arena.
            mapped: arena
                .mapped
                .map(|base| unsafe { base.add(offset as usize) }),
            cached: arena.cached,
        })
    }

    /// Takes a part back. The device must have finished with it. Empty arenas but one go back to the
    /// driver.
    pub fn give_back(&mut self, part: &Part) {
        let Some(arena) = self.list.get_mut(part.arena).and_then(Option::as_mut) else {
            debug_assert!(false, "an arena was dropped with parts in use");
            return;
        };
        if arena.free == 0 {
            self.open.push(part.arena);
        }
        arena.give_back(part);
        if arena.is_empty() {
            self.drop_empty(1);
        }
    }

    fn drop_empty(&mut self, keep: usize) {
        let empty = |a: &Option<Arena>| a.as_ref().is_some_and(Arena::is_empty);
        let spare = self.list.iter().filter(|a| empty(a)).count();
        let places = self.list.iter_mut().enumerate().filter(|(_, a)| empty(a));
        let dropped: Vec<_> = places
            .take(spare.saturating_sub(keep))
            .filter_map(|(at, slot)| Some((at, slot.take()?)))
            .collect();
        for (at, arena) in dropped {
            self.open.retain(|&open| open != at);
            self.bytes -= arena.bytes;
            self.unmake(arena);
        }
    }

    /// Whether a part of `bytes` bytes is likely to be had without asking the driver.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.fullest_for(bytes).is_some()
    }

    /// Gives back what is not in use.
    pub fn trim(&mut self) {
        self.drop_empty(0);
    }

    /// Bytes of all arenas.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many there are, and the bytes of them that are in use.
    pub fn used(&self) -> (u64, u64) {
        let live = self.list.iter().flatten();
        live.fold((0, 0), |(count, bytes), arena| {
            (count + 1, bytes + arena.bytes - arena.free)
        })
    }
}

impl Drop for Arenas {
    fn drop(&mut self) {
        for arena in std::mem::take(&mut self.list).into_iter().flatten() {
            self.unmake(arena);
        }
    }
}

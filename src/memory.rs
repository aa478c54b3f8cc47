//! Device memory: sub-allocation through `gpu-allocator`, and recycling of what was destroyed.
//!
//! The only importer of `gpu-allocator`. A [`Resource`] is a `VkBuffer` with its memory; the
//! [`Recycler`] keeps the unused ones by size class, so that creating a buffer of a common size costs
//! no driver call.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes};
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{self, Error, Result};

/// What a resource's memory is for; picks the memory type that the plan chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only the device touches it.
    Device,
    /// The host may write it in place.
    Visible,
    /// Source of upload copies.
    Upload,
    /// Target of readback copies.
    Readback,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Device => "device buffer",
            Self::Visible => "host-visible buffer",
            Self::Upload => "upload staging",
            Self::Readback => "readback staging",
        }
    }
}

/// A `VkBuffer` with the memory bound to it. Freed by [`Memory::destroy`] alone, which consumes it.
pub struct Resource {
    pub raw: vk::Buffer,
    /// Bytes that may be used.
    pub capacity: u64,
    pub kind: Kind,
    /// Where the host sees it, if its memory type is host-visible.
    pub mapped: Option<NonNull<u8>>,
    /// Whether host reads are cached, hence fast.
    pub cached: bool,
    allocation: Allocation,
    /// Whether the driver gave memory for this buffer alone.
    pub alone: bool,
    /// The arena that the allocation is from; none if it is from the general allocator.
    arena: Option<usize>,
}

// SAFETY: the mapped pointer is used under the context's lock or by the one owner of a lease.
unsafe impl Send for Resource {}
// SAFETY: as above; a shared resource is only looked at.
unsafe impl Sync for Resource {}

/// Blocks grow from this size…
const MIN_BLOCK: u64 = 64 << 20;
/// …to this; a larger buffer gets memory of its own.
const MAX_BLOCK: u64 = 256 << 20;
/// Largest device buffer that is taken from an arena.
const MAX_IN_ARENA: u64 = MAX_BLOCK / 2;
/// Once so much lies in arenas, the next one is made ahead, on a thread of its own: the driver takes
/// milliseconds for a block, and a trainer that grows needs one every few of its calls.
const MAKE_AHEAD: u64 = 1 << 30;

/// An allocator for one block of device memory, so that a block can be made by another thread.
struct Arena {
    allocator: Allocator,
    /// Bytes of its blocks: more than one if the first was too fragmented.
    capacity: u64,
    free: u64,
}

impl Arena {
    fn new(device: &Device, bytes: u64, memory_type_bits: u32) -> Result<Self, AllocationError> {
        let mut allocator = allocator(device, bytes, bytes)?;
        // An allocator keeps its last block, so one small allocation makes it.
        let first = allocator.allocate(&AllocationCreateDesc {
            name: "first of a block",
            requirements: vk::MemoryRequirements {
                size: GRAIN,
                alignment: GRAIN,
                memory_type_bits,
            },
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        })?;
        allocator.free(first)?;
        let capacity = allocator.capacity();
        Ok(Self {
            allocator,
            capacity,
            free: capacity,
        })
    }

    fn allocate(&mut self, desc: &AllocationCreateDesc<'_>) -> Result<Allocation, AllocationError> {
        let allocation = self.allocator.allocate(desc)?;
        let capacity = self.allocator.capacity();
        self.free = self.free + (capacity - self.capacity) - allocation.size();
        self.capacity = capacity;
        Ok(allocation)
    }

    fn release(&mut self, allocation: Allocation) {
        let size = allocation.size();
        // Fails only for an allocation of another allocator.
        let freed = self.allocator.free(allocation);
        debug_assert!(freed.is_ok());
        let capacity = self.allocator.capacity();
        self.free = self.free + size - (self.capacity - capacity);
        self.capacity = capacity;
    }

    fn empty(&self) -> bool {
        self.free == self.capacity
    }
}

/// The arenas, and the one that is being made ahead.
#[derive(Default)]
struct Arenas {
    list: Vec<Option<Arena>>,
    making: Option<JoinHandle<Option<Arena>>>,
}

impl Arenas {
    fn bytes(&self) -> u64 {
        self.list.iter().flatten().map(|a| a.capacity).sum()
    }

    /// The arena made ahead, if there is one; waits for it if it is being made.
    fn made(&mut self) -> Option<Arena> {
        self.making.take()?.join().ok().flatten()
    }

    fn add(&mut self, arena: Arena) -> usize {
        let at = self.list.iter().position(Option::is_none);
        let at = at.unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() - 1
        });
        self.list[at] = Some(arena);
        at
    }

    /// Gives the empty arenas back but for `keep` of them.
    fn trim(&mut self, keep: usize) {
        let empty = |a: &Option<Arena>| a.as_ref().is_some_and(Arena::empty);
        let mut spare = self.list.iter().filter(|a| empty(a)).count();
        for slot in &mut self.list {
            if spare > keep && empty(slot) {
                *slot = None;
                spare -= 1;
            }
        }
    }
}

fn allocator(
    device: &Device,
    min_block: u64,
    max_block: u64,
) -> Result<Allocator, AllocationError> {
    Allocator::new(&AllocatorCreateDesc {
        instance: device.instance.raw.clone(),
        device: device.raw.clone(),
        physical_device: device.physical,
        debug_settings: Default::default(),
        buffer_device_address: device.plan.device_address,
        allocation_sizes: AllocationSizes::new(min_block, min_block)
            .with_max_device_memblock_size(max_block)
            .with_max_host_memblock_size(max_block),
    })
}

/// Sub-allocates device memory. Shared with whatever may outlive the context (read results that JS
/// still holds).
pub struct Memory {
    /// For everything but ordinary device buffers.
    allocator: Mutex<Allocator>,
    arenas: Mutex<Arenas>,
    pub device: Arc<Device>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The thread that makes an arena uses the device.
        drop(self.arenas.lock().made());
    }
}

/// Bytes by what they are used for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Bytes of the `VkDeviceMemory` objects.
    pub block_bytes: u64,
    pub blocks: u64,
    pub allocated_bytes: u64,
}

impl Memory {
    pub fn new(device: Arc<Device>) -> Result<Self> {
        let allocator = allocator(&device, MIN_BLOCK, MAX_BLOCK)
            .map_err(|e| Error::Internal(format!("gpu-allocator: {e}")))?;
        Ok(Self {
            allocator: Mutex::new(allocator),
            arenas: Mutex::new(Arenas::default()),
            device,
        })
    }

    /// Creates a buffer of `capacity` bytes with memory of its kind.
    pub fn create(&self, capacity: u64, kind: Kind) -> Result<Resource> {
        let device = &self.device;
        let mut usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        if device.plan.device_address {
            usage |= vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        }
        let info = vk::BufferCreateInfo::default().size(capacity).usage(usage);
        // SAFETY: the device is live and the description valid.
        let raw = unsafe { device.raw.create_buffer(&info, None) }.map_err(|e| {
            device.observe(error::create("vkCreateBuffer", kind.name(), capacity)(e))
        })?;
        // SAFETY: `raw` was created above.
        let mut requirements = unsafe { device.raw.get_buffer_memory_requirements(raw) };
        let wanted = match kind {
            Kind::Device => device.plan.device_memory,
            Kind::Visible => device.plan.visible_memory,
            Kind::Upload => device.plan.upload_memory,
            Kind::Readback => device.plan.readback_memory,
        };
        if requirements.memory_type_bits & (1 << wanted) != 0 {
            requirements.memory_type_bits = 1 << wanted;
        }
        let desc = AllocationCreateDesc {
            name: kind.name(),
            requirements,
            // The mask above names the memory type.
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let allocated = if kind == Kind::Device && requirements.size <= MAX_IN_ARENA {
            self.allocate_in_arena(&desc)
                .map(|(allocation, arena)| (allocation, Some(arena), false))
        } else {
            let mut allocator = self.allocator.lock();
            let before = allocator.capacity();
            let allocation = allocator.allocate(&desc);
            let alone = allocator.capacity() - before == desc.requirements.size;
            allocation.map(|allocation| (allocation, None, alone))
        };
        let (allocation, arena, alone) = match allocated {
            Ok(allocated) => allocated,
            Err(e) => {
                // SAFETY: nothing uses the buffer yet.
                unsafe { device.raw.destroy_buffer(raw, None) };
                return Err(map_allocation(e, kind, capacity));
            }
        };
        // SAFETY: the memory is live and its offset aligned as the buffer requires.
        let bound = unsafe {
            device
                .raw
                .bind_buffer_memory(raw, allocation.memory(), allocation.offset())
        };
        let properties = allocation.memory_properties();
        let resource = Resource {
            raw,
            capacity,
            kind,
            // Incoherent memory would need flushes and invalidations: treated as not mapped.
            mapped: properties
                .contains(vk::MemoryPropertyFlags::HOST_COHERENT)
                .then(|| allocation.mapped_ptr().map(NonNull::cast))
                .flatten(),
            cached: properties.contains(vk::MemoryPropertyFlags::HOST_CACHED),
            allocation,
            alone,
            arena,
        };
        if let Err(e) = bound {
            self.destroy(resource);
            return Err(device.observe(
                error::create("vkBindBufferMemory", kind.name(), capacity)(e),
            ));
        }
        Ok(resource)
    }

    /// Gives buffer and memory back to the driver. The device must have finished with it.
    pub fn destroy(&self, resource: Resource) {
        // SAFETY: the caller's promise above; the handle dies with `resource`.
        unsafe { self.device.raw.destroy_buffer(resource.raw, None) };
        let Some(at) = resource.arena else {
            // Fails only for an allocation of another allocator.
            let freed = self.allocator.lock().free(resource.allocation);
            debug_assert!(freed.is_ok());
            return;
        };
        let mut arenas = self.arenas.lock();
        let Some(arena) = arenas.list.get_mut(at).and_then(Option::as_mut) else {
            debug_assert!(false, "an arena was dropped with allocations");
            return;
        };
        arena.release(resource.allocation);
        if arena.empty() {
            arenas.trim(1);
        }
    }

    /// From the arena with the least room that has enough, or from a new one.
    fn allocate_in_arena(
        &self,
        desc: &AllocationCreateDesc<'_>,
    ) -> Result<(Allocation, usize), AllocationError> {
        let mut arenas = self.arenas.lock();
        let bytes = desc.requirements.size;
        let fitting = arenas
            .list
            .iter()
            .enumerate()
            .filter_map(|(at, arena)| Some((at, arena.as_ref()?.free)))
            .filter(|&(_, free)| free >= bytes)
            .min_by_key(|&(_, free)| free);
        let at = match fitting {
            Some((at, _)) => at,
            None => {
                let whole = arenas.bytes();
                let arena = match arenas.made() {
                    Some(arena) => arena,
                    None => Arena::new(
                        &self.device,
                        whole
                            .clamp(MIN_BLOCK, MAX_BLOCK)
                            .max(bytes.next_power_of_two()),
                        desc.requirements.memory_type_bits,
                    )?,
                };
                let at = arenas.add(arena);
                self.make_ahead(&mut arenas, desc.requirements.memory_type_bits);
                at
            }
        };
        let Some(arena) = arenas.list[at].as_mut() else {
            return Err(AllocationError::Internal("an arena is gone".to_owned()));
        };
        Ok((arena.allocate(desc)?, at))
    }

    /// Starts making the next arena if the program has grown large and the device has room.
    fn make_ahead(&self, arenas: &mut Arenas, memory_type_bits: u32) {
        let bytes = arenas.bytes();
        if bytes < MAKE_AHEAD || bytes + 4 * MAX_BLOCK > self.device.device_local_bytes() {
            return;
        }
        let device = Arc::clone(&self.device);
        arenas.making = std::thread::Builder::new()
            .name("helios-memory".to_owned())
            .spawn(move || Arena::new(&device, MAX_BLOCK, memory_type_bits).ok())
            .ok();
    }

    /// Whether a device buffer of `bytes` bytes is likely to fit what the driver has given already.
    pub fn has_room(&self, bytes: u64) -> bool {
        let arenas = self.arenas.lock();
        arenas.list.iter().flatten().any(|a| a.free >= bytes)
    }

    /// Gives back what was taken from the driver and is not in use.
    pub fn trim(&self) {
        let mut arenas = self.arenas.lock();
        drop(arenas.made());
        arenas.trim(0);
    }

    /// Bytes of all memory taken from the driver, but for an arena being made.
    pub fn block_bytes(&self) -> u64 {
        self.allocator.lock().capacity() + self.arenas.lock().bytes()
    }

    pub fn usage(&self) -> Usage {
        let report = self.allocator.lock().generate_report();
        let arenas = self.arenas.lock();
        let live = || arenas.list.iter().flatten();
        Usage {
            block_bytes: report.total_capacity_bytes + arenas.bytes(),
            blocks: report.blocks.len() as u64 + live().count() as u64,
            allocated_bytes: report.total_allocated_bytes
                + live().map(|a| a.capacity - a.free).sum::<u64>(),
        }
    }
}

fn map_allocation(e: AllocationError, kind: Kind, bytes: u64) -> Error {
    match e {
        AllocationError::OutOfMemory => Error::OutOfMemory {
            what: kind.name(),
            bytes,
            space: "device",
            hint: String::new(),
        },
        // gpu-allocator passes other results of vkAllocateMemory on as text.
        AllocationError::Internal(text) if text.contains("OUT_OF_HOST_MEMORY") => {
            Error::OutOfMemory {
                what: kind.name(),
                bytes,
                space: "host",
                hint: String::new(),
            }
        }
        AllocationError::Internal(text) if text.contains("DEVICE_LOST") => {
            Error::DeviceLost("vkAllocateMemory".to_owned())
        }
        AllocationError::FailedToMap(text) => {
            Error::Internal(format!("mapping the memory of a {}: {text}", kind.name()))
        }
        other => Error::Internal(format!("gpu-allocator: {other}")),
    }
}

/// Smallest capacity, and the step between the small ones.
const GRAIN: u64 = 256;
/// Classes: 8 steps an octave, octaves up to 2^63.
const CLASSES: usize = 64 * 8;

/// Rounds a size up to its class's capacity: steps of 256 bytes up to 2 KiB, then eight steps an
/// octave, so at most an eighth is unused.
pub fn size_class(bytes: u64) -> (usize, u64) {
    let last = bytes.max(GRAIN) - 1;
    let octave = 63 - last.leading_zeros();
    let shift = (octave.saturating_sub(3)).max(8);
    let step = last >> shift;
    let capacity = (step + 1) << shift;
    let class = ((shift - 8) as usize) * 8 + step as usize;
    (class.min(CLASSES - 1), capacity)
}

/// Resources of one size class with the time they came in, oldest first.
type Bin = VecDeque<(u64, Arc<Resource>)>;

/// Unused resources by kind and size class, within a bound on their bytes.
pub struct Recycler {
    bins: [Vec<Bin>; 2],
    bytes: u64,
    limit: u64,
    count: u64,
    /// Grows with every resource that comes in: the smallest stamp is the oldest.
    clock: u64,
    pub reuses: u64,
    pub evictions: u64,
}

impl Recycler {
    pub fn new(limit: u64) -> Self {
        let bins = || (0..CLASSES).map(|_| VecDeque::new()).collect();
        Self {
            bins: [bins(), bins()],
            bytes: 0,
            limit,
            count: 0,
            clock: 0,
            reuses: 0,
            evictions: 0,
        }
    }

    fn bin(kind: Kind) -> usize {
        usize::from(kind == Kind::Visible)
    }

    /// A resource of the class, the most recently used one first.
    #[inline]
    pub fn take(&mut self, class: usize, capacity: u64, kind: Kind) -> Option<Arc<Resource>> {
        let bin = &mut self.bins[Self::bin(kind)][class];
        let (_, resource) = bin.pop_back()?;
        // All of one class have its capacity but in the last, open-ended class.
        if resource.capacity < capacity {
            bin.push_front((0, resource));
            return None;
        }
        self.bytes -= resource.capacity;
        self.count -= 1;
        self.reuses += 1;
        Some(resource)
    }

    /// Keeps a resource that the device has finished with; what goes over the bound is returned to
    /// the driver, oldest first.
    pub fn put(&mut self, memory: &Memory, resource: Arc<Resource>) {
        if !matches!(resource.kind, Kind::Device | Kind::Visible) {
            // Staging of a graph that was destroyed.
            if let Some(resource) = Arc::into_inner(resource) {
                memory.destroy(resource);
            }
            return;
        }
        let (class, _) = size_class(resource.capacity);
        self.clock += 1;
        self.bytes += resource.capacity;
        self.count += 1;
        self.bins[Self::bin(resource.kind)][class].push_back((self.clock, resource));
        while self.bytes > self.limit {
            if !self.evict_oldest(memory) {
                break;
            }
        }
    }

    fn evict_oldest(&mut self, memory: &Memory) -> bool {
        let oldest = self
            .bins
            .iter_mut()
            .flatten()
            .filter(|bin| !bin.is_empty())
            .min_by_key(|bin| bin.front().map_or(u64::MAX, |(stamp, _)| *stamp));
        let Some((_, resource)) = oldest.and_then(VecDeque::pop_front) else {
            return false;
        };
        self.bytes -= resource.capacity;
        self.count -= 1;
        self.evictions += 1;
        if let Some(resource) = Arc::into_inner(resource) {
            memory.destroy(resource);
        }
        true
    }

    /// Returns at least `bytes` bytes, oldest first, if there are as many.
    pub fn evict(&mut self, memory: &Memory, bytes: u64) {
        let end = self.bytes.saturating_sub(bytes);
        while self.bytes > end && self.evict_oldest(memory) {}
    }

    /// Returns everything to the driver; whether there was anything.
    pub fn clear(&mut self, memory: &Memory) -> bool {
        let had = self.count > 0;
        while self.evict_oldest(memory) {}
        had
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_all_sizes_with_an_eighth_at_most_to_spare() {
        let mut last = (0, 0);
        let mut sizes: Vec<u64> = (0..20_000).collect();
        sizes.extend((14..40).flat_map(|o| {
            (0..64).flat_map(move |i| {
                let at = (1u64 << o) + i * (1 << (o - 6));
                [at - 1, at, at + 1]
            })
        }));
        sizes.sort_unstable();
        for bytes in sizes {
            let (class, capacity) = size_class(bytes);
            assert!(capacity >= bytes && capacity >= GRAIN && capacity % GRAIN == 0);
            assert!(
                capacity <= (bytes + GRAIN - 1).max(GRAIN) || capacity - bytes <= bytes / 8 + 1,
                "{bytes} -> {capacity}"
            );
            assert!(class >= last.0 && capacity >= last.1, "not monotonic");
            assert_eq!(class == last.0 && last.1 != 0, capacity == last.1);
            // A capacity is of its own class, so what is recycled is found again.
            assert_eq!(size_class(capacity), (class, capacity));
            last = (class, capacity);
        }
    }

    #[test]
    fn powers_of_two_waste_nothing() {
        for octave in 8..40 {
            assert_eq!(size_class(1 << octave).1, 1 << octave);
        }
        assert_eq!(size_class(12_582_912).1, 12_582_912);
    }
}

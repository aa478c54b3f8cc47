//! Device memory: parts of [`crate::arena`]s, other allocations through `gpu-allocator`, and recycling
//! of what was destroyed.
//!
//! A [`Resource`] is a buffer with its memory: a range of an arena's `VkBuffer`, or one of its own. The
//! [`Recycler`] keeps the unused ones by size, so that creating a buffer of a size that was used
//! before costs next to nothing.

use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes};
use parking_lot::Mutex;

use crate::arena::{Arenas, GRAIN, MAX_PART, Part};
use crate::background::Background;
use crate::device::{Device, flag};
use crate::error::{self, Error, Result};
use crate::share::Block;

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
    /// Device memory that others see too; never recycled.
    Shared,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device buffer",
            Self::Visible => "host-visible buffer",
            Self::Upload => "upload staging",
            Self::Readback => "readback staging",
            Self::Shared => "shared buffer",
        }
    }
}

/// A buffer with its memory. Freed by [`Memory::destroy`] alone, which consumes it.
pub struct Resource {
    pub raw: vk::Buffer,
    /// Where it starts in `raw`.
    pub offset: u64,
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
    /// The part of an arena that it is.
    part: Option<Part>,
    /// The memory of a shared buffer, which no allocator knows.
    pub(crate) shared: Option<Block>,
}

// SAFETY: the mapped pointer is used under the context's lock or by the one owner of a lease.
unsafe impl Send for Resource {}
// SAFETY: as above; a shared resource is only looked at.
unsafe impl Sync for Resource {}

impl Resource {
    /// Whether the `VkBuffer` is this resource's alone.
    pub fn owns_buffer(&self) -> bool {
        self.part.is_none() || self.alone
    }

    /// A part of an arena.
    fn part(part: Part, capacity: u64) -> Self {
        Self {
            raw: part.raw,
            offset: part.offset,
            capacity,
            mapped: part.mapped,
            cached: part.cached,
            alone: part.whole,
            part: Some(part),
            ..Self::nowhere()
        }
    }

    /// What a buffer has that got no place yet.
    pub fn nowhere() -> Self {
        Self {
            raw: vk::Buffer::null(),
            offset: 0,
            capacity: 0,
            kind: Kind::Device,
            mapped: None,
            cached: false,
            allocation: Allocation::default(),
            alone: false,
            part: None,
            shared: None,
        }
    }

    /// A buffer that is bound to shared memory.
    pub(crate) fn shared(raw: vk::Buffer, capacity: u64, block: Block) -> Self {
        Self {
            raw,
            capacity,
            kind: Kind::Shared,
            alone: true,
            shared: Some(block),
            ..Self::nowhere()
        }
    }
}

/// Blocks of what is not in arenas grow from this size…
const MIN_BLOCK: u64 = 64 << 20;
/// …to this; a larger buffer gets memory of its own. A device buffer too large for an arena of the usual
/// size gets one as large as need be: of a block's 256 MiB, few such buffers leave much that none of them
/// fits.
const MAX_BLOCK: u64 = 256 << 20;
/// Readback blocks of this size and more get memory of their own, smaller ones share blocks of the
/// size below: where all came from blocks of up to 256 MiB, a read waited up to 61 ms for the driver (H200).
const LARGE_READBACK: u64 = 4 << 20;
const READBACK_BLOCK: u64 = 16 << 20;
/// Most bytes of readback blocks, in use and idle.
const MOST_READBACK: u64 = 4 << 30;

/// How every buffer may be used.
pub fn usage(device_address: bool) -> vk::BufferUsageFlags {
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST;
    if device_address {
        return usage | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
    }
    usage
}

/// The capacity that a buffer of `bytes` bytes gets.
pub fn capacity(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRAIN).unwrap_or(bytes)
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
    /// For everything but parts of arenas and readback memory.
    allocator: Mutex<Allocator>,
    /// For readback memory, which another thread makes ahead: the driver may be at it for long.
    readback: Mutex<Allocator>,
    /// Bytes of its blocks, known without waiting for that.
    readback_bytes: AtomicU64,
    arenas: Mutex<Arenas>,
    /// The thread that gives arenas their memory.
    backing: Arc<Background>,
    parts: bool,
    /// Test switch: bytes beyond which the device is taken to have no more memory.
    limit: Option<u64>,
    /// Bytes and count of shared memory.
    shared: Mutex<(u64, u64)>,
    pub device: Arc<Device>,
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
    /// `parts`: whether device buffers are parts of arenas. Under validation they are not, so that
    /// messages name the buffer and accesses past its end are seen.
    pub fn new(device: Arc<Device>, parts: bool) -> Result<Self> {
        let allocator = |min_block, max_block| {
            allocator(&device, min_block, max_block)
                .map_err(|e| Error::Internal(format!("gpu-allocator: {e}")))
        };
        let arenas = Arenas::new(&device, flag("HELIOS_TEST_STAGED"))?;
        Ok(Self {
            backing: Arc::clone(arenas.backing()),
            allocator: Mutex::new(allocator(MIN_BLOCK, MAX_BLOCK)?),
            readback: Mutex::new(allocator(READBACK_BLOCK, READBACK_BLOCK)?),
            readback_bytes: AtomicU64::new(0),
            arenas: Mutex::new(arenas),
            limit: std::env::var("HELIOS_TEST_MEMORY_LIMIT")
                .ok()
                .and_then(|bytes| bytes.parse().ok()),
            shared: Mutex::default(),
            parts,
            device,
        })
    }

    /// Creates a buffer of `capacity` bytes with memory of its kind.
    pub fn create(&self, capacity: u64, kind: Kind) -> Result<Resource> {
        if let Some(limit) = self.limit
            && self.usage().allocated_bytes + capacity > limit
        {
            return Err(map_allocation(AllocationError::OutOfMemory, kind, capacity));
        }
        if self.in_arena(capacity, kind) {
            let part = self.arenas.lock().take(capacity)?;
            return Ok(Resource::part(part, capacity));
        }
        let device = &self.device;
        let info = vk::BufferCreateInfo::default()
            .size(capacity)
            .usage(usage(device.plan.device_address));
        // SAFETY: the device is live and the description valid.
        let raw = unsafe { device.raw.create_buffer(&info, None) }.map_err(|e| {
            device.observe(error::create("vkCreateBuffer", kind.name(), capacity)(e))
        })?;
        // SAFETY: `raw` was created above.
        let mut requirements = unsafe { device.raw.get_buffer_memory_requirements(raw) };
        let wanted = match kind {
            Kind::Device | Kind::Shared => device.plan.device_memory,
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
            allocation_scheme: match self.dedicated(capacity, kind) {
                true => AllocationScheme::DedicatedBuffer(raw),
                false => AllocationScheme::GpuAllocatorManaged,
            },
        };
        let allocated = {
            let mut allocator = self.allocator(kind).lock();
            let before = allocator.capacity();
            let allocation = allocator.allocate(&desc);
            let alone = allocator.capacity() - before == desc.requirements.size;
            self.note_readback(kind, &allocator);
            allocation.map(|allocation| (allocation, alone))
        };
        let (allocation, alone) = match allocated {
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
            offset: 0,
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
            part: None,
            shared: None,
        };
        match kind {
            Kind::Upload | Kind::Readback => device.staging.insert(raw),
            Kind::Device | Kind::Visible | Kind::Shared => self.arenas.lock().others_took(),
        }
        if let Err(e) = bound {
            self.destroy(resource);
            return Err(device.observe(
                error::create("vkBindBufferMemory", kind.name(), capacity)(e),
            ));
        }
        Ok(resource)
    }

    /// As [`Self::create`], if there is room in what the driver has given already.
    pub fn create_in_room(&self, capacity: u64, kind: Kind) -> Option<Resource> {
        // A test's limit is checked where it is the driver's turn.
        if self.limit.is_some() || !self.in_arena(capacity, kind) {
            return None;
        }
        let part = self.arenas.lock().take_room(capacity)?;
        Some(Resource::part(part, capacity))
    }

    /// Whether a buffer is a part of an arena.
    fn in_arena(&self, capacity: u64, kind: Kind) -> bool {
        let fits = capacity <= MAX_PART || self.dedicated(capacity, kind);
        self.parts && kind == Kind::Device && fits && capacity.is_multiple_of(GRAIN)
    }

    /// Whether a buffer gets no more memory than it needs: a large one, unless as many of them as
    /// there may be took more allocations than a third of what the driver allows.
    fn dedicated(&self, capacity: u64, kind: Kind) -> bool {
        let most = u64::from(self.device.snapshot.limits.max_memory_allocation_count) / 3;
        match kind {
            Kind::Device => {
                capacity > MAX_PART && self.device.device_local_bytes() / capacity < most
            }
            Kind::Readback => capacity >= LARGE_READBACK && MOST_READBACK / capacity < most,
            _ => false,
        }
    }

    /// Gives the memory back, to its arena or to the driver. The device must have finished with it.
    pub fn destroy(&self, resource: Resource) {
        if let Some(part) = resource.part {
            self.arenas.lock().give_back(&part);
            return;
        }
        if matches!(resource.kind, Kind::Upload | Kind::Readback) {
            self.device.staging.remove(resource.raw);
        }
        // SAFETY: the caller's promise above; the handle dies with `resource`.
        unsafe { self.device.raw.destroy_buffer(resource.raw, None) };
        if let Some(block) = resource.shared {
            self.free_shared(block);
            return;
        }
        let mut allocator = self.allocator(resource.kind).lock();
        // Fails only for an allocation of another allocator.
        let freed = allocator.free(resource.allocation);
        debug_assert!(freed.is_ok());
        self.note_readback(resource.kind, &allocator);
    }

    fn allocator(&self, kind: Kind) -> &Mutex<Allocator> {
        match kind {
            Kind::Readback => &self.readback,
            _ => &self.allocator,
        }
    }

    /// Remembers what readback memory takes, if `allocator` is the one of it.
    fn note_readback(&self, kind: Kind, allocator: &Allocator) {
        if kind == Kind::Readback {
            self.readback_bytes
                .store(allocator.capacity(), Ordering::Relaxed);
        }
    }

    /// The thread that gives buffers their memory: commands that name any are recorded behind it.
    pub fn backing(&self) -> &Arc<Background> {
        &self.backing
    }

    /// Returns once every buffer has its memory, or fails if one cannot have any.
    pub fn settle(&self) -> Result<()> {
        self.backing.wait()?;
        self.device.check_alive()
    }

    /// Whether a buffer of `bytes` bytes is likely to fit what the driver has given already.
    pub fn has_room(&self, bytes: u64, kind: Kind) -> bool {
        self.in_arena(bytes, kind) && self.arenas.lock().has_room(bytes)
    }

    /// Whether memory for a buffer that finds no room would be more than there ever was.
    pub fn grows(&self, bytes: u64, kind: Kind) -> bool {
        !self.in_arena(bytes, kind) || self.arenas.lock().grows(bytes)
    }

    /// Whether a buffer that finds no room may get its place later; `others`: bytes that wait for theirs.
    pub fn may_wait(&self, bytes: u64, kind: Kind, others: u64) -> bool {
        // A test's limit is that of the call that meets it.
        self.limit.is_none()
            && self.in_arena(bytes, kind)
            && self.arenas.lock().may_wait(bytes, others)
    }

    /// See [`Arenas::pretend`].
    #[cfg(test)]
    pub fn pretend(&self, left: u64, largest: u64) {
        self.arenas.lock().pretend(left, largest);
    }

    /// Gives back what was taken from the driver and is not in use.
    pub fn trim(&self) {
        self.arenas.lock().trim();
    }

    /// Bytes of all memory taken from the driver, but for an arena being made.
    pub fn block_bytes(&self) -> u64 {
        self.allocator.lock().capacity()
            + self.readback_bytes.load(Ordering::Relaxed)
            + self.arenas.lock().bytes()
            + self.shared.lock().0
    }

    /// Accounts shared memory that came or went.
    pub(crate) fn note_shared(&self, bytes: u64, came: bool) {
        let mut shared = self.shared.lock();
        *shared = match came {
            true => (shared.0 + bytes, shared.1 + 1),
            false => (shared.0 - bytes, shared.1 - 1),
        };
    }

    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for allocator in [&self.allocator, &self.readback] {
            let report = allocator.lock().generate_report();
            usage.block_bytes += report.total_capacity_bytes;
            usage.blocks += report.blocks.len() as u64;
            usage.allocated_bytes += report.total_allocated_bytes;
        }
        let arenas = self.arenas.lock();
        let (count, used) = arenas.used();
        let (shared_bytes, shared) = *self.shared.lock();
        usage.block_bytes += arenas.bytes() + shared_bytes;
        usage.blocks += count + shared;
        usage.allocated_bytes += used + shared_bytes;
        usage
    }
}

pub fn map_allocation(e: AllocationError, kind: Kind, bytes: u64) -> Error {
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
        AllocationError::FailedToMap(text) => map_mapping(&text, kind, bytes),
        other => Error::Internal(format!("gpu-allocator: {other}")),
    }
}

/// gpu-allocator passes the results of vkMapMemory on as the text that `ash` has for them.
fn map_mapping(text: &str, kind: Kind, bytes: u64) -> Error {
    let result = [
        vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        vk::Result::ERROR_MEMORY_MAP_FAILED,
    ]
    .into_iter()
    .find(|result| result.to_string() == text);
    match result {
        Some(result) => error::create("vkMapMemory", kind.name(), bytes)(result),
        None => Error::Internal(format!("mapping the memory of a {}: {text}", kind.name())),
    }
}

/// Rounds the size of a staging block up: steps of 256 bytes up to 2 KiB, then eight steps an octave,
/// so at most an eighth is unused.
pub fn size_class(bytes: u64) -> u64 {
    let last = bytes.max(GRAIN) - 1;
    let octave = 63 - last.leading_zeros();
    let shift = (octave.saturating_sub(3)).max(8);
    ((last >> shift) + 1) << shift
}

/// Resources of one capacity with the time they came in, oldest first.
type Bin = VecDeque<(u64, Arc<Resource>)>;

/// Empty bins are kept for their memory while there are at most so many.
const MOST_BINS: usize = 256;

/// Parts that are given back at most to make room for one.
const MOST_EVICTED: usize = 32;
/// The shelf of parts of arenas.
const PARTS: usize = 0;

/// Resources of another origin are given back where so many times the bytes asked for lie idle.
const OTHERS: u64 = 2;

/// Unused resources of one origin by capacity.
#[derive(Default)]
struct Shelf {
    bins: BTreeMap<u64, Bin>,
    bytes: u64,
}

/// Unused resources by origin and capacity, within a bound on their bytes.
pub struct Recycler {
    /// Parts of arenas, large device buffers, host-visible ones: what is given back of one makes room
    /// for another by way of the driver alone.
    shelves: [Shelf; 3],
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
        Self {
            shelves: Default::default(),
            bytes: 0,
            limit,
            count: 0,
            clock: 0,
            reuses: 0,
            evictions: 0,
        }
    }

    fn shelf(capacity: u64, kind: Kind) -> usize {
        match kind {
            Kind::Visible => 2,
            _ => usize::from(capacity > MAX_PART),
        }
    }

    /// A resource of `capacity` bytes, or else of at most an eighth more; the most recently used first.
    #[inline]
    pub fn take(&mut self, capacity: u64, kind: Kind) -> Option<Arc<Resource>> {
        let shelf = &mut self.shelves[Self::shelf(capacity, kind)];
        let bins = &mut shelf.bins;
        let fitting = bins.range_mut(capacity..=capacity.saturating_add(capacity / 8));
        let mut resource = None;
        let mut emptied = None;
        for (&size, bin) in fitting {
            if let Some((_, found)) = bin.pop_back() {
                emptied = bin.is_empty().then_some(size);
                resource = Some(found);
                break;
            }
        }
        let resource = resource?;
        if let Some(size) = emptied
            && bins.len() > MOST_BINS
        {
            bins.remove(&size);
        }
        shelf.bytes -= resource.capacity;
        self.bytes -= resource.capacity;
        self.count -= 1;
        self.reuses += 1;
        Some(resource)
    }

    /// Keeps a resource that the device has finished with; what goes over the bound is given back,
    /// oldest first.
    pub fn put(&mut self, memory: &Memory, resource: Arc<Resource>) {
        if !matches!(resource.kind, Kind::Device | Kind::Visible) {
            // Shared memory, or staging of a graph that was destroyed.
            if let Some(resource) = Arc::into_inner(resource) {
                memory.destroy(resource);
            }
            return;
        }
        self.clock += 1;
        self.bytes += resource.capacity;
        self.count += 1;
        let shelf = &mut self.shelves[Self::shelf(resource.capacity, resource.kind)];
        shelf.bytes += resource.capacity;
        let bin = shelf.bins.entry(resource.capacity).or_default();
        bin.push_back((self.clock, resource));
        while self.bytes > self.limit {
            if !self.evict_oldest(memory, None) {
                break;
            }
        }
    }

    /// Gives the oldest back, of one shelf or of all; whether there was any.
    fn evict_oldest(&mut self, memory: &Memory, only: Option<usize>) -> bool {
        let oldest = self
            .shelves
            .iter()
            .enumerate()
            .filter(|&(at, _)| only.is_none_or(|only| only == at))
            .flat_map(|(at, shelf)| shelf.bins.iter().map(move |(&size, bin)| (at, size, bin)))
            .filter(|(_, _, bin)| !bin.is_empty())
            .min_by_key(|(_, _, bin)| bin.front().map_or(u64::MAX, |(stamp, _)| *stamp));
        let Some((at, capacity, _)) = oldest else {
            return false;
        };
        self.evict(memory, at, capacity);
        true
    }

    /// Makes room for a resource of `capacity` bytes, if arenas would have to be more than they ever were:
    /// else what is idle is kept, since programs go round and the driver takes as long as for a new arena.
    /// For a part of an arena: returns the smallest part that it fits, or else the largest of all until it
    /// fits. If that is not enough, or for another kind, returns at least `bytes` bytes of the same origin,
    /// oldest first, if there are as many; else of any, if there is much more. Ends as soon as there is
    /// room for an arena.
    pub fn make_room(&mut self, memory: &Memory, capacity: u64, kind: Kind, bytes: u64) {
        if !memory.grows(capacity, kind) {
            return;
        }
        let shelf = Self::shelf(capacity, kind);
        if shelf == PARTS && self.make_part_room(memory, capacity) {
            return;
        }
        let only = match self.shelves[shelf].bytes >= bytes {
            true => Some(shelf),
            // Asks the driver, so not for the few that a program is about to use again.
            false if self.bytes >= OTHERS * bytes => None,
            false => return,
        };
        let end = self.bytes - bytes;
        while self.bytes > end && memory.grows(capacity, kind) && self.evict_oldest(memory, only) {}
    }

    /// Returns idle parts to their arenas until another of `capacity` bytes fits, or an arena for it is no
    /// more than there was; whether that is so.
    fn make_part_room(&mut self, memory: &Memory, capacity: u64) -> bool {
        if !memory.parts || self.shelves[PARTS].bytes < capacity {
            return false;
        }
        for _ in 0..MOST_EVICTED {
            let bins = &self.shelves[PARTS].bins;
            let idle = |(&size, bin): (&u64, &Bin)| (!bin.is_empty()).then_some(size);
            let fitting = bins.range(capacity..).find_map(idle);
            let Some(size) = fitting.or_else(|| bins.iter().rev().find_map(idle)) else {
                break;
            };
            self.evict(memory, PARTS, size);
            if memory.has_room(capacity, Kind::Device) || !memory.grows(capacity, Kind::Device) {
                return true;
            }
        }
        false
    }

    /// Gives the oldest of one capacity back.
    fn evict(&mut self, memory: &Memory, shelf: usize, capacity: u64) {
        let bin = self.shelves[shelf].bins.get_mut(&capacity);
        let Some((_, resource)) = bin.and_then(VecDeque::pop_front) else {
            return;
        };
        self.shelves[shelf].bytes -= capacity;
        self.bytes -= capacity;
        self.count -= 1;
        self.evictions += 1;
        if let Some(resource) = Arc::into_inner(resource) {
            memory.destroy(resource);
        }
    }

    /// Returns everything to the driver; whether there was anything.
    pub fn clear(&mut self, memory: &Memory) -> bool {
        let had = self.count > 0;
        while self.evict_oldest(memory, None) {}
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
        let mut last = 0;
        let mut sizes: Vec<u64> = (0..20_000).collect();
        sizes.extend((14..40).flat_map(|o| {
            (0..64).flat_map(move |i| {
                let at = (1u64 << o) + i * (1 << (o - 6));
                [at - 1, at, at + 1]
            })
        }));
        sizes.sort_unstable();
        for bytes in sizes {
            let capacity = size_class(bytes);
            assert!(capacity >= bytes && capacity >= GRAIN && capacity.is_multiple_of(GRAIN));
            assert!(
                capacity <= (bytes + GRAIN - 1).max(GRAIN) || capacity - bytes <= bytes / 8 + 1,
                "{bytes} -> {capacity}"
            );
            assert!(capacity >= last, "not monotonic");
            // What is recycled is found again.
            assert_eq!(size_class(capacity), capacity);
            last = capacity;
        }
    }

    #[test]
    fn powers_of_two_waste_nothing() {
        for octave in 8..40 {
            assert_eq!(size_class(1 << octave), 1 << octave);
        }
        assert_eq!(size_class(12_582_912), 12_582_912);
    }

    #[test]
    fn capacities_are_the_sizes_but_for_the_grain() {
        for bytes in [1, 255, 256, 257, 4096, 4_750_000, MAX_PART, MAX_PART + 1] {
            let rounded = capacity(bytes);
            assert!(rounded >= bytes && rounded.is_multiple_of(GRAIN));
            assert_eq!(capacity(rounded), rounded);
            assert!(rounded - bytes < GRAIN);
        }
    }

    fn memory() -> Memory {
        let settings = crate::device::Settings::from_env();
        let device = Device::new(&settings).expect("tests need a Vulkan device");
        Memory::new(Arc::new(device), true).expect("memory")
    }

    #[test]
    fn parts_never_overlap_and_go_back_to_the_driver() {
        let memory = memory();
        let mut live: Vec<Resource> = Vec::new();
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..2000 {
            if random(3) == 0 && !live.is_empty() {
                let at = random(live.len() as u64) as usize;
                memory.destroy(live.swap_remove(at));
            } else {
                let most = 1 << (8 + random(15));
                let bytes = capacity(1 + random(most));
                live.push(memory.create(bytes, Kind::Device).expect("room"));
            }
        }
        let mut ranges: Vec<_> = live.iter().map(|r| (r.raw, r.offset, r.capacity)).collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let [(raw, offset, bytes), (next_raw, next, _)] = [pair[0], pair[1]];
            assert!(raw != next_raw || offset + bytes <= next);
        }
        assert!(
            ranges
                .iter()
                .all(|(_, offset, _)| offset.is_multiple_of(GRAIN))
        );
        assert!(memory.block_bytes() > 0);
        live.into_iter().for_each(|r| memory.destroy(r));
        memory.trim();
        assert_eq!(memory.usage().allocated_bytes, 0);
        assert_eq!(memory.block_bytes(), 0);
    }

    #[test]
    fn recycling_takes_the_exact_size_first_and_never_a_much_larger_one() {
        let memory = memory();
        let mut recycler = Recycler::new(1 << 30);
        for bytes in [4096, 4352, 8192] {
            let resource = memory.create(bytes, Kind::Device).expect("room");
            recycler.put(&memory, Arc::new(resource));
        }
        let mut take = |bytes| recycler.take(bytes, Kind::Device).map(|r| r.capacity);
        assert_eq!(take(4352), Some(4352));
        assert_eq!(take(3840), Some(4096));
        assert_eq!(take(4352), None);
        assert_eq!(take(8192), Some(8192));
        assert_eq!((recycler.count(), recycler.bytes()), (0, 0));
    }

    #[test]
    fn room_is_made_by_what_has_the_same_origin() {
        let memory = memory();
        let mut recycler = Recycler::new(1 << 30);
        let large = capacity(MAX_PART + 1);
        for (bytes, kind) in [
            (large, Kind::Device),
            (4096, Kind::Visible),
            (1 << 20, Kind::Device),
            (2 << 20, Kind::Device),
        ] {
            let resource = memory.create(bytes, kind).expect("room");
            recycler.put(&memory, Arc::new(resource));
        }
        // Less than is needed lies idle, and of another origin not much more: all of it stays.
        recycler.make_room(&memory, 4 << 20, Kind::Device, 20 << 20);
        assert_eq!(recycler.count(), 4);
        // The smallest part that fits.
        recycler.make_room(&memory, 4096, Kind::Device, 10 << 20);
        assert!(recycler.take(1 << 20, Kind::Device).is_none());
        recycler.make_room(&memory, 4096, Kind::Device, 10 << 20);
        assert_eq!((recycler.count(), recycler.bytes()), (2, large + 4096));
        recycler.make_room(&memory, 4096, Kind::Device, 2 << 20);
        assert_eq!((recycler.count(), recycler.bytes()), (1, 4096));
        recycler.make_room(&memory, 4096, Kind::Visible, 4096);
        assert_eq!((recycler.count(), recycler.bytes()), (0, 0));
    }

    #[test]
    fn what_is_idle_is_kept_while_there_was_more_memory_before() {
        let memory = memory();
        let mut recycler = Recycler::new(1 << 30);
        let create = |bytes| memory.create(bytes, Kind::Device).expect("memory");
        let [idle, large] = [MAX_PART, MAX_PART + (2 << 20)].map(create);
        memory.destroy(large);
        recycler.put(&memory, Arc::new(idle));
        recycler.make_room(&memory, MAX_PART, Kind::Device, 1);
        assert_eq!(recycler.count(), 1, "there was an arena more");
        memory.trim();
        recycler.make_room(&memory, MAX_PART, Kind::Device, 1);
        assert_eq!(recycler.count(), 0, "nothing is left of it");
        assert!(memory.has_room(MAX_PART, Kind::Device));
    }

    #[test]
    fn idle_parts_make_room_before_the_driver_is_asked() {
        let memory = memory();
        let mut recycler = Recycler::new(1 << 30);
        let part = MAX_PART / 12;
        let create = || memory.create(part, Kind::Device).expect("room");
        let mut live: Vec<Resource> = (0..12).map(|_| create()).collect();
        assert_eq!(memory.block_bytes(), MAX_PART, "one arena, and it is full");
        live.sort_unstable_by_key(|part| part.offset);
        for resource in live.drain(4..8) {
            recycler.put(&memory, Arc::new(resource));
        }
        assert!(!memory.has_room(3 * part, Kind::Device));
        recycler.make_room(&memory, 3 * part, Kind::Device, 1 << 30);
        assert!(memory.has_room(3 * part, Kind::Device));
        assert!(recycler.count() <= 1);
        live.push(memory.create(3 * part, Kind::Device).expect("room"));
        assert_eq!(memory.block_bytes(), MAX_PART);
        live.into_iter().for_each(|r| memory.destroy(r));
        recycler.clear(&memory);
    }

    #[test]
    fn large_device_buffers_take_no_more_than_they_need() {
        let memory = memory();
        let wanted = capacity(MAX_PART + (12 << 20));
        let live: Vec<Resource> = (0..4)
            .map(|_| memory.create(wanted, Kind::Device).expect("room"))
            .collect();
        assert!(live.iter().all(|resource| resource.alone));
        assert_eq!(memory.block_bytes(), 4 * wanted);
        live.into_iter().for_each(|r| memory.destroy(r));
        assert_eq!(memory.block_bytes(), 0);
    }
}

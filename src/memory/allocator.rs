//! Device memory: buffers are parts ([`memory_policy`]) of blocks from the driver ([`blocks`]).
//!
//! A [`Resource`] is a buffer with its memory. Empty blocks are kept, since a training loop soon needs them again. They
//! are returned to the driver when the device's budget is nearly used up, when they exceed the memory in use and yet
//! another block is needed, and before an allocation fails.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ash::vk;
use memory_policy::{ALIGNMENT, Policy, Range};
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::blocks::{self, Block, SharedBlock};
use crate::memory::kind::Kind;

/// The kinds whose buffers are parts of blocks.
const POOLED: [Kind; 4] = [Kind::Device, Kind::Visible, Kind::Upload, Kind::Readback];

/// Where a resource's memory comes from.
enum Origin {
    Part(Range),
    /// A block of its own.
    Alone(Block),
    Shared(SharedBlock),
}

/// A buffer with its memory. Freed only by [`Memory::destroy`], which consumes it.
pub struct Resource {
    pub raw: vk::Buffer,
    /// Where it starts in `raw`.
    pub offset: u64,
    /// Device address of the first byte of `raw`; 0 without device addresses.
    pub address: u64,
    /// Usable bytes.
    pub capacity: u64,
    pub kind: Kind,
    /// Its host address, if its memory type is host-visible.
    pub mapped: Option<NonNull<u8>>,
    /// Whether host reads are cached, hence fast.
    pub cached: bool,
    /// Whether it has a block to itself.
    pub alone: bool,
    origin: Origin,
}

// SAFETY: what is not `Send` by itself is the mapped pointer, into memory that stays mapped until the resource is
// destroyed, which takes it by value. Those of buffers and of the upload ring are used in calls that hold the
// context's lock; that of a readback block by the one owner of its lease, on whatever thread that is.
unsafe impl Send for Resource {}
// SAFETY: as above. Nothing of a resource changes, and what its pointer leads to is not reached through `&Resource`
// without the lock or the lease.
unsafe impl Sync for Resource {}

impl Resource {
    /// Whether no other resource ever uses this `VkBuffer`.
    pub fn owns_buffer(&self) -> bool {
        !matches!(self.origin, Origin::Part(_))
    }

    /// A buffer that is bound to shared memory.
    pub(crate) fn of_shared(
        raw: vk::Buffer,
        address: u64,
        capacity: u64,
        block: SharedBlock,
    ) -> Self {
        Self {
            raw,
            offset: 0,
            address,
            capacity,
            kind: Kind::Shared,
            mapped: None,
            cached: false,
            alone: true,
            origin: Origin::Shared(block),
        }
    }

    /// Its shared memory, if it has any.
    pub(crate) fn shared(&self) -> Option<&SharedBlock> {
        match &self.origin {
            Origin::Shared(block) => Some(block),
            _ => None,
        }
    }
}

/// The capacity of a buffer of `bytes` bytes.
pub fn capacity(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(bytes)
}

/// The blocks of one kind.
struct Pool {
    kind: Kind,
    policy: Policy,
    /// Indexed by the policy's block numbers.
    blocks: Vec<Option<Block>>,
}

impl Pool {
    fn new(kind: Kind, limit: u64) -> Self {
        Self {
            kind,
            policy: Policy::new(kind.growth(), limit),
            blocks: Vec::new(),
        }
    }

    /// Allocates a buffer of `bytes` bytes from the existing blocks.
    fn take(&mut self, bytes: u64) -> Option<Resource> {
        let range = self.policy.take(bytes)?;
        let block = self.blocks.get(range.block as usize)?.as_ref()?;
        // SAFETY: the range lies inside the mapped block.
        let at = |base: NonNull<u8>| unsafe { base.add(range.offset as usize) };
        Some(Resource {
            raw: block.raw,
            offset: range.offset,
            address: block.address,
            capacity: bytes,
            kind: self.kind,
            mapped: block.mapped.map(at),
            cached: block.cached,
            alone: self.policy.is_whole(&range),
            origin: Origin::Part(range),
        })
    }

    fn add(&mut self, block: Block) {
        let number = self.policy.add(block.bytes) as usize;
        if number == self.blocks.len() {
            self.blocks.push(None);
        }
        self.blocks[number] = Some(block);
    }

    /// Removes and returns the idle blocks.
    fn remove_idle(&mut self) -> Vec<Block> {
        let idle = self.policy.remove_idle().into_iter();
        idle.filter_map(|number| self.blocks[number as usize].take())
            .collect()
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

/// Counted outside the pools' locks, since a thread that holds one may be waiting for the driver.
#[derive(Default)]
struct Counters {
    block_bytes: AtomicU64,
    blocks: AtomicU64,
    allocated_bytes: AtomicU64,
    /// Buffers that needed no driver call.
    reuses: AtomicU64,
    /// Blocks returned to the driver.
    returned: AtomicU64,
}

/// All device memory. Shared with whatever may outlive the context, such as read results that JS still holds.
pub struct Memory {
    pools: [Mutex<Pool>; POOLED.len()],
    counters: Counters,
    /// Whether every buffer has a block of its own: under validation, so that messages name the buffer and show
    /// accesses past its end.
    alone: bool,
    /// Test switch: bytes of blocks beyond which the device counts as out of memory.
    limit: Option<u64>,
    pub device: Arc<Device>,
}

impl Memory {
    pub fn new(device: Arc<Device>, alone: bool) -> Self {
        let largest = device.largest_buffer();
        Self {
            pools: POOLED.map(|kind| Mutex::new(Pool::new(kind, largest))),
            counters: Counters::default(),
            alone,
            limit: device.config.test_memory_limit,
            device,
        }
    }

    fn pool(&self, kind: Kind) -> &Mutex<Pool> {
        &self.pools[POOLED.iter().position(|&k| k == kind).unwrap_or(0)]
    }

    /// A buffer of `capacity` bytes in an existing block.
    pub fn take(&self, capacity: u64, kind: Kind) -> Option<Resource> {
        let resource = self.pool(kind).lock().take(capacity)?;
        self.counters.reuses.fetch_add(1, Relaxed);
        self.counters.allocated_bytes.fetch_add(capacity, Relaxed);
        Some(resource)
    }

    /// As [`Self::take`], or else from a new block. Returns all idle blocks to the driver before it fails for lack of
    /// memory.
    pub fn create(&self, capacity: u64, kind: Kind) -> Result<Resource> {
        self.create_in(capacity, kind, self.alone)
    }

    /// As [`Self::create`], in a block of its own, which goes back to the driver with it.
    pub fn create_alone(&self, capacity: u64, kind: Kind) -> Result<Resource> {
        self.create_in(capacity, kind, true)
    }

    fn create_in(&self, capacity: u64, kind: Kind, alone: bool) -> Result<Resource> {
        let created = match self.try_create(capacity, kind, alone) {
            Err(Error::OutOfMemory { .. }) if self.trim() => self.try_create(capacity, kind, alone),
            other => other,
        };
        created.map_err(|error| match error {
            // The error names the buffer's bytes, not the block's.
            Error::OutOfMemory {
                what, space, hint, ..
            } => Error::OutOfMemory {
                what,
                bytes: capacity,
                space,
                hint,
            },
            other => other,
        })
    }

    fn try_create(&self, capacity: u64, kind: Kind, alone: bool) -> Result<Resource> {
        if alone {
            let block = self.block(capacity, kind)?;
            self.counters.allocated_bytes.fetch_add(capacity, Relaxed);
            return Ok(Resource {
                raw: block.raw,
                offset: 0,
                address: block.address,
                capacity,
                kind,
                mapped: block.mapped,
                cached: block.cached,
                alone: true,
                origin: Origin::Alone(block),
            });
        }
        if let Some(resource) = self.take(capacity, kind) {
            return Ok(resource);
        }
        let mut pool = self.pool(kind).lock();
        let [usual, smallest] = [
            pool.policy.next_block(capacity),
            pool.policy.smallest_block(capacity),
        ];
        let (used, budget) = self.heap(kind);
        if pool.policy.wants_trim(usual, used, budget) {
            self.give_back(pool.remove_idle(), kind);
        }
        let block = match self.block(usual, kind) {
            // A block of the usual size may not fit where this buffer alone does.
            Err(Error::OutOfMemory { .. }) if smallest < usual => self.block(smallest, kind),
            other => other,
        }?;
        pool.add(block);
        let resource = pool.take(capacity);
        self.counters.allocated_bytes.fetch_add(capacity, Relaxed);
        resource.ok_or_else(|| Error::Internal("a new block has no room".to_owned()))
    }

    /// A new block.
    fn block(&self, bytes: u64, kind: Kind) -> Result<Block> {
        if self
            .limit
            .is_some_and(|limit| self.block_bytes() + bytes > limit)
        {
            return Err(blocks::out_of_memory(kind, bytes));
        }
        let block = Block::new(&self.device, bytes, kind)?;
        self.counters.block_bytes.fetch_add(bytes, Relaxed);
        self.counters.blocks.fetch_add(1, Relaxed);
        if kind.is_staging() {
            self.device.staging.insert(block.raw);
        }
        Ok(block)
    }

    fn give_back(&self, blocks: impl IntoIterator<Item = Block>, kind: Kind) {
        for block in blocks {
            self.counters.block_bytes.fetch_sub(block.bytes, Relaxed);
            self.counters.blocks.fetch_sub(1, Relaxed);
            self.counters.returned.fetch_add(1, Relaxed);
            if kind.is_staging() {
                self.device.staging.remove(block.raw);
            }
            block.destroy(&self.device);
        }
    }

    /// Returns the memory to its block or to the driver. The device must have finished with it.
    pub fn destroy(&self, resource: Resource) {
        if let Origin::Shared(block) = resource.origin {
            // SAFETY: the caller's promise above; the handle dies with `resource`.
            unsafe { self.device.raw.destroy_buffer(resource.raw, None) };
            self.free_shared(block);
            return;
        }
        let Resource { capacity, kind, .. } = resource;
        self.counters.allocated_bytes.fetch_sub(capacity, Relaxed);
        match resource.origin {
            Origin::Part(range) => self.pool(kind).lock().policy.give_back(range),
            Origin::Alone(block) => self.give_back([block], kind),
            Origin::Shared(_) => {}
        }
    }

    /// Returns idle blocks to the driver; whether there were any.
    pub fn trim(&self) -> bool {
        let mut any = false;
        for pool in &self.pools {
            let mut pool = pool.lock();
            let idle = pool.remove_idle();
            any |= !idle.is_empty();
            self.give_back(idle, pool.kind);
        }
        any
    }

    /// Bytes of the kind's heap that are in use, and the budget: as the driver reports them, or else our own count.
    fn heap(&self, kind: Kind) -> (u64, u64) {
        let snapshot = &self.device.snapshot;
        let memory_type = kind.memory_type(&self.device) as usize;
        let heap = snapshot.memory_types[memory_type].heap as usize;
        match self.device.budget() {
            Some(heaps) => heaps[heap],
            None => (self.block_bytes(), snapshot.memory_heaps[heap].size),
        }
    }

    /// Bytes of all memory taken from the driver.
    pub fn block_bytes(&self) -> u64 {
        self.counters.block_bytes.load(Relaxed)
    }

    /// Accounts for shared memory that was added or released.
    pub(crate) fn note_shared(&self, bytes: u64, came: bool) {
        let Counters {
            block_bytes,
            blocks,
            allocated_bytes,
            ..
        } = &self.counters;
        for (counter, by) in [(block_bytes, bytes), (blocks, 1), (allocated_bytes, bytes)] {
            match came {
                true => counter.fetch_add(by, Relaxed),
                false => counter.fetch_sub(by, Relaxed),
            };
        }
    }

    pub fn usage(&self) -> Usage {
        Usage {
            block_bytes: self.block_bytes(),
            blocks: self.counters.blocks.load(Relaxed),
            allocated_bytes: self.counters.allocated_bytes.load(Relaxed),
        }
    }

    /// Free ranges for buffers, and their bytes.
    pub fn free(&self) -> (u64, u64) {
        let pools = [Kind::Device, Kind::Visible].map(|kind| self.pool(kind));
        pools.iter().fold((0, 0), |(ranges, bytes), pool| {
            let policy = &pool.lock().policy;
            let free = policy.bytes() - policy.in_use();
            (ranges + policy.free_ranges() as u64, bytes + free)
        })
    }

    /// Buffers that needed no driver call, and blocks returned to the driver.
    pub fn reuses(&self) -> (u64, u64) {
        let Counters {
            reuses, returned, ..
        } = &self.counters;
        (reuses.load(Relaxed), returned.load(Relaxed))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for pool in &mut self.pools {
            for block in pool.get_mut().blocks.drain(..).flatten() {
                block.destroy(&self.device);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory_policy::size_class;

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
            assert!(capacity >= bytes && capacity >= ALIGNMENT);
            assert!(capacity.is_multiple_of(ALIGNMENT));
            assert!(
                capacity <= (bytes + ALIGNMENT - 1).max(ALIGNMENT)
                    || capacity - bytes <= bytes / 8 + 1,
                "{bytes} -> {capacity}"
            );
            assert!(capacity >= last, "not monotonic");
            // What is recycled is found again.
            assert_eq!(size_class(capacity), capacity);
            last = capacity;
        }
        for octave in 8..40 {
            assert_eq!(size_class(1 << octave), 1 << octave);
        }
        assert_eq!(size_class(12_582_912), 12_582_912);
    }

    #[test]
    fn capacities_are_the_sizes_but_for_the_alignment() {
        for bytes in [1, 255, 256, 257, 4096, 4_750_000, 1 << 30] {
            let rounded = capacity(bytes);
            assert!(rounded >= bytes && rounded.is_multiple_of(ALIGNMENT));
            assert_eq!(capacity(rounded), rounded);
            assert!(rounded - bytes < ALIGNMENT);
        }
    }

    fn memory(alone: bool) -> Memory {
        let config = crate::config::Config::from_env(true).expect("the environment");
        let device = Device::new(&config).expect("tests need a Vulkan device");
        Memory::new(Arc::new(device), alone)
    }

    #[test]
    fn buffers_have_blocks_of_their_kind_or_of_their_own_and_go_back() {
        for alone in [false, true] {
            let memory = memory(alone);
            let mut live = Vec::new();
            for kind in POOLED {
                for bytes in [ALIGNMENT, 4096, 1 << 20, 40 << 20] {
                    let resource = memory.create(bytes, kind).expect("memory");
                    assert!((resource.capacity, resource.kind) == (bytes, kind));
                    assert_eq!(resource.owns_buffer(), alone);
                    if let Some(mapped) = resource.mapped {
                        // SAFETY: the bytes are this resource's.
                        unsafe { mapped.write_bytes(kind as u8 + 1, bytes as usize) };
                    }
                    live.push(resource);
                }
            }
            let allocated: u64 = live.iter().map(|r| r.capacity).sum();
            let usage = memory.usage();
            assert_eq!(usage.allocated_bytes, allocated);
            assert!(usage.block_bytes >= allocated);
            assert_eq!(usage.blocks == live.len() as u64, alone);
            let mut ranges: Vec<_> = live.iter().map(|r| (r.raw, r.offset, r.capacity)).collect();
            ranges.sort_unstable();
            for pair in ranges.windows(2) {
                let [(raw, offset, bytes), (next_raw, next, _)] = [pair[0], pair[1]];
                assert!(raw != next_raw || offset + bytes <= next);
            }
            for resource in live {
                if let Some(mapped) = resource.mapped {
                    let bytes = resource.capacity as usize;
                    // SAFETY: as above.
                    let seen = unsafe { std::slice::from_raw_parts(mapped.as_ptr(), bytes) };
                    assert!(seen.iter().all(|&byte| byte == resource.kind as u8 + 1));
                }
                memory.destroy(resource);
            }
            assert_eq!(memory.usage().allocated_bytes, 0);
            assert_eq!(memory.trim(), !alone, "idle blocks are kept");
            assert_eq!((memory.block_bytes(), memory.usage().blocks), (0, 0));
        }
    }

    #[test]
    fn what_is_idle_makes_room_before_an_allocation_fails() {
        let mut memory = memory(false);
        memory.limit = Some(100 << 20);
        let visible = memory.create(60 << 20, Kind::Visible).expect("memory");
        memory.destroy(visible);
        assert_eq!(memory.block_bytes(), 60 << 20);
        // If the usual size is not available, the block is as large as necessary.
        let first = memory.create(20 << 20, Kind::Device).expect("memory");
        let second = memory.create(70 << 20, Kind::Device).expect("memory");
        assert_eq!(memory.block_bytes(), 90 << 20);
        let failed = memory.create(20 << 20, Kind::Device).err();
        assert!(matches!(failed, Some(Error::OutOfMemory { bytes, .. }) if bytes == 20 << 20));
        memory.destroy(second);
        let third = memory.create(64 << 20, Kind::Device).expect("memory");
        assert_eq!(memory.reuses(), (1, 1));
        memory.destroy(first);
        memory.destroy(third);
    }
}

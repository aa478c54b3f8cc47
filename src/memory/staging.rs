//! Upload and readback memory: one persistently mapped ring for uploads, and mapped blocks in size classes for
//! readbacks. Returns copy regions; never submits or waits.

use std::collections::VecDeque;
use std::sync::Arc;

use ash::vk;
use memory_policy::size_class;
use parking_lot::Mutex;

use crate::error::Result;
use crate::memory::allocator::{Memory, Resource};
use crate::memory::bulk::Source;
use crate::memory::host_memory;
use crate::memory::kind::Kind;

/// Alignment of copies, which keeps the copy engines at full rate.
const ALIGN: u64 = 256;

/// Positions in a ring of bytes: allocated in order, and freed in order once their timeline value has passed.
#[derive(Debug)]
pub struct Ring {
    capacity: u64,
    /// Bytes ever allocated and ever freed, padding included; the position is the remainder modulo the capacity.
    head: u64,
    tail: u64,
    /// (timeline value, head after it) of the allocations in flight.
    marks: VecDeque<(u64, u64)>,
}

impl Ring {
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            head: 0,
            tail: 0,
            marks: VecDeque::new(),
        }
    }

    /// Allocates `bytes` contiguous bytes, in use until `value` has passed. Returns their position; none if the ring is
    /// too full now.
    pub fn allocate(&mut self, bytes: u64, value: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(ALIGN);
        if bytes > self.capacity {
            return None;
        }
        let position = self.head % self.capacity;
        let padding = if position + bytes > self.capacity {
            self.capacity - position
        } else {
            0
        };
        if self.head + padding + bytes - self.tail > self.capacity {
            return None;
        }
        let start = (self.head + padding) % self.capacity;
        self.head += padding + bytes;
        match self.marks.back_mut() {
            Some((last, end)) if *last == value => *end = self.head,
            _ => self.marks.push_back((value, self.head)),
        }
        Some(start)
    }

    /// Frees everything whose value is at most `completed`.
    pub fn retire(&mut self, completed: u64) {
        while let Some(&(value, end)) = self.marks.front() {
            if value > completed {
                break;
            }
            self.tail = end;
            self.marks.pop_front();
        }
        if self.marks.is_empty() {
            // An empty ring restarts at 0, so that a large chunk fits without padding.
            (self.head, self.tail) = (0, 0);
        }
    }

    /// The value that frees the oldest bytes.
    pub fn oldest(&self) -> Option<u64> {
        self.marks.front().map(|&(value, _)| value)
    }

    /// The value that frees everything; 0 if nothing is in flight.
    fn newest(&self) -> u64 {
        self.marks.back().map_or(0, |&(value, _)| value)
    }

    pub fn used(&self) -> u64 {
        self.head - self.tail
    }
}

/// Bytes of the upload ring: at first, and at most. Host memory costs the driver 0.3 ms a MiB, and many programs upload
/// little at a time.
const UPLOAD_BYTES: [u64; 2] = [4 << 20, 64 << 20];
/// Largest chunk of one upload: several fit the largest ring, so copying one overlaps filling the next.
pub const UPLOAD_CHUNK: u64 = 8 << 20;

/// The upload ring with its mapped buffer.
pub struct Upload {
    pub ring: Ring,
    resource: Resource,
}

impl Upload {
    /// A ring for chunks of `bytes` bytes, twice as large as one of `before` bytes; none beyond the largest size. Its
    /// memory goes back to the driver with it.
    pub fn larger(memory: &Memory, before: u64, bytes: u64) -> Result<Option<Self>> {
        let [first, most] = UPLOAD_BYTES;
        if before == most {
            return Ok(None);
        }
        let capacity = (2 * before)
            .max(bytes.next_power_of_two())
            .clamp(first, most);
        let resource = memory.create_alone(capacity, Kind::Upload)?;
        let ring = Ring::new(capacity);
        Ok(Some(Self { ring, resource }))
    }

    /// Puts `bytes` (at most [`UPLOAD_CHUNK`]) into the ring. Returns the copy's source buffer and offset; none if the
    /// ring is too full.
    pub fn stage(&mut self, bytes: Source<'_>, value: u64) -> Option<(vk::Buffer, u64)> {
        let offset = self.ring.allocate(bytes.len() as u64, value)?;
        let mapped = self.resource.mapped?;
        // SAFETY: the ring hands out ranges inside the mapped buffer that nothing in flight uses;
        // `bytes` is the caller's own memory and cannot overlap it.
        unsafe { bytes.copy_to(mapped.as_ptr().add(offset as usize)) };
        Some((self.resource.raw, self.resource.offset + offset))
    }

    pub fn capacity(&self) -> u64 {
        self.resource.capacity
    }

    /// Its memory, and the timeline value from which on the device does not use it.
    pub fn into_parts(self) -> (Resource, u64) {
        (self.resource, self.ring.newest())
    }
}

/// From this size on, a read reuses a larger idle block instead of allocating one, whose pages cost the driver 0.3 ms a
/// MiB.
const LARGE_BYTES: u64 = 1 << 20;
/// Largest ratio of that block's size to the read's.
const MAX_TIMES: u64 = 4;

#[derive(Default)]
struct Blocks {
    free: VecDeque<Resource>,
    free_bytes: u64,
    leased_bytes: u64,
    leased: u64,
    closed: bool,
}

impl Blocks {
    /// The most recently returned block of the class, which has the warmest pages.
    fn take(&mut self, capacity: u64) -> Option<Resource> {
        let found = self.free.iter().rposition(|b| b.capacity == capacity)?;
        self.take_at(found)
    }

    /// If the class is empty, the smallest larger block: taking it is faster than allocating a large one.
    fn take_larger(&mut self, capacity: u64) -> Option<Resource> {
        if capacity < LARGE_BYTES {
            return None;
        }
        let fitting = self.free.iter().enumerate();
        let (found, _) = fitting
            .filter(|(_, b)| (capacity..=MAX_TIMES * capacity).contains(&b.capacity))
            .min_by_key(|(_, b)| b.capacity)?;
        self.take_at(found)
    }

    fn take_at(&mut self, at: usize) -> Option<Resource> {
        let block = self.free.remove(at)?;
        self.free_bytes -= block.capacity;
        Some(block)
    }
}

/// Mapped, host-cached blocks that the device copies into and JS reads from.
pub struct Readback {
    blocks: Mutex<Blocks>,
    memory: Arc<Memory>,
}

impl Readback {
    pub fn new(memory: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            blocks: Mutex::new(Blocks::default()),
            memory,
        })
    }

    /// A block of at least `bytes`; it returns to the pool when the lease is dropped.
    pub fn lease(self: &Arc<Self>, bytes: u64) -> Result<Lease> {
        // Rounded up, but not beyond the device's limit: the largest buffer can be read whole.
        let capacity = size_class(bytes).min(self.memory.device.largest_buffer().max(bytes));
        let recycled = {
            let mut blocks = self.blocks.lock();
            blocks
                .take(capacity)
                .or_else(|| blocks.take_larger(capacity))
        };
        let resource = match recycled {
            Some(resource) => resource,
            None => self.memory.create(capacity, Kind::Readback)?,
        };
        let mut blocks = self.blocks.lock();
        blocks.leased_bytes += resource.capacity;
        blocks.leased += 1;
        drop(blocks);
        Ok(Lease {
            resource: Some(resource),
            bytes,
            pool: Arc::clone(self),
        })
    }

    pub fn leased_bytes(&self) -> u64 {
        self.blocks.lock().leased_bytes
    }

    /// All blocks, idle and leased, and their bytes.
    pub fn blocks(&self) -> (u64, u64) {
        let blocks = self.blocks.lock();
        (
            blocks.free.len() as u64 + blocks.leased,
            blocks.free_bytes + blocks.leased_bytes,
        )
    }

    pub fn idle_bytes(&self) -> u64 {
        self.blocks.lock().free_bytes
    }

    /// Returns the idle blocks to the driver; whether there were any.
    pub fn trim(&self) -> bool {
        let drained: Vec<Resource> = {
            let mut blocks = self.blocks.lock();
            blocks.free_bytes = 0;
            blocks.free.drain(..).collect()
        };
        let any = !drained.is_empty();
        for resource in drained {
            self.memory.destroy(resource);
        }
        any
    }

    /// From now on returned blocks are freed. The device must have finished with all of them.
    pub fn close(&self) {
        self.blocks.lock().closed = true;
        self.trim();
    }

    fn take_back(&self, resource: Resource) {
        let mut evicted = Vec::new();
        {
            let mut blocks = self.blocks.lock();
            blocks.leased_bytes -= resource.capacity;
            blocks.leased -= 1;
            if blocks.closed {
                evicted.push(resource);
            } else {
                blocks.free_bytes += resource.capacity;
                blocks.free.push_back(resource);
                // As many bytes may be idle as outstanding: a step's blocks come back together.
                while blocks.free_bytes > host_memory::results() {
                    let Some(oldest) = blocks.free.pop_front() else {
                        break;
                    };
                    blocks.free_bytes -= oldest.capacity;
                    evicted.push(oldest);
                }
            }
        }
        for resource in evicted {
            self.memory.destroy(resource);
        }
    }
}

/// One readback block, owned until dropped. The device must have finished its copy before the drop.
pub struct Lease {
    /// Empty only after `drop`.
    resource: Option<Resource>,
    bytes: u64,
    pool: Arc<Readback>,
}

impl Lease {
    pub fn raw(&self) -> vk::Buffer {
        self.resource.as_ref().map_or(vk::Buffer::null(), |r| r.raw)
    }

    /// Where it starts in [`Self::raw`].
    pub fn offset(&self) -> u64 {
        self.resource.as_ref().map_or(0, |r| r.offset)
    }

    pub fn len(&self) -> usize {
        self.bytes as usize
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes of the block.
    pub fn capacity(&self) -> u64 {
        self.resource.as_ref().map_or(0, |r| r.capacity)
    }

    /// Start of the mapped bytes; null if the block is not mapped.
    pub fn pointer(&self) -> *mut u8 {
        self.resource
            .as_ref()
            .and_then(|r| r.mapped)
            .map_or(std::ptr::null_mut(), |p| p.as_ptr())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(resource) = self.resource.take() {
            self.pool.take_back(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ring_wraps_and_waits_for_the_oldest() {
        let mut ring = Ring::new(1024);
        assert_eq!(ring.allocate(512, 1), Some(0));
        assert_eq!(ring.allocate(256, 2), Some(512));
        assert_eq!(ring.allocate(512, 3), None);
        assert_eq!(ring.oldest(), Some(1));
        ring.retire(1);
        // 256 bytes are left at the end: the chunk starts over at 0.
        assert_eq!(ring.allocate(512, 3), Some(0));
        assert_eq!(ring.allocate(1, 3), None);
        ring.retire(3);
        assert_eq!(ring.used(), 0);
        assert_eq!(ring.allocate(1024, 4), Some(0));
        assert_eq!(ring.allocate(2048, 5), None);
    }

    fn pool() -> Arc<Readback> {
        let config = crate::config::Config::from_env(true).expect("the environment");
        let device = crate::device::Device::new(&config).expect("tests need a Vulkan device");
        let memory = Memory::new(Arc::new(device), false);
        Readback::new(Arc::new(memory))
    }

    #[test]
    fn a_block_for_the_largest_buffer_is_no_larger() {
        let mut config = crate::config::Config::from_env(true).expect("the environment");
        config.test_max_buffer = Some(70_144);
        let device = crate::device::Device::new(&config).expect("tests need a Vulkan device");
        let pool = Readback::new(Arc::new(Memory::new(Arc::new(device), false)));
        assert!(size_class(70_144) > 70_144);
        for bytes in [70_144, 69_000] {
            let block = pool.lease(bytes).expect("a block");
            assert_eq!(pool.leased_bytes(), 70_144);
            assert_eq!(block.len() as u64, bytes);
        }
    }

    #[test]
    fn a_large_read_takes_an_idle_block_up_to_four_times_its_size() {
        let pool = pool();
        let bytes = 4 << 20;
        let first = pool.lease(bytes).expect("a block");
        let second = pool.lease(bytes).expect("a block");
        assert_ne!(
            (first.raw(), first.offset()),
            (second.raw(), second.offset())
        );
        assert_eq!(pool.leased_bytes(), 2 * size_class(bytes));
        let place = (first.raw(), first.offset());
        drop(first);
        let smaller = pool.lease(bytes / 4).expect("a block");
        assert_eq!((smaller.raw(), smaller.offset()), place);
        assert_eq!((smaller.len(), pool.blocks().0), (bytes as usize / 4, 2));
        drop(smaller);
        // Too small for it, and of its own class none: a new one.
        let tiny = pool.lease(bytes / 8).expect("a block");
        assert_eq!(pool.blocks().0, 3);
        drop((second, tiny));
        assert!(pool.trim());
        assert_eq!(pool.blocks(), (0, 0));
        pool.close();
    }

    proptest! {
        /// No two ranges in flight ever overlap, and an empty ring takes any size up to its own.
        #[test]
        fn ranges_in_flight_never_overlap(sizes in prop::collection::vec((1u64..600, 0u64..3), 1..200)) {
            let mut ring = Ring::new(1024);
            let mut live: VecDeque<(u64, u64, u64)> = VecDeque::new();
            let mut completed = 0;
            for (value, (bytes, retire)) in sizes.into_iter().enumerate() {
                let value = value as u64 + 1;
                for _ in 0..retire {
                    if let Some(&(v, ..)) = live.front() {
                        completed = v;
                        live.pop_front();
                    }
                }
                ring.retire(completed);
                match ring.allocate(bytes, value) {
                    Some(start) => {
                        prop_assert!(start + bytes <= 1024);
                        for &(_, s, b) in &live {
                            prop_assert!(start + bytes <= s || s + b <= start);
                        }
                        live.push_back((value, start, bytes));
                    }
                    None => prop_assert!(!live.is_empty() || bytes > 1024),
                }
            }
        }
    }
}

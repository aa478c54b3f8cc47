//! Upload and readback memory: one persistently mapped ring for uploads, and mapped blocks, by size
//! class, for readbacks. Returns copy regions; submits and waits for nothing.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ash::vk;
use parking_lot::Mutex;

use crate::background::Background;
use crate::bulk;
use crate::error::Result;
use crate::memory::{Kind, Memory, Resource, size_class};

/// Copies start on addresses of this alignment, which keeps the copy engines at full rate.
const ALIGN: u64 = 256;

/// Positions in a ring of bytes: allocated in order, freed in order once their timeline value passed.
#[derive(Debug)]
pub struct Ring {
    capacity: u64,
    /// Bytes ever handed out and ever taken back, padding included; position is the rest modulo capacity.
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

    /// Position of `bytes` contiguous bytes in use until `value` has passed; none if the ring is too
    /// full for them now.
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
            // An empty ring starts over, so that a large chunk fits without padding.
            (self.head, self.tail) = (0, 0);
        }
    }

    /// The value that frees the oldest bytes.
    pub fn oldest(&self) -> Option<u64> {
        self.marks.front().map(|&(value, _)| value)
    }

    pub fn used(&self) -> u64 {
        self.head - self.tail
    }
}

/// Bytes of the upload ring.
const UPLOAD_BYTES: u64 = 64 << 20;
/// Longest piece of one upload: several fit the ring, so copying one overlaps filling the next.
pub const UPLOAD_CHUNK: u64 = 8 << 20;

/// The upload ring with its mapped buffer.
pub struct Upload {
    pub ring: Ring,
    resource: Resource,
}

impl Upload {
    pub fn new(memory: &Memory) -> Result<Self> {
        let resource = memory.create(UPLOAD_BYTES, Kind::Upload)?;
        memory.device.name(resource.raw, "helios upload ring");
        Ok(Self {
            ring: Ring::new(UPLOAD_BYTES),
            resource,
        })
    }

    /// Puts `bytes` (at most [`UPLOAD_CHUNK`]) into the ring; source buffer and offset of the copy,
    /// or none if the ring is too full.
    pub fn stage(&mut self, bytes: &[u8], value: u64) -> Option<(vk::Buffer, u64)> {
        let offset = self.ring.allocate(bytes.len() as u64, value)?;
        let mapped = self.resource.mapped?;
        // SAFETY: the ring hands out ranges inside the mapped buffer that nothing in flight uses;
        // `bytes` is the caller's own memory and cannot overlap it.
        unsafe {
            bulk::copy(
                bytes.as_ptr(),
                mapped.as_ptr().add(offset as usize),
                bytes.len(),
            );
        }
        Some((self.resource.raw, offset))
    }

    pub fn capacity(&self) -> u64 {
        self.resource.capacity
    }

    pub fn release(self, memory: &Memory) {
        memory.destroy(self.resource);
    }
}

/// Blocks that JS may hold at a time, in bytes; beyond it a read is copied.
const MAX_LEASED: u64 = 2 << 30;
/// Unused blocks kept, in bytes.
const MAX_IDLE: u64 = MAX_LEASED;

/// From this size on, making a block takes the driver long enough, most of it for the pages, to have one
/// ready.
const SPARE_BYTES: u64 = 1 << 20;
/// From this size on, two: the driver takes 60 to 70 ms for one of 60 MiB (H200).
const TWO_SPARES_BYTES: u64 = 32 << 20;
/// A read may take a block so many times as large as it needs.
const MOST_TIMES: u64 = 4;

#[derive(Default)]
struct Blocks {
    free: VecDeque<Resource>,
    free_bytes: u64,
    leased_bytes: u64,
    leased: u64,
    /// Blocks of failed waits, which the device may still write until it is gone.
    abandoned: Vec<Resource>,
    /// Large capacities that were leased before.
    known: BTreeSet<u64>,
    /// Capacity of the spare that is being made, or about to be.
    making: Option<u64>,
    closed: bool,
}

impl Blocks {
    /// The most recently returned block of the class, which has the warmest pages.
    fn take(&mut self, capacity: u64) -> Option<Resource> {
        let found = self.free.iter().rposition(|b| b.capacity == capacity)?;
        self.take_at(found)
    }

    /// The smallest block that will do where there is none of the class: sooner than the driver makes a
    /// large one.
    fn take_larger(&mut self, capacity: u64) -> Option<Resource> {
        if capacity < SPARE_BYTES {
            return None;
        }
        let fitting = self.free.iter().enumerate();
        let (found, _) = fitting
            .filter(|(_, b)| (capacity..=MOST_TIMES * capacity).contains(&b.capacity))
            .min_by_key(|(_, b)| b.capacity)?;
        self.take_at(found)
    }

    fn take_at(&mut self, at: usize) -> Option<Resource> {
        let block = self.free.remove(at)?;
        self.free_bytes -= block.capacity;
        Some(block)
    }

    /// Whether a spare of this class should be made, now that one was leased.
    fn wants_spare(&mut self, capacity: u64) -> bool {
        if capacity < SPARE_BYTES || self.closed {
            return false;
        }
        // Read twice, it will be read again.
        let again = !self.known.insert(capacity);
        again && self.making.is_none() && self.lacks_spare(capacity)
    }

    fn lacks_spare(&self, capacity: u64) -> bool {
        let wanted = match capacity >= TWO_SPARES_BYTES {
            true => 2,
            false => 1,
        };
        self.free_bytes + self.leased_bytes + capacity <= MAX_LEASED
            && self.free.iter().filter(|b| b.capacity == capacity).count() < wanted
    }
}

/// Mapped, host-cached blocks that the device copies into and JS reads from. Of large ones that are
/// read again and again, one is made ahead, on a thread of its own, while none is idle: JS may keep
/// the results of a while before any comes back.
pub struct Readback {
    blocks: Mutex<Blocks>,
    background: Arc<Background>,
    memory: Arc<Memory>,
}

impl Readback {
    pub fn new(memory: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            blocks: Mutex::new(Blocks::default()),
            background: Background::new("helios-readback"),
            memory,
        })
    }

    /// As [`Self::lease`] where that takes the driver no time: a large block only if one of the class is
    /// idle.
    pub fn lease_idle(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        let capacity = size_class(bytes);
        if capacity < SPARE_BYTES {
            return self.lease(bytes).ok();
        }
        let idle = self.blocks.lock().take(capacity)?;
        Some(self.lend(idle, capacity, bytes))
    }

    /// A block of at least `bytes`; it returns to the pool when the lease is dropped.
    pub fn lease(self: &Arc<Self>, bytes: u64) -> Result<Lease> {
        let capacity = size_class(bytes);
        let (mut recycled, coming) = {
            let mut blocks = self.blocks.lock();
            let found = blocks
                .take(capacity)
                .or_else(|| blocks.take_larger(capacity));
            (found, blocks.making == Some(capacity))
        };
        if recycled.is_none() && coming && self.background.wait().is_ok() {
            recycled = self.blocks.lock().take(capacity);
        }
        let resource = match recycled {
            Some(resource) => resource,
            None => self.make(capacity)?,
        };
        Ok(self.lend(resource, capacity, bytes))
    }

    /// The lease of a block that was wanted for `bytes` bytes, of class `capacity`.
    fn lend(self: &Arc<Self>, resource: Resource, capacity: u64, bytes: u64) -> Lease {
        let wants_spare = {
            let mut blocks = self.blocks.lock();
            blocks.leased_bytes += resource.capacity;
            blocks.leased += 1;
            let wants = blocks.wants_spare(capacity);
            if wants {
                blocks.making = Some(capacity);
            }
            wants
        };
        if wants_spare {
            let pool = Arc::clone(self);
            self.background.run(move || pool.make_spare(capacity));
        }
        Lease {
            resource: Some(resource),
            bytes,
            pool: Arc::clone(self),
        }
    }

    fn make(&self, capacity: u64) -> Result<Resource> {
        let resource = self.memory.create(capacity, Kind::Readback)?;
        self.memory.device.name(resource.raw, "helios readback");
        Ok(resource)
    }

    /// Makes a block ahead. On the thread, of which it is one job: whoever waits for one that is coming
    /// gets it before the next is made.
    fn make_spare(self: Arc<Self>, capacity: u64) {
        // Whoever needs one finds out by itself if there is no room.
        let made = self.make(capacity);
        let mut blocks = self.blocks.lock();
        blocks.making = None;
        match made {
            Ok(resource) if blocks.closed => {
                drop(blocks);
                self.memory.destroy(resource);
                return;
            }
            Ok(resource) => {
                blocks.free_bytes += resource.capacity;
                blocks.free.push_front(resource);
            }
            Err(_) => return,
        }
        if blocks.lacks_spare(capacity) {
            blocks.making = Some(capacity);
            drop(blocks);
            let pool = Arc::clone(&self);
            self.background.run(move || pool.make_spare(capacity));
        }
    }

    /// Whether so many more bytes may be leased without making results be copied.
    pub fn fits(&self, bytes: u64) -> bool {
        self.leased_bytes() + size_class(bytes) <= MAX_LEASED
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

    /// From now on returned blocks go to the driver. The device must have finished with all of them.
    pub fn close(&self) {
        let abandoned = {
            let mut blocks = self.blocks.lock();
            blocks.closed = true;
            std::mem::take(&mut blocks.abandoned)
        };
        self.background.close();
        for resource in abandoned {
            self.take_back(resource);
        }
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
                while blocks.free_bytes > MAX_IDLE {
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

/// One readback block, owned until dropped. The device must have finished its copy by then.
pub struct Lease {
    /// Taken in `drop` alone.
    resource: Option<Resource>,
    bytes: u64,
    pool: Arc<Readback>,
}

impl Lease {
    pub fn raw(&self) -> vk::Buffer {
        self.resource.as_ref().map_or(vk::Buffer::null(), |r| r.raw)
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

    /// Bytes of all blocks that are leased.
    pub fn leased(&self) -> u64 {
        self.pool.leased_bytes()
    }

    /// Whether the block may be handed to JS as it is: JS holds little enough already.
    pub fn may_lend(&self) -> bool {
        self.leased() <= MAX_LEASED
    }

    /// Start of the mapped bytes; null if the block is not mapped.
    pub fn pointer(&self) -> *mut u8 {
        self.resource
            .as_ref()
            .and_then(|r| r.mapped)
            .map_or(std::ptr::null_mut(), |p| p.as_ptr())
    }
}

impl Lease {
    /// Gives the block up, whose copy nobody could wait for: it is not used again, and goes when the
    /// device is destroyed.
    pub fn abandon(mut self) {
        if let Some(resource) = self.resource.take() {
            let mut blocks = self.pool.blocks.lock();
            if blocks.closed {
                // The device was drained meanwhile.
                drop(blocks);
                self.pool.take_back(resource);
            } else {
                blocks.abandoned.push(resource);
            }
        }
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
        let settings = crate::device::Settings::from_env();
        let device = crate::device::Device::new(&settings).expect("tests need a Vulkan device");
        let memory = Memory::new(Arc::new(device), true).expect("memory");
        Readback::new(Arc::new(memory))
    }

    /// All blocks once there are `count`, or after ten seconds.
    fn blocks_in_time(pool: &Readback, count: u64) -> u64 {
        for _ in 0..1000 {
            if pool.blocks().0 == count {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        pool.blocks().0
    }

    #[test]
    fn of_a_large_class_that_is_leased_again_one_block_is_kept_ready() {
        let pool = pool();
        let bytes = 3 << 20;
        drop(pool.lease(bytes).expect("a block"));
        // Idle: the second lease takes it, and shows that there will be more.
        let second = pool.lease(bytes).expect("a block");
        assert_eq!(blocks_in_time(&pool, 2), 2);
        let third = pool.lease(bytes).expect("a block");
        assert_ne!(second.raw(), third.raw());
        assert_eq!(blocks_in_time(&pool, 3), 3);
        assert_eq!(pool.leased_bytes(), 2 * size_class(bytes));
        // A smaller read borrows the idle one, and its own class gets none for that.
        let smaller = pool.lease(bytes / 2).expect("a block");
        assert_eq!((smaller.len(), pool.blocks().0), (bytes as usize / 2, 3));
        drop(smaller);
        let tiny = pool.lease(bytes / 8).expect("a block");
        assert_eq!(pool.blocks().0, 4);
        drop(tiny);
        pool.trim();
        assert_eq!(pool.blocks().0, 2);
        // One idle is enough.
        drop(third);
        let again = pool.lease(bytes).expect("a block");
        assert_eq!(blocks_in_time(&pool, 3), 3);
        drop((second, again));
        pool.close();
        assert_eq!(pool.blocks(), (0, 0));
    }

    #[test]
    fn of_a_very_large_class_two_blocks_are_kept_ready() {
        let pool = pool();
        let bytes = TWO_SPARES_BYTES;
        drop(pool.lease(bytes).expect("a block"));
        let held = pool.lease(bytes).expect("a block");
        assert_eq!(blocks_in_time(&pool, 3), 3);
        let more = [(); 2].map(|()| pool.lease(bytes).expect("a block"));
        assert_eq!(blocks_in_time(&pool, 5), 5);
        drop((held, more));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(pool.blocks().0, 5, "enough are idle");
        pool.close();
    }

    #[test]
    fn small_classes_and_single_reads_get_no_spare() {
        let pool = pool();
        for _ in 0..3 {
            let _held = [4096, 512 << 10].map(|bytes| pool.lease(bytes).expect("a block"));
        }
        let _once = pool.lease(5 << 20).expect("a block");
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(pool.blocks().0, 3);
        assert!(!pool.background.started());
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

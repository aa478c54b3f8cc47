//! Arenas: large device buffers, parts of which are handed out as buffers of their own. Taking and
//! returning a part is arithmetic; only a new arena asks the driver. An arena's memory is dedicated to
//! its buffer: NVIDIA's driver gives 32 MiB of such in 65 µs, 190 µs after a pause, and of other memory in
//! 550 µs (measured on an H200, driver 580.159.04).
//!
//! Memory that waits unused is memory that somebody lacks, so no arena is made ahead. But where the host
//! does not see device memory, a new arena is a buffer without memory at first: a thread gives it some
//! while the program goes on, and commands are recorded once all arenas before them have theirs
//! ([`Arenas::backing`]). This is done only while the device has plenty, so that a shortage is still the
//! error of the call that meets it. Memory goes back to the driver on the same thread.

use std::collections::HashMap;
use std::ptr::NonNull;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes};
use parking_lot::Mutex;
use range_alloc::RangeAllocator;

use crate::background::Background;
use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::memory::{Kind, map_allocation, usage};

/// Parts start on addresses of this alignment, as much as Vulkan lets a device ask for.
pub const GRAIN: u64 = 256;
/// Arenas have this size…
const MIN_ARENA: u64 = 24 << 20;
/// …up to this in a program that holds much, so that there are never very many.
const MAX_ARENA: u64 = 256 << 20;
const MOST_ARENAS: u64 = 1024;
/// Largest part that may share an arena of the usual size.
pub const MAX_PART: u64 = MIN_ARENA;
/// From this many bytes of arenas on, one is as large as need be, down to such a part of the usual size: what
/// is left of it would not be used at the peak.
const MANY: u64 = 1 << 30;
const LEAST_PART: u64 = 3;
/// Where a size would leave more than such a part of its pages unused, an arena is for several of it, up to so
/// many times the least size of an arena: 54 MiB for five of 10.75 MiB, which took 12 each. For one, at first,
/// and for one more each time.
const MOST_UNUSED: u64 = 64;
const MOST_TIMES: u64 = 4;
/// Sizes that are remembered for that.
const MOST_SIZES: usize = 256;
/// Sizes of arenas are multiples of this: NVIDIA's driver gives no less for what is beyond (58 MiB for 56.4).
const PAGE: u64 = 2 << 20;
/// Bytes that the device must have left for an arena to get its memory later, or an eighth of its memory
/// where that is less.
const PLENTY: u64 = 2 << 30;
/// How often it is asked at most; other programs cannot take as much as that in this time.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Where a part lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    arena: usize,
    pub raw: vk::Buffer,
    pub offset: u64,
    bytes: u64,
    /// Whether it is all of its arena.
    pub whole: bool,
    pub mapped: Option<NonNull<u8>>,
    pub cached: bool,
}

/// One block of device memory under one buffer.
struct Arena {
    raw: vk::Buffer,
    /// Empty until the thread has been at it.
    allocation: Arc<OnceLock<Allocation>>,
    /// Host address of its first byte, where its memory is host-visible and coherent.
    mapped: Option<NonNull<u8>>,
    cached: bool,
    ranges: RangeAllocator<u64>,
    bytes: u64,
    free: u64,
}

// SAFETY: the mapped pointer is handed out, not used here.
unsafe impl Send for Arena {}

impl Arena {
    /// `allocation`: none if it is to come.
    fn new(raw: vk::Buffer, bytes: u64, allocation: Option<Allocation>) -> Self {
        let properties = allocation
            .as_ref()
            .map_or(vk::MemoryPropertyFlags::empty(), |a| a.memory_properties());
        let mapped = allocation.as_ref().and_then(Allocation::mapped_ptr);
        Self {
            raw,
            // Incoherent memory would need flushes and invalidations: treated as not mapped.
            mapped: mapped
                .filter(|_| properties.contains(vk::MemoryPropertyFlags::HOST_COHERENT))
                .map(NonNull::cast),
            cached: properties.contains(vk::MemoryPropertyFlags::HOST_CACHED),
            allocation: Arc::new(allocation.map_or_else(OnceLock::new, OnceLock::from)),
            ranges: RangeAllocator::new(0..bytes),
            bytes,
            free: bytes,
        }
    }

    fn take(&mut self, bytes: u64) -> Option<u64> {
        let range = self.ranges.allocate_range(bytes).ok()?;
        self.free -= bytes;
        Some(range.start)
    }

    fn give_back(&mut self, part: &Part) {
        self.ranges
            .free_range(part.offset..part.offset + part.bytes);
        self.free += part.bytes;
    }
}

/// An arena that is not full: what a search looks at, side by side.
struct Open {
    /// Its place in the list.
    at: usize,
    bytes: u64,
    free: u64,
    /// The smallest size that was found not to fit since the last part came back.
    too_large: u64,
}

impl Open {
    fn new(at: usize, arena: &Arena) -> Self {
        Self {
            at,
            bytes: arena.bytes,
            free: arena.free,
            too_large: u64::MAX,
        }
    }

    fn may_fit(&self, bytes: u64) -> bool {
        self.free >= bytes && bytes < self.too_large
    }

    fn is_empty(&self) -> bool {
        self.free == self.bytes
    }
}

/// Makes and unmakes arenas; shared with the thread.
struct Maker {
    device: Arc<Device>,
    allocator: Mutex<Allocator>,
    left: Mutex<Left>,
    /// Test switch: a device that does not tell what it has left has all of it.
    assume: bool,
    /// The largest arena that the device has memory for.
    #[cfg(test)]
    largest: AtomicU64,
    /// Whether what is left is what a test says.
    #[cfg(test)]
    pretends: AtomicBool,
}

/// What the device has left.
#[derive(Default)]
struct Left {
    /// Bytes when it was last asked, less the arenas since; none if that may be wrong by much.
    bytes: u64,
    /// Grows with every allocation that is no arena.
    others: u64,
    /// When it was last asked.
    asked: Option<Instant>,
}

impl Maker {
    /// A buffer of `bytes` bytes without memory.
    fn buffer(&self, bytes: u64) -> Result<vk::Buffer> {
        let device = &self.device;
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(usage(device.plan.device_address));
        // SAFETY: the device is live and the description valid.
        let raw = unsafe { device.raw.create_buffer(&info, None) }.map_err(|e| {
            device.observe(error::create("vkCreateBuffer", Kind::Device.name(), bytes)(
                e,
            ))
        })?;
        device.name(raw, "helios arena");
        Ok(raw)
    }

    /// Gives a buffer memory, of the plan's type alone if `device_memory`.
    fn back(&self, raw: vk::Buffer, device_memory: bool) -> Result<Allocation> {
        let device = &self.device;
        // SAFETY: the buffer is live.
        let mut requirements = unsafe { device.raw.get_buffer_memory_requirements(raw) };
        let bytes = requirements.size;
        #[cfg(test)]
        if bytes > self.largest.load(Ordering::Relaxed) {
            return Err(map_allocation(
                AllocationError::OutOfMemory,
                Kind::Device,
                bytes,
            ));
        }
        let wanted = 1 << device.plan.device_memory;
        if device_memory && requirements.memory_type_bits & wanted != 0 {
            requirements.memory_type_bits = wanted;
        }
        let allocated = self.allocator.lock().allocate(&AllocationCreateDesc {
            name: "arena",
            requirements,
            // The mask above names the memory type.
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::DedicatedBuffer(raw),
        });
        let allocation = allocated.map_err(|e| map_allocation(e, Kind::Device, bytes))?;
        // SAFETY: the memory is live and was made for this buffer.
        let bound = unsafe {
            device
                .raw
                .bind_buffer_memory(raw, allocation.memory(), allocation.offset())
        };
        if let Err(e) = bound {
            // Fails only for an allocation of another allocator.
            let freed = self.allocator.lock().free(allocation);
            debug_assert!(freed.is_ok());
            let failed = error::create("vkBindBufferMemory", Kind::Device.name(), bytes)(e);
            return Err(device.observe(failed));
        }
        Ok(allocation)
    }

    /// An arena with its memory.
    fn make(&self, bytes: u64) -> Result<Arena> {
        let raw = self.buffer(bytes)?;
        match self.back(raw, true) {
            Ok(allocation) => Ok(Arena::new(raw, bytes, Some(allocation))),
            Err(error) => {
                // SAFETY: nothing uses the buffer yet.
                unsafe { self.device.raw.destroy_buffer(raw, None) };
                Err(error)
            }
        }
    }

    /// Gives an arena's buffer the memory that it was promised. Parts of it are in use: where device
    /// memory ended in spite of all looks, that of the host must do.
    fn keep_promise(&self, raw: vk::Buffer) -> Option<Allocation> {
        let backed = match self.back(raw, true) {
            Err(Error::OutOfMemory { .. }) => self.back(raw, false),
            other => other,
        };
        // What was recorded for such a buffer cannot run.
        backed.inspect_err(|error| self.device.fail(error)).ok()
    }

    /// Asks how much the device has left, unless that was just done: nobody waits longer for an arena for it.
    fn look_again(&self) {
        let asked = self.left.lock().asked;
        if asked.is_none_or(|asked| asked.elapsed() > LOOK_EVERY) {
            self.look();
        }
    }

    /// Asks how much the device has left.
    fn look(&self) {
        #[cfg(test)]
        if self.pretends.load(Ordering::Relaxed) {
            return;
        }
        let others = self.left.lock().others;
        let types = &self.device.snapshot.memory_types;
        let heap = types[self.device.plan.device_memory as usize].heap as usize;
        let budget = self.device.budget();
        let bytes = match budget {
            Some(heaps) => heaps[heap].1.saturating_sub(heaps[heap].0),
            None if self.assume => self.device.device_local_bytes(),
            None => 0,
        };
        let mut left = self.left.lock();
        if left.others == others {
            left.bytes = bytes;
            left.asked = Some(Instant::now());
        }
    }

    /// The arena's memory must be there, or never come.
    fn unmake(&self, arena: Arena) {
        // SAFETY: no part is in use, and the device has finished with all of them.
        unsafe { self.device.raw.destroy_buffer(arena.raw, None) };
        let allocation = Arc::into_inner(arena.allocation).and_then(OnceLock::into_inner);
        if let Some(allocation) = allocation {
            // Fails only for an allocation of another allocator.
            let freed = self.allocator.lock().free(allocation);
            debug_assert!(freed.is_ok());
        }
    }
}

/// The arenas.
pub struct Arenas {
    list: Vec<Option<Arena>>,
    /// Places in `list` that are free.
    vacant: Vec<usize>,
    /// The arenas that are not full.
    open: Vec<Open>,
    bytes: u64,
    /// The most bytes there were, since all that was not in use was given back.
    most: u64,
    /// How many arenas sizes have had that are not a multiple of [`PAGE`].
    uneven: HashMap<u64, u64>,
    /// How many arenas there may be before none is smaller than usual: a third of what the driver allows.
    few: usize,
    maker: Arc<Maker>,
    /// The thread that gives arenas their memory: whoever records commands first waits for what it was
    /// given before them.
    backing: Arc<Background>,
    /// Whether arenas may get their memory later.
    later: bool,
}

impl Arenas {
    /// `staged`: test switch, taken for a device whose memory the host does not see.
    pub fn new(device: &Arc<Device>, staged: bool) -> Result<Self> {
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: device.instance.raw.clone(),
            device: device.raw.clone(),
            physical_device: device.physical,
            debug_settings: Default::default(),
            buffer_device_address: device.plan.device_address,
            allocation_sizes: AllocationSizes::default(),
        })
        .map_err(|e: AllocationError| Error::Internal(format!("gpu-allocator: {e}")))?;
        let types = &device.snapshot.memory_types;
        let flags = types[device.plan.device_memory as usize].flags;
        Ok(Self {
            list: Vec::new(),
            vacant: Vec::new(),
            open: Vec::new(),
            bytes: 0,
            most: 0,
            uneven: HashMap::new(),
            few: device.snapshot.limits.max_memory_allocation_count as usize / 3,
            maker: Arc::new(Maker {
                device: Arc::clone(device),
                allocator: Mutex::new(allocator),
                left: Mutex::default(),
                assume: staged,
                #[cfg(test)]
                largest: u64::MAX.into(),
                #[cfg(test)]
                pretends: false.into(),
            }),
            backing: Background::new("helios-arenas"),
            later: staged || !flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE),
        })
    }

    /// The thread that gives arenas their memory.
    pub fn backing(&self) -> &Arc<Background> {
        &self.backing
    }

    /// A part of `bytes` bytes (a multiple of [`GRAIN`]): of the fullest arena that has room, or of a new
    /// one, which is for a part beyond [`MAX_PART`] no larger than need be.
    pub fn take(&mut self, bytes: u64) -> Result<Part> {
        debug_assert!(bytes.is_multiple_of(GRAIN));
        if let Some(part) = self.take_room(bytes) {
            return Ok(part);
        }
        let least = self.whole_pages(bytes);
        let mut size = self.next_size(bytes);
        if self.bytes + size > self.most {
            // None of them is large enough.
            self.drop_empty(0);
            if self.bytes + size > self.most && !self.grows(bytes) && self.are_few() {
                size = least;
            }
        }
        let arena = match self.next_arena(size) {
            // Room for others is no reason to fail.
            Err(Error::OutOfMemory { .. }) if least < size => self.next_arena(least)?,
            made => made?,
        };
        self.bytes += arena.bytes;
        self.most = self.most.max(self.bytes);
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() - 1
        });
        self.open.push(Open::new(at, &arena));
        self.list[at] = Some(arena);
        self.part_of(self.open.len() - 1, bytes)
            .ok_or_else(|| Error::Internal("a new arena is full".to_owned()))
    }

    /// A part of the fullest arena that has room, if any has.
    pub fn take_room(&mut self, bytes: u64) -> Option<Part> {
        while let Some(open) = self.fullest_for(bytes) {
            if let Some(part) = self.part_of(open, bytes) {
                return Some(part);
            }
        }
        None
    }

    fn usual_size(&self) -> u64 {
        (self.bytes / MOST_ARENAS).clamp(MIN_ARENA, MAX_ARENA)
    }

    fn are_few(&self) -> bool {
        self.list.len() - self.vacant.len() < self.few
    }

    /// Bytes of a new arena for a part of `bytes` bytes.
    fn next_size(&mut self, bytes: u64) -> u64 {
        let usual = self.usual_size();
        let size = match self.bytes > MANY && self.are_few() {
            true => self.several(bytes).max(usual / LEAST_PART),
            false => bytes.max(usual),
        };
        self.whole_pages(size)
    }

    /// What an arena takes for `bytes` bytes, within the device's limit.
    fn whole_pages(&self, bytes: u64) -> u64 {
        let snapshot = &self.maker.device.snapshot;
        let limit = snapshot.max_buffer_size.min(snapshot.max_allocation_size);
        bytes.next_multiple_of(PAGE).min(limit)
    }

    /// Bytes of as many parts of `bytes` bytes as should share an arena.
    fn several(&mut self, bytes: u64) -> u64 {
        if bytes.is_multiple_of(PAGE) || bytes * MOST_UNUSED <= PAGE {
            return bytes;
        }
        if self.uneven.len() == MOST_SIZES && !self.uneven.contains_key(&bytes) {
            self.uneven.clear();
        }
        let before = self.uneven.entry(bytes).or_insert(0);
        let most = (MOST_TIMES * MIN_ARENA / bytes).clamp(1, *before + 1);
        *before += 1;
        let unused = |all: u64| (all.next_multiple_of(PAGE) - all) as f64 / all as f64;
        let shared = (1..=most).map(|count| count * bytes);
        let few_unused = shared
            .clone()
            .find(|&all| unused(all) * MOST_UNUSED as f64 <= 1.0);
        let least_unused = shared.min_by(|&a, &b| unused(a).total_cmp(&unused(b)));
        few_unused.or(least_unused).unwrap_or(bytes)
    }

    fn next_arena(&self, bytes: u64) -> Result<Arena> {
        let maker = &self.maker;
        if !self.later || !self.has_plenty(bytes) {
            self.settle();
            let arena = maker.make(bytes)?;
            if self.later {
                maker.look();
            }
            return Ok(arena);
        }
        let raw = maker.buffer(bytes)?;
        {
            // The thread may just have seen less.
            let mut left = maker.left.lock();
            left.bytes = left.bytes.saturating_sub(bytes);
        }
        let arena = Arena::new(raw, bytes, None);
        let (maker, promised) = (Arc::clone(maker), Arc::clone(&arena.allocation));
        self.backing.run(move || {
            if let Some(allocation) = maker.keep_promise(raw) {
                // Nobody else fills it.
                let _ = promised.set(allocation);
            }
            maker.look_again();
        });
        Ok(arena)
    }

    /// Notes that device memory was taken elsewhere: the next arena asks how much is left.
    pub fn others_took(&self) {
        let mut left = self.maker.left.lock();
        left.bytes = 0;
        left.others += 1;
        left.asked = None;
    }

    /// The place in `open` of the fullest arena that may have room.
    fn fullest_for(&self, bytes: u64) -> Option<usize> {
        let open = self.open.iter().enumerate();
        open.filter(|(_, open)| open.may_fit(bytes))
            .min_by_key(|(_, open)| open.free)
            .map(|(place, _)| place)
    }

    fn part_of(&mut self, open: usize, bytes: u64) -> Option<Part> {
        let entry = self.open.get_mut(open)?;
        let at = entry.at;
        let arena = self.list.get_mut(at)?.as_mut()?;
        let Some(offset) = arena.take(bytes) else {
            entry.too_large = bytes;
            return None;
        };
        entry.free = arena.free;
        if arena.free == 0 {
            self.open.swap_remove(open);
        }
        Some(Part {
            arena: at,
            raw: arena.raw,
            offset,
            bytes,
            whole: bytes == arena.bytes,
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
        arena.give_back(part);
        let open = Open::new(part.arena, arena);
        let (empty, bytes) = (open.is_empty(), open.bytes);
        match self.open.iter_mut().find(|o| o.at == part.arena) {
            Some(entry) => *entry = open,
            None => self.open.push(open),
        }
        if empty {
            match bytes > self.usual_size() {
                true => self.drop_arenas(&[part.arena]),
                false => self.drop_empty(1),
            }
        }
    }

    fn drop_empty(&mut self, keep: usize) {
        let empties = self.open.iter().filter(|open| open.is_empty());
        let mut empties: Vec<_> = empties.map(|open| open.at).collect();
        empties.truncate(empties.len().saturating_sub(keep));
        self.drop_arenas(&empties);
    }

    /// Drops arenas that are not in use: on the thread if it gives them their memory, which those that
    /// nobody came to use get first. At the end of the process what never comes need not be given back.
    fn drop_arenas(&mut self, places: &[usize]) {
        for &at in places {
            let Some(arena) = self.list[at].take() else {
                continue;
            };
            self.vacant.push(at);
            self.open.retain(|open| open.at != at);
            self.bytes -= arena.bytes;
            if self.backing.started() {
                let maker = Arc::clone(&self.maker);
                self.backing.run_some_time(move || maker.unmake(arena));
            } else {
                self.maker.unmake(arena);
            }
        }
    }

    /// Whether a part of `bytes` bytes is likely to be had without asking the driver.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.fullest_for(bytes).is_some()
    }

    /// Whether an arena for a part of `bytes` bytes would make them more than they ever were.
    pub fn grows(&self, bytes: u64) -> bool {
        self.bytes + self.whole_pages(bytes) > self.most
    }

    /// Whether a part of `bytes` bytes may get its place later: it would take more memory than there ever was,
    /// and the device has plenty for it and for `others` bytes that wait already.
    pub fn may_wait(&self, bytes: u64, others: u64) -> bool {
        let size = self.whole_pages(bytes) + others;
        self.later && self.bytes + size > self.most && self.has_plenty(size)
    }

    /// Whether the device has plenty left for `bytes` more bytes.
    fn has_plenty(&self, bytes: u64) -> bool {
        let maker = &self.maker;
        let plenty = PLENTY.min(maker.device.device_local_bytes() / 8);
        maker.left.lock().bytes >= plenty + bytes
    }

    /// As if the host did not see the device's memory, `left` bytes of it were left, and none for an arena
    /// beyond `largest`.
    #[cfg(test)]
    pub fn pretend(&mut self, left: u64, largest: u64) {
        self.settle();
        self.later = true;
        self.maker.left.lock().bytes = left;
        self.maker.largest.store(largest, Ordering::Relaxed);
        self.maker.pretends.store(true, Ordering::Relaxed);
    }

    /// Gives back what is not in use.
    pub fn trim(&mut self) {
        self.drop_empty(0);
        self.most = self.bytes;
        self.settle();
    }

    /// Returns once the driver has what was given back.
    fn settle(&self) {
        // Fails at the end of the process, when nobody wants it any more.
        let _ = self.backing.wait();
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
        self.backing.close();
        for arena in self.list.drain(..).flatten() {
            self.maker.unmake(arena);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::device::Settings;

    fn arenas() -> Arenas {
        let device = Device::new(&Settings::from_env()).expect("tests need a Vulkan device");
        Arenas::new(&Arc::new(device), true).expect("arenas")
    }

    /// Takes a part that needs an arena of its own; whether that has memory.
    fn take(arenas: &mut Arenas) -> (Part, bool) {
        let part = arenas.take(MAX_PART).expect("a part");
        let arena = arenas.list[part.arena].as_ref().expect("an arena");
        (part, arena.allocation.get().is_some())
    }

    #[test]
    fn memory_comes_later_while_there_is_plenty() {
        let mut arenas = arenas();
        // How much the device has left is not known yet.
        let (first, backed) = take(&mut arenas);
        assert!(backed);
        let (go, gate) = channel();
        arenas.backing.run(move || gate.recv().expect("a word"));
        let (second, backed) = take(&mut arenas);
        assert!(!backed);
        go.send(()).expect("the thread");
        arenas.others_took();
        let (third, backed) = take(&mut arenas);
        assert!(backed, "what is left is not known any more");
        let (go, gate) = channel();
        arenas.backing.run(move || gate.recv().expect("a word"));
        let (fourth, backed) = take(&mut arenas);
        assert!(!backed);
        go.send(()).expect("the thread");
        arenas.settle();
        arenas.maker.left.lock().bytes = MIN_ARENA;
        assert!(take(&mut arenas).1, "too little is left");
        arenas.backing.wait().expect("done");
        for part in [second, fourth] {
            let arena = arenas.list[part.arena].as_ref().expect("an arena");
            assert!(arena.allocation.get().is_some());
        }
        assert!(arenas.maker.left.lock().bytes > MIN_ARENA, "asked again");
        // They go back to the driver, also before they are backed.
        let (last, _) = take(&mut arenas);
        for part in [first, second, third, fourth, last] {
            arenas.give_back(&part);
        }
        arenas.trim();
        assert_eq!(arenas.bytes(), MIN_ARENA, "one is in use");
    }

    #[test]
    fn a_large_part_has_an_arena_whose_memory_comes_and_goes_on_the_thread() {
        let mut arenas = arenas();
        let (small, _) = take(&mut arenas);
        let (go, gate) = channel();
        arenas.backing.run(move || gate.recv().expect("a word"));
        let ticket = arenas.backing.ticket();
        let large = arenas.take(MAX_PART + PAGE).expect("a part");
        assert!(large.whole && arenas.bytes() == MIN_ARENA + MAX_PART + PAGE);
        let arena = arenas.list[large.arena].as_ref().expect("an arena");
        assert!(arena.allocation.get().is_none() && arena.free == 0);
        assert!(arenas.backing.ticket() > ticket);
        let ticket = arenas.backing.ticket();
        arenas.give_back(&large);
        assert_eq!(arenas.bytes(), MIN_ARENA);
        assert_eq!(arenas.backing.ticket(), ticket, "nobody waits for that");
        let again = arenas.take(MAX_PART + GRAIN).expect("a part");
        assert_ne!(again.raw, large.raw, "it is still there");
        // What the driver gives beyond is used too.
        let beyond = arenas.take(PAGE - GRAIN).expect("a part");
        assert!(beyond.raw == again.raw && !again.whole);
        assert_eq!(arenas.bytes(), MIN_ARENA + MAX_PART + PAGE);
        go.send(()).expect("the thread");
        for part in [again, beyond, small] {
            arenas.give_back(&part);
        }
        arenas.trim();
        assert_eq!(arenas.bytes(), 0);
    }

    #[test]
    fn an_arena_is_for_one_before_there_are_more_bytes_than_ever() {
        let mut arenas = arenas();
        let take = |arenas: &mut Arenas, mib: u64| arenas.take(mib << 20).expect("a part");
        let (first, large) = (take(&mut arenas, 24), take(&mut arenas, 34));
        arenas.give_back(&large);
        let second = take(&mut arenas, 24);
        assert_eq!(arenas.bytes(), 48 << 20);
        assert!(!arenas.grows(10 << 20) && arenas.grows(11 << 20));
        let third = take(&mut arenas, 8);
        assert_eq!(arenas.bytes(), 56 << 20);
        let fourth = take(&mut arenas, 8);
        assert_eq!(arenas.bytes(), 80 << 20);
        for part in [first, second, third, fourth] {
            arenas.give_back(&part);
        }
        arenas.trim();
        assert!(arenas.bytes() == 0 && arenas.grows(1), "all is forgotten");
    }

    #[test]
    fn where_memory_is_short_an_arena_is_for_one() {
        let mut arenas = arenas();
        arenas.later = false;
        let largest = |arenas: &Arenas, bytes| arenas.maker.largest.store(bytes, Ordering::Relaxed);
        largest(&arenas, 12 << 20);
        let part = arenas.take(11 << 20).expect("a part");
        assert_eq!(arenas.bytes(), 12 << 20);
        let failed = arenas.take(13 << 20).err();
        let Some(Error::OutOfMemory { bytes, .. }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!((bytes, arenas.bytes()), (14 << 20, 12 << 20));
        largest(&arenas, u64::MAX);
        let other = arenas.take(13 << 20).expect("a part");
        assert_eq!(arenas.bytes(), (12 << 20) + MIN_ARENA);
        for part in [part, other] {
            arenas.give_back(&part);
        }
    }

    /// More arenas than [`MANY`] bytes, full ones of the usual size.
    fn many(arenas: &mut Arenas) -> Vec<Part> {
        let count = MANY / MIN_ARENA + 1;
        let parts = (0..count).map(|_| take(arenas).0).collect();
        assert_eq!(arenas.bytes(), count * MIN_ARENA);
        parts
    }

    #[test]
    fn from_many_on_arenas_are_as_large_as_need_be() {
        let mut arenas = arenas();
        let mut parts = many(&mut arenas);
        let mut taken = |arenas: &mut Arenas, bytes| {
            let before = arenas.bytes();
            parts.push(arenas.take(bytes).expect("a part"));
            arenas.bytes() - before
        };
        assert_eq!(taken(&mut arenas, GRAIN), MIN_ARENA / LEAST_PART);
        assert_eq!(taken(&mut arenas, 10 << 20), 10 << 20);
        assert_eq!(taken(&mut arenas, GRAIN), 0, "there is room");
        // There are never very many.
        arenas.few = arenas.list.len() - arenas.vacant.len();
        assert_eq!(taken(&mut arenas, 10 << 20), MIN_ARENA);
        for part in parts {
            arenas.give_back(&part);
        }
    }

    #[test]
    fn parts_that_leave_much_of_their_pages_unused_share_arenas() {
        let mut arenas = arenas();
        let mut parts = many(&mut arenas);
        let mut taken = |bytes| {
            let before = arenas.bytes();
            parts.push(arenas.take(bytes).expect("a part"));
            (arenas.bytes() - before) >> 20
        };
        let uneven = (10 << 20) + (3 << 18);
        let made: Vec<u64> = (0..12).map(|_| taken(uneven)).collect();
        assert_eq!(made, [12, 22, 0, 22, 0, 22, 0, 54, 0, 0, 0, 0]);
        let unused = arenas.open.iter().map(|open| open.free).sum::<u64>();
        assert_eq!(unused, (5 << 18) + 3 * (1 << 19) + (1 << 18));
        // Few sizes are remembered.
        for step in 0..2 * MOST_SIZES as u64 {
            arenas.several(uneven + step * GRAIN);
            assert!((1..=MOST_SIZES).contains(&arenas.uneven.len()));
        }
        // What is small fills its pages, what is large is alone.
        assert_eq!(arenas.several(PAGE / MOST_UNUSED), PAGE / MOST_UNUSED);
        for _ in 0..8 {
            assert_eq!(arenas.several(50 << 20 | GRAIN), 50 << 20 | GRAIN);
        }
        for part in parts {
            arenas.give_back(&part);
        }
    }
}

//! Arenas: large device buffers, parts of which are handed out as buffers of their own. Taking and
//! returning a part is arithmetic; only a new arena asks the driver, which takes half a millisecond
//! for 32 MiB and lets no other memory call in meanwhile. So arenas are made ahead, on a thread of their
//! own, once a program is large enough to want another every few calls.

use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes};
use parking_lot::{Condvar, Mutex, MutexGuard};
use range_alloc::RangeAllocator;

use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::leave::{self, Leave};
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
/// Once arenas hold so much, the next ones are made ahead.
const MAKE_AHEAD: u64 = 512 << 20;
/// Arenas made ahead. Each is memory that no buffer has; a second one would spare a program that
/// creates many buffers at once one wait for the driver, and no more.
const STOCK: usize = 1;

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

/// Makes and unmakes arenas; shared with the thread.
struct Maker {
    device: Arc<Device>,
    allocator: Mutex<Allocator>,
    stock: Mutex<Stock>,
    changed: Condvar,
    /// Whether there are processors enough to poll.
    spins: bool,
}

/// The arenas made ahead.
#[derive(Default)]
struct Stock {
    ready: Vec<Arena>,
    /// How many should be ready; 0 while nothing is made ahead.
    target: usize,
    /// Bytes of the next ones.
    bytes: u64,
    /// Whether the thread is at one.
    making: bool,
    ending: bool,
    /// The process ends: drivers are being torn down.
    leaving: bool,
}

/// How long a thread looks again and again before it sleeps: a program that grows wants an arena every
/// few hundred microseconds, and to wake a thread takes a good part of that.
const SPIN: Duration = Duration::from_millis(1);

/// A wait that polls at first.
struct Patience {
    /// None: no polling, or no more of it.
    until: Option<Instant>,
}

impl Patience {
    fn new(spins: bool) -> Self {
        Self {
            until: spins.then(|| Instant::now() + SPIN),
        }
    }

    /// Returns after a while, or once `changed` is signalled.
    fn wait(&mut self, changed: &Condvar, stock: &mut MutexGuard<Stock>) {
        if self.until.is_none_or(|until| Instant::now() >= until) {
            self.until = None;
            changed.wait(stock);
            return;
        }
        MutexGuard::unlocked(stock, || (0..64).for_each(|_| std::hint::spin_loop()));
    }
}

impl Maker {
    fn make(&self, bytes: u64) -> Result<Arena> {
        let device = &self.device;
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
        let allocated = self.allocator.lock().allocate(&AllocationCreateDesc {
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

    fn unmake(&self, arena: Arena) {
        // SAFETY: no part is in use, and the device has finished with all of them.
        unsafe { self.device.raw.destroy_buffer(arena.raw, None) };
        // Fails only for an allocation of another allocator.
        let freed = self.allocator.lock().free(arena.allocation);
        debug_assert!(freed.is_ok());
    }

    /// Keeps the stock filled, until the end.
    fn run(&self) {
        let mut stock = self.stock.lock();
        let mut patience = Patience::new(self.spins);
        while !stock.ending {
            if stock.leaving || stock.ready.len() >= stock.target {
                patience.wait(&self.changed, &mut stock);
                continue;
            }
            let bytes = stock.bytes;
            stock.making = true;
            drop(stock);
            let made = self.make(bytes);
            stock = self.stock.lock();
            stock.making = false;
            match made {
                Ok(arena) => stock.ready.push(arena),
                // Whoever needs one finds out by itself.
                Err(_) => stock.target = 0,
            }
            patience = Patience::new(self.spins);
            self.changed.notify_all();
        }
    }
}

impl Leave for Maker {
    fn leave(&self) {
        let mut stock = self.stock.lock();
        stock.leaving = true;
        while stock.making {
            self.changed.wait(&mut stock);
        }
    }
}

/// The arenas in use, and those made ahead.
pub struct Arenas {
    list: Vec<Option<Arena>>,
    /// Places in `list` of the arenas that are not full.
    open: Vec<usize>,
    bytes: u64,
    maker: Arc<Maker>,
    thread: Option<JoinHandle<()>>,
}

impl Arenas {
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
            maker: Arc::new(Maker {
                device: Arc::clone(device),
                allocator: Mutex::new(allocator),
                stock: Mutex::new(Stock::default()),
                changed: Condvar::new(),
                spins: thread::available_parallelism().is_ok_and(|cores| cores.get() > 2),
            }),
            thread: None,
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
        let arena = self.next_arena()?;
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

    /// One that was made ahead, or is being made; otherwise made here.
    fn next_arena(&mut self) -> Result<Arena> {
        let bytes = (self.bytes / MOST_ARENAS)
            .clamp(MIN_ARENA, MAX_ARENA)
            .next_multiple_of(1 << 20);
        let maker = &self.maker;
        let mut stock = maker.stock.lock();
        let mut patience = Patience::new(maker.spins);
        while stock.ready.is_empty() && stock.making {
            patience.wait(&maker.changed, &mut stock);
        }
        let found = stock.ready.pop();
        let reserved = (STOCK as u64 + 1) * bytes;
        let room = self.bytes + reserved < maker.device.device_local_bytes();
        stock.target = match self.bytes >= MAKE_AHEAD && room {
            true => STOCK,
            false => 0,
        };
        stock.bytes = bytes;
        let wanted = stock.target > 0;
        drop(stock);
        let arena = match found {
            Some(arena) => arena,
            None => maker.make(bytes)?,
        };
        if wanted {
            self.wake();
        }
        Ok(arena)
    }

    /// Lets the thread look at the stock; starts it first if need be.
    fn wake(&mut self) {
        if self.thread.is_none() {
            leave::at_exit(&self.maker);
            let maker = Arc::clone(&self.maker);
            self.thread = thread::Builder::new()
                .name("helios memory".to_owned())
                .spawn(move || maker.run())
                // Without a thread arenas are made when they are needed.
                .ok();
        }
        self.maker.changed.notify_all();
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
        let mut spare = self.list.iter().filter(|a| empty(a)).count();
        for (at, slot) in self.list.iter_mut().enumerate() {
            if spare <= keep {
                break;
            }
            if empty(slot)
                && let Some(arena) = slot.take()
            {
                self.open.retain(|&open| open != at);
                self.bytes -= arena.bytes;
                self.maker.unmake(arena);
                spare -= 1;
            }
        }
    }

    /// Whether a part of `bytes` bytes is likely to be had without asking the driver.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.fullest_for(bytes).is_some()
    }

    /// Gives back what is not in use.
    pub fn trim(&mut self) {
        self.drop_empty(0);
        let mut stock = self.maker.stock.lock();
        stock.target = 0;
        while stock.making {
            self.maker.changed.wait(&mut stock);
        }
        let ready = std::mem::take(&mut stock.ready);
        drop(stock);
        for arena in ready {
            self.maker.unmake(arena);
        }
    }

    /// Bytes of all arenas, with those made ahead.
    pub fn bytes(&self) -> u64 {
        let stock = self.maker.stock.lock();
        self.bytes + stock.ready.iter().map(|a| a.bytes).sum::<u64>()
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
        self.maker.stock.lock().ending = true;
        self.maker.changed.notify_all();
        // The thread ends by returning.
        let _ = self.thread.take().map(JoinHandle::join);
        let ready = std::mem::take(&mut self.maker.stock.lock().ready);
        for arena in ready {
            self.maker.unmake(arena);
        }
        for arena in self.list.drain(..).flatten() {
            self.maker.unmake(arena);
        }
    }
}

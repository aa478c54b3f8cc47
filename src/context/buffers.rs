//! Creating and destroying buffers.

use std::sync::Arc;

use super::Context;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::hazard::Marks;
use crate::memory::{self, Kind, Resource};
use crate::timing::Phase;

/// Retired resources looked at by one call, so that none pays for many.
const RETIRE_STEP: usize = 4;
/// Resources that may wait for the recycler: beyond it they are recycled at once.
const MOST_FREED: usize = 1024;
/// Idle bytes that are given up for buffers of other sizes before the driver is asked for more.
const EVICT_BYTES: u64 = 64 << 20;
/// Destroyed buffers that may wait for a submission; beyond it, or beyond [`EVICT_BYTES`], recorded
/// work is submitted before another buffer is made.
const MOST_UNSUBMITTED: usize = 1024;
/// Bytes that were destroyed while the device still uses them, or an eighth of what is live if that is
/// more: beyond it the device is waited for before it is asked for more memory. A program that creates,
/// uses and destroys faster than the device works would otherwise take all there is.
const RUN_AHEAD: u64 = 1 << 30;

/// Buffers that wait for their places at most: beyond it the oldest gets one, so that its memory comes while
/// more are created.
const MOST_UNPLACED: usize = 32;

impl Context {
    /// Bytes of the largest buffer.
    fn largest(&self) -> u64 {
        let snapshot = &self.device.snapshot;
        snapshot.max_buffer_size.min(snapshot.max_allocation_size)
    }

    /// Whether a buffer may have `bytes` bytes.
    pub(super) fn check_size(&self, argument: &str, bytes: u64) -> Result<()> {
        let limit = self.largest();
        if bytes == 0 || bytes > limit {
            return Err(Error::range(
                argument,
                format!("must be from 1 to {limit} (the device's limit)"),
                bytes,
            ));
        }
        Ok(())
    }

    /// A storage buffer of `bytes` bytes; `visible` if the host should be able to write it in place.
    pub fn create_buffer(&mut self, bytes: u64, visible: bool, temporary: bool) -> Result<i32> {
        let handle = self.create_buffer_later(bytes, visible, temporary)?;
        self.place().inspect_err(|_| {
            // It was live a moment ago.
            let _ = self.destroy_buffer(handle);
        })?;
        Ok(handle)
    }

    /// As [`Self::create_buffer`], but where a buffer would take more memory than there ever was, and there is
    /// plenty, [`Self::place`] gives it its place: what is destroyed before then makes room for it.
    pub fn create_buffer_later(
        &mut self,
        bytes: u64,
        visible: bool,
        temporary: bool,
    ) -> Result<i32> {
        self.device.check_alive()?;
        self.check_size("byteLength", bytes)?;
        let start = self.timing.start(Phase::CreateBuffer);
        let kind = if visible { Kind::Visible } else { Kind::Device };
        let capacity = self.placed_capacity(bytes);
        self.reclaim(RETIRE_STEP);
        let resource = match self.find(capacity, kind)? {
            Some(resource) => resource,
            None if self.memory.may_wait(capacity, kind, self.unplaced_bytes) => {
                if self.unplaced.len() == MOST_UNPLACED {
                    self.place_oldest()?;
                }
                Arc::clone(&self.nowhere)
            }
            None => {
                // It may not take what those were promised.
                self.place_all()?;
                self.allocate(capacity, kind)?
            }
        };
        let waits = Arc::ptr_eq(&resource, &self.nowhere);
        let handle = self.adopt(resource, bytes, temporary)?;
        if waits {
            self.unplaced.push_back(handle);
            self.unplaced_bytes += capacity;
            self.look_at_memory();
        }
        self.timing.end(start);
        Ok(handle)
    }

    /// Gives every live buffer its place. After a failure those without wait on, for the next call.
    #[inline]
    pub fn place(&mut self) -> Result<()> {
        // A lost device has none to give, and what would use them fails.
        match self.unplaced.is_empty() || self.device.lost() {
            true => Ok(()),
            false => self.place_in_time(),
        }
    }

    /// [`Self::place`], if this buffer is one of those without.
    #[inline]
    pub fn place_with(&mut self, handle: i32) -> Result<()> {
        let waits = !self.unplaced.is_empty()
            && (self.buffers.get(handle)).is_some_and(|b| Arc::ptr_eq(&b.resource, &self.nowhere));
        if waits { self.place() } else { Ok(()) }
    }

    /// [`Self::place_all`], as part of the time that creating takes.
    #[cold]
    fn place_in_time(&mut self) -> Result<()> {
        let start = self.timing.start(Phase::CreateBuffer);
        self.place_all()?;
        self.timing.end(start);
        Ok(())
    }

    fn place_all(&mut self) -> Result<()> {
        while !self.unplaced.is_empty() {
            self.place_oldest()?;
        }
        Ok(())
    }

    /// Gives the buffer its place that has waited for the longest.
    fn place_oldest(&mut self) -> Result<()> {
        let Some(&handle) = self.unplaced.front() else {
            return Ok(());
        };
        let bytes = self.buffers.get(handle).map_or(0, |buffer| buffer.bytes);
        let capacity = self.placed_capacity(bytes);
        // What is allocated is not looked at twice.
        self.unplaced_bytes -= capacity;
        let resource = match self.find(capacity, Kind::Device).transpose() {
            Some(found) => found,
            None => self.allocate(capacity, Kind::Device),
        };
        let resource = resource.inspect_err(|_| self.unplaced_bytes += capacity)?;
        self.unplaced.pop_front();
        let slot = self.buffers.slot(handle);
        match slot.and_then(|slot| self.buffers.at_mut(slot)) {
            Some(buffer) => buffer.settle_in(resource, self.staged_only),
            None => self.recycle(resource),
        }
        Ok(())
    }

    /// Bytes that a buffer of `bytes` bytes takes.
    fn placed_capacity(&self, bytes: u64) -> u64 {
        memory::capacity(bytes).min(self.largest())
    }

    /// A handle for a resource that nobody else uses.
    pub(super) fn adopt(
        &mut self,
        resource: Arc<Resource>,
        bytes: u64,
        temporary: bool,
    ) -> Result<i32> {
        let buffer = Buffer {
            raw: resource.raw,
            offset: resource.offset,
            range: bytes.min(u64::from(
                self.device.snapshot.limits.max_storage_buffer_range,
            )),
            marks: Marks::default(),
            graph_marks: Marks::default(),
            last_use: 0,
            wrote: 0,
            bytes,
            mapped: resource.mapped.filter(|_| !self.staged_only),
            cached: resource.cached,
            shared: resource.kind == Kind::Shared,
            resource,
            name: None,
            born: self.pending_value(),
        };
        let handle = match self.buffers.insert(buffer) {
            Ok(handle) => handle,
            Err(buffer) => {
                self.recycle(buffer.resource);
                return Err(Error::OutOfMemory {
                    what: "buffer handle",
                    bytes,
                    space: "handle",
                    hint: ": 2^20 buffers are live".to_owned(),
                });
            }
        };
        self.live_bytes += bytes;
        self.stats.buffers_created += 1;
        self.stats.temporary_requests += u64::from(temporary);
        self.stats.peak_buffer_bytes = self.stats.peak_buffer_bytes.max(self.live_bytes);
        self.stats.peak_buffers = self.stats.peak_buffers.max(self.buffers.len() as u64);
        Ok(handle)
    }

    /// An idle resource, or room in what the driver has given already, after looking through what the device has
    /// meanwhile finished with.
    fn find(&mut self, capacity: u64, kind: Kind) -> Result<Option<Arc<Resource>>> {
        if let Some(resource) = self.recycler.take(capacity, kind) {
            return Ok(Some(resource));
        }
        if !self.freed.is_empty() {
            self.reclaim(usize::MAX);
            if let Some(resource) = self.recycler.take(capacity, kind) {
                return Ok(Some(resource));
            }
        }
        if !self.retired.is_empty() {
            if self.waits_for_submission() {
                self.flush()?;
            }
            self.timeline.completed()?;
            self.reclaim(usize::MAX);
            if let Some(resource) = self.recycler.take(capacity, kind) {
                return Ok(Some(resource));
            }
        }
        Ok(self.memory.create_in_room(capacity, kind).map(Arc::new))
    }

    /// A new resource, with everything idle given back before the allocation is allowed to fail.
    fn allocate(&mut self, capacity: u64, kind: Kind) -> Result<Arc<Resource>> {
        if self.catch_up()?
            && let Some(resource) = self.recycler.take(capacity, kind)
        {
            return Ok(resource);
        }
        // Idle buffers of other sizes make room sooner than the driver does.
        self.recycler
            .make_room(&self.memory, capacity, kind, EVICT_BYTES);
        let first = self.memory.create(capacity, kind);
        self.stats.peak_block_bytes = self.stats.peak_block_bytes.max(self.memory.block_bytes());
        self.look_at_memory();
        let Err(Error::OutOfMemory { .. }) = first else {
            return first.map(Arc::new);
        };
        self.relieve()?;
        match self.memory.create(capacity, kind) {
            Err(Error::OutOfMemory {
                what, bytes, space, ..
            }) => Err(Error::OutOfMemory {
                what,
                bytes,
                space,
                hint: format!(
                    " ({} live buffers hold {} bytes; the device has {})",
                    self.buffers.len(),
                    self.live_bytes,
                    self.device.device_local_bytes()
                ),
            }),
            other => other.map(Arc::new),
        }
    }

    /// Waits until the device uses no more of what was destroyed than it may; whether it did use more.
    fn catch_up(&mut self) -> Result<bool> {
        let most = RUN_AHEAD.max(self.live_bytes / 8);
        let behind = self.retired_bytes > most;
        while self.retired_bytes > most
            && let Some(&(value, _)) = self.retired.front()
        {
            if value > self.submitted {
                self.flush()?;
            }
            self.wait(value)?;
            self.reclaim(usize::MAX);
        }
        Ok(behind)
    }

    /// Whether much of what was destroyed waits for work that is recorded and not submitted, and so
    /// would never come back.
    fn waits_for_submission(&self) -> bool {
        let mut bytes = 0;
        let unsubmitted = self.retired.iter().rev();
        let count = unsubmitted
            .take_while(|&&(value, _)| value > self.submitted)
            .take(MOST_UNSUBMITTED)
            .inspect(|(_, resource)| bytes += resource.capacity)
            .count();
        count == MOST_UNSUBMITTED || bytes >= EVICT_BYTES
    }

    /// Gives everything back that nobody uses: waits for the device, then empties recycled buffers
    /// and idle readback blocks.
    pub(super) fn relieve(&mut self) -> Result<()> {
        self.drain()?;
        self.forget_ahead();
        self.reclaim(usize::MAX);
        self.recycler.clear(&self.memory);
        self.readback.trim();
        self.memory.trim();
        Ok(())
    }

    /// Recycles up to `most` resources that the device has finished with.
    pub(super) fn reclaim(&mut self, most: usize) {
        let seen = self.timeline.seen();
        for _ in 0..most {
            if let Some(resource) = self.freed.pop_front() {
                self.recycle(resource);
                continue;
            }
            match self.retired.front() {
                Some(&(value, _)) if value <= seen => {}
                _ => break,
            }
            if let Some((_, resource)) = self.retired.pop_front() {
                self.retired_bytes -= resource.capacity;
                self.recycle(resource);
            }
        }
    }

    /// Keeps a resource for reuse, unless a graph still uses it: then it comes back with the graph.
    fn recycle(&mut self, resource: Arc<Resource>) {
        if Arc::strong_count(&resource) == 1 {
            self.recycler.put(&self.memory, resource);
        }
    }

    /// Sets a resource aside until the device has passed `value`.
    pub(super) fn retire(&mut self, resource: Arc<Resource>, value: u64) {
        if value <= self.timeline.seen() {
            self.recycle(resource);
            return;
        }
        // In order of value, so that the front is the next to be free.
        let value = self.retired.back().map_or(value, |&(v, _)| v.max(value));
        self.retired_bytes += resource.capacity;
        self.retired.push_back((value, resource));
    }

    /// The handle dies now; the memory is reused when the device has finished with it.
    pub fn destroy_buffer(&mut self, handle: i32) -> Result<()> {
        self.device.check_alive()?;
        let start = self.timing.start(Phase::DestroyBuffer);
        let buffer = self
            .buffers
            .remove(handle)
            .ok_or_else(|| Error::handle("handle", "buffer", handle))?;
        self.live_bytes -= buffer.bytes;
        if Arc::ptr_eq(&buffer.resource, &self.nowhere) {
            self.unplaced.retain(|&waiting| waiting != handle);
            self.unplaced_bytes -= self.placed_capacity(buffer.bytes);
            self.timing.end(start);
            return Ok(());
        }
        let value = buffer.last_use.max(self.everything_use);
        if value <= self.timeline.seen() && !buffer.shared && self.freed.len() < MOST_FREED {
            // The recycler's lists are seldom in the cache when few are destroyed at a time.
            self.freed.push_back(buffer.resource);
        } else {
            self.retire(buffer.resource, value);
        }
        self.timing.end(start);
        Ok(())
    }

    /// Whether the device has finished with the buffer, without asking the driver twice.
    pub(super) fn idle(&self, slot: u32) -> bool {
        let Some(buffer) = self.buffers.at(slot) else {
            return false;
        };
        let value = buffer.last_use.max(self.everything_use);
        value <= self.timeline.seen()
            || (value <= self.submitted && self.timeline.completed().is_ok_and(|c| value <= c))
    }

    /// Device address of the buffer's first byte.
    pub fn buffer_address(&self, handle: i32) -> Result<u64> {
        let slot = self.buffer_slot("handle", handle)?;
        if !self.device.plan.device_address {
            return Err(Error::Unsupported(format!(
                "{} has no device addresses (bufferDeviceAddress)",
                self.device.snapshot.name
            )));
        }
        self.memory.settle()?;
        Ok(self.buffers.at(slot).map_or(0, |buffer| {
            let info = ash::vk::BufferDeviceAddressInfo::default().buffer(buffer.raw);
            // SAFETY: the buffer is live and was created for device addresses.
            unsafe { self.device.raw.get_buffer_device_address(&info) + buffer.offset }
        }))
    }

    pub fn recycled(&self) -> (u64, u64, u64, u64) {
        let freed: u64 = self.freed.iter().map(|resource| resource.capacity).sum();
        (
            self.recycler.count() + self.freed.len() as u64,
            self.recycler.bytes() + freed,
            self.recycler.reuses,
            self.recycler.evictions,
        )
    }

    pub fn retired_count(&self) -> usize {
        self.retired.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Settings;

    const PLENTY: u64 = 1 << 40;
    const LARGE: u64 = 40 << 20;

    fn context() -> Context {
        Context::new(&Settings::from_env()).expect("tests need a Vulkan device")
    }

    fn create(context: &mut Context, bytes: u64) -> i32 {
        let created = context.create_buffer_later(bytes, false, false);
        created.expect("a buffer")
    }

    fn place_of(context: &Context, handle: i32) -> (ash::vk::Buffer, u64) {
        let buffer = context.buffers.get(handle).expect("a live buffer");
        (buffer.raw, buffer.offset)
    }

    #[test]
    fn a_buffer_takes_the_place_of_what_goes_before_it_is_used() {
        let mut context = context();
        let first = context.create_buffer(LARGE, false, false).expect("memory");
        let place = place_of(&context, first);
        context.memory.pretend(PLENTY, u64::MAX);
        let second = create(&mut context, LARGE);
        assert_eq!(context.memory.block_bytes(), LARGE, "it waits");
        // No memory for what nobody uses.
        let unused = create(&mut context, LARGE);
        context.destroy_buffer(unused).expect("it was live");
        assert_eq!((context.unplaced.len(), context.unplaced_bytes), (1, LARGE));
        context.destroy_buffer(first).expect("it was live");
        context.place().expect("room");
        assert_eq!(place_of(&context, second), place);
        assert_eq!(context.memory.block_bytes(), LARGE);
        assert_eq!((context.unplaced.len(), context.unplaced_bytes), (0, 0));
        // As much as there was once is taken at once; so is what is made for use at once.
        let third = context.create_buffer(LARGE, false, false).expect("memory");
        assert_eq!(context.memory.block_bytes(), 2 * LARGE);
        context.destroy_buffer(third).expect("it was live");
        let fourth = create(&mut context, LARGE);
        assert!(context.unplaced.is_empty());
        for handle in [second, fourth] {
            context.destroy_buffer(handle).expect("it was live");
        }
        assert_eq!(context.live_bytes, 0);
        context.close();
    }

    #[test]
    fn what_names_one_buffer_leaves_the_others_waiting() {
        let mut context = context();
        let small = context.create_buffer(64, false, false).expect("memory");
        context.memory.pretend(PLENTY, u64::MAX);
        let large = create(&mut context, LARGE);
        for handle in [small, large + 1, -1] {
            context.place_with(handle).expect("nothing to do");
            assert_eq!(context.unplaced_bytes, LARGE);
        }
        context.place_with(large).expect("memory");
        assert!(context.unplaced.is_empty());
        for handle in [small, large] {
            context.destroy_buffer(handle).expect("it was live");
        }
        context.close();
    }

    #[test]
    fn of_many_the_oldest_get_their_places() {
        let mut context = context();
        context.memory.pretend(PLENTY, u64::MAX);
        let handles: Vec<i32> = (0..MOST_UNPLACED + 2)
            .map(|_| create(&mut context, LARGE))
            .collect();
        let waits = |&handle: &i32| place_of(&context, handle).0 == ash::vk::Buffer::null();
        assert!(!handles[..2].iter().any(waits) && handles[2..].iter().all(waits));
        let waiting = MOST_UNPLACED as u64 * LARGE;
        assert_eq!(context.unplaced_bytes, waiting);
        assert_eq!(context.memory.block_bytes(), 2 * LARGE);
        assert!(context.memory_use().used >= waiting);
        for handle in handles {
            context.destroy_buffer(handle).expect("it was live");
        }
        assert_eq!(context.unplaced_bytes, 0);
        context.close();
    }

    #[test]
    fn without_plenty_the_call_that_creates_meets_the_shortage() {
        let mut context = context();
        context.memory.pretend(0, LARGE / 2);
        let failed = context.create_buffer_later(LARGE, false, false).err();
        assert!(matches!(failed, Some(Error::OutOfMemory { .. })));
        assert!(context.buffers.is_empty() && context.unplaced.is_empty());
        context.close();
    }

    #[test]
    fn what_is_made_at_once_does_not_take_what_was_promised() {
        let mut context = context();
        context.memory.pretend(PLENTY, u64::MAX);
        let first = create(&mut context, LARGE);
        context.memory.pretend(0, u64::MAX);
        let second = create(&mut context, LARGE / 2);
        for handle in [first, second] {
            assert_ne!(place_of(&context, handle).0, ash::vk::Buffer::null());
        }
        context.memory.pretend(PLENTY, u64::MAX);
        let third = create(&mut context, 2 * LARGE);
        context.memory.pretend(0, LARGE);
        let failed = context.create_buffer_later(LARGE, false, false).err();
        assert!(matches!(failed, Some(Error::OutOfMemory { .. })));
        assert_eq!(context.buffers.len(), 3);
        for handle in [first, second, third] {
            context.destroy_buffer(handle).expect("it was live");
        }
        context.close();
    }

    #[test]
    fn what_found_no_place_asks_again() {
        let mut context = context();
        context.memory.pretend(PLENTY, u64::MAX);
        let [small, large] = [LARGE, 2 * LARGE].map(|bytes| create(&mut context, bytes));
        // Somebody else has taken the memory since.
        context.memory.pretend(0, LARGE);
        let failed = context.place().err();
        let Some(Error::OutOfMemory { bytes, .. }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!((bytes, context.unplaced_bytes), (2 * LARGE, 2 * LARGE));
        assert_ne!(place_of(&context, small).0, ash::vk::Buffer::null());
        assert_eq!(place_of(&context, large).0, ash::vk::Buffer::null());
        // What is created for use at once is not there if it has no place.
        context.memory.pretend(PLENTY, LARGE);
        let live = context.buffers.len();
        let third = context.create_buffer_later(2 * LARGE, false, false);
        let third = third.expect("a buffer");
        context.memory.pretend(0, LARGE);
        assert!(context.create_buffer(64, false, false).is_err());
        assert_eq!(context.buffers.len(), live + 1);
        context.memory.pretend(PLENTY, u64::MAX);
        context.place().expect("memory");
        assert!(context.unplaced.is_empty() && context.unplaced_bytes == 0);
        for handle in [small, large, third] {
            assert_ne!(place_of(&context, handle).0, ash::vk::Buffer::null());
            context.destroy_buffer(handle).expect("it was live");
        }
        context.close();
    }
}

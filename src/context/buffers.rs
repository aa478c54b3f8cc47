//! Creating and destroying buffers.

use std::sync::Arc;

use super::Context;
use crate::device::choice::Isolation;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::memory::{self, Kind, Resource};
use crate::timing::Phase;

/// Retired resources that one call reclaims at most, so that no call pays for many.
const RETIRE_STEP: usize = 4;
/// How many destroyed buffers, and how many of their bytes, may wait for a submission. Beyond that, recorded work is
/// submitted before another buffer is created.
const MAX_UNSUBMITTED: usize = 1024;
const MAX_UNSUBMITTED_BYTES: u64 = 64 << 20;
/// How many bytes of destroyed buffers the device may still be using; an eighth of the live bytes if that is more.
/// Beyond that, wait for the device before allocating another block. Otherwise a program that creates, uses and
/// destroys buffers faster than the device works would exhaust its memory.
const RUN_AHEAD: u64 = 1 << 30;

/// Bytes that the binding of an empty buffer covers: Vulkan has no empty bindings.
const EMPTY_RANGE: u64 = 4;

impl Context {
    /// Checks that a buffer may have `bytes` bytes, and that these are at least `least`.
    pub(super) fn check_size(&self, argument: &str, bytes: u64, least: u64) -> Result<()> {
        let limit = self.device.largest_buffer();
        if bytes < least || bytes > limit {
            return Err(Error::range(
                argument,
                format!("must be from {least} to {limit} (the device's limit)"),
                bytes,
            ));
        }
        Ok(())
    }

    /// Creates a storage buffer of `bytes` bytes; `visible` if the host should be able to write it directly.
    pub fn create_buffer(&mut self, bytes: u64, visible: bool, temporary: bool) -> Result<i32> {
        self.device.check_alive()?;
        self.check_size("byteLength", bytes, 0)?;
        let start = self.timing.start(Phase::CreateBuffer);
        let kind = if visible { Kind::Visible } else { Kind::Device };
        let capacity = memory::capacity(bytes.max(EMPTY_RANGE)).min(self.device.largest_buffer());
        self.reclaim(RETIRE_STEP);
        let resource = match self.find(capacity, kind)? {
            Some(resource) => resource,
            None => self.allocate(capacity, kind)?,
        };
        let handle = self.adopt(Arc::new(resource), bytes, temporary)?;
        self.clear_if_safe(handle)?;
        self.timing.end(start);
        Ok(handle)
    }

    /// Safe mode: zeroes a new buffer's memory, so that nobody sees what another buffer left there. The device has
    /// finished with that other buffer.
    pub(super) fn clear_if_safe(&mut self, handle: i32) -> Result<()> {
        let Some(isolation) = self.device.plan.safe else {
            return Ok(());
        };
        let slot = self.buffer_slot("handle", handle)?;
        let Some(buffer) = self.buffers.at(slot) else {
            return Ok(());
        };
        let resource = &buffer.resource;
        // The whole capacity, since a shader may reach beyond the buffer's end.
        let bytes = match isolation {
            Isolation::Range => {
                memory::capacity(buffer.bytes.max(EMPTY_RANGE)).min(resource.capacity)
            }
            Isolation::Buffer => resource.capacity,
        };
        if let Some(mapped) = buffer.mapped {
            // SAFETY: the mapping has `capacity` bytes, which only this new buffer uses. The next
            // submission makes host writes visible.
            unsafe { mapped.as_ptr().write_bytes(0, bytes as usize) };
            return Ok(());
        }
        // Goes to the stream even while this thread records a graph, to run once, before any launch.
        let recording = self.recording.take();
        let cleared = self.fill_words(slot, bytes & !3, 0);
        self.recording = recording;
        cleared.inspect_err(|_| {
            // It was live a moment ago.
            let _ = self.destroy_buffer(handle);
        })
    }

    /// Makes a handle for a resource that nothing else uses.
    pub(super) fn adopt(
        &mut self,
        resource: Arc<Resource>,
        bytes: u64,
        temporary: bool,
    ) -> Result<i32> {
        self.oversized |= bytes > self.device.binding_limits().largest;
        let buffer = Buffer {
            raw: resource.raw,
            offset: resource.offset,
            address: resource.address,
            range: match bytes {
                0 => EMPTY_RANGE,
                _ => bytes.min(self.device.binding_limits().largest),
            },
            marks: Default::default(),
            last_use: 0,
            bytes,
            mapped: resource.mapped.filter(|_| !self.staged_only),
            cached: resource.cached,
            resource,
            name: None,
            born: self.stream.pending_value(),
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

    /// A resource in an existing block, after reclaiming what the device has finished with.
    fn find(&mut self, capacity: u64, kind: Kind) -> Result<Option<Resource>> {
        let found = self.memory.take(capacity, kind);
        if found.is_some() || self.retired.is_empty() && self.retired_graphs.is_empty() {
            return Ok(found);
        }
        if self.waits_for_submission() {
            self.flush()?;
        }
        self.timeline.completed()?;
        self.reclaim(usize::MAX);
        Ok(self.memory.take(capacity, kind))
    }

    /// A new resource. Returns all idle memory to the driver before it lets the allocation fail.
    fn allocate(&mut self, capacity: u64, kind: Kind) -> Result<Resource> {
        self.catch_up()?;
        let first = self.memory.create(capacity, kind);
        self.stats.peak_block_bytes = self.stats.peak_block_bytes.max(self.memory.block_bytes());
        self.look_at_memory();
        let Err(Error::OutOfMemory { .. }) = first else {
            return first;
        };
        self.relieve()?;
        let hint = format!(
            " ({} live buffers hold {} bytes; the device has {})",
            self.buffers.len(),
            self.live_bytes,
            self.device.device_local_bytes()
        );
        let second = self.memory.create(capacity, kind);
        second.map_err(|error| error.with_hint(hint))
    }

    /// Waits for the device while destroyed buffers that it may be using exceed the limit.
    fn catch_up(&mut self) -> Result<()> {
        let most = RUN_AHEAD.max(self.live_bytes / 8);
        while self.retired_bytes > most
            && let Some(&(value, _)) = self.retired.front()
        {
            if value > self.stream.submitted {
                self.flush()?;
            }
            self.wait(value)?;
            self.reclaim(usize::MAX);
        }
        Ok(())
    }

    /// Whether much destroyed memory waits for work that is recorded but not submitted: without a submission it would
    /// never come back.
    fn waits_for_submission(&self) -> bool {
        let mut bytes = 0;
        let unsubmitted = self.retired.iter().rev();
        let count = unsubmitted
            .take_while(|&&(value, _)| value > self.stream.submitted)
            .take(MAX_UNSUBMITTED)
            .inspect(|(_, resource)| bytes += resource.capacity)
            .count();
        count == MAX_UNSUBMITTED || bytes >= MAX_UNSUBMITTED_BYTES
    }

    /// Frees all unused memory: waits for the device, then returns idle blocks to the driver.
    pub fn relieve(&mut self) -> Result<()> {
        self.drain()?;
        self.reclaim(usize::MAX);
        self.readback.trim();
        self.memory.trim();
        Ok(())
    }

    /// Reclaims up to `most` resources that the device has finished with.
    pub(super) fn reclaim(&mut self, most: usize) {
        if !self.retired_graphs.is_empty() {
            self.reclaim_graphs();
        }
        let seen = self.timeline.seen();
        for _ in 0..most {
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

    /// Recycles a resource, unless a graph still uses it: then the graph recycles it at its end.
    fn recycle(&mut self, resource: Arc<Resource>) {
        if let Some(resource) = Arc::into_inner(resource) {
            self.memory.destroy(resource);
        }
    }

    /// Sets a resource aside until the device has passed `value`.
    pub(super) fn retire(&mut self, resource: Arc<Resource>, value: u64) {
        if value <= self.timeline.seen() {
            self.recycle(resource);
            return;
        }
        // Ordered by value, so that the front is the next to become free.
        let value = self.retired.back().map_or(value, |&(v, _)| v.max(value));
        self.retired_bytes += resource.capacity;
        self.retired.push_back((value, resource));
    }

    /// The handle is invalid now; the memory is reused when the device has finished with it.
    pub fn destroy_buffer(&mut self, handle: i32) -> Result<()> {
        self.device.check_alive()?;
        let start = self.timing.start(Phase::DestroyBuffer);
        let buffer = self
            .buffers
            .remove(handle)
            .ok_or_else(|| Error::handle("handle", "buffer", handle))?;
        self.live_bytes -= buffer.bytes;
        let value = buffer.last_use.max(self.stream.everything_use);
        self.retire(buffer.resource, value);
        self.timing.end(start);
        Ok(())
    }

    /// Whether the device has finished with the buffer, without asking the driver twice.
    pub(super) fn idle(&self, slot: u32) -> bool {
        let Some(buffer) = self.buffers.at(slot) else {
            return false;
        };
        let value = buffer.last_use.max(self.stream.everything_use);
        value <= self.timeline.seen()
            || (value <= self.stream.submitted
                && self.timeline.completed().is_ok_and(|c| value <= c))
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
        let buffer = self.buffers.at(slot);
        Ok(buffer.map_or(0, |buffer| buffer.address + buffer.offset))
    }

    pub fn recycled(&self) -> (u64, u64, u64, u64) {
        let ((ranges, bytes), (reuses, returned)) = (self.memory.free(), self.memory.reuses());
        (ranges, bytes, reuses, returned)
    }

    pub fn retired_count(&self) -> usize {
        self.retired.len()
    }
}

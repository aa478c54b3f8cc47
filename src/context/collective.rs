//! Collectives: a copy out of the buffer, the other processes, and a copy back, in order with everything else.

use std::sync::Arc;

use ash::vk::Handle;
use collectives::nccl::{self, rank::Range as SharedRange};
use collectives::{Call, Cause, Copy, Element, Failure, Kind, Options, Phase};

use super::Context;
use crate::collective::group::{self, Group, Host, Payload};
use crate::collective::{on_device, thread};
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::memory::share::Exported;
use crate::memory::staging::Lease;
use crate::plan::hazard::Access;
use crate::queue::exit;

/// A range of a buffer in elements; without a count, to the buffer's end.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub buffer: i32,
    pub offset: u64,
    pub count: Option<u64>,
    pub element: Element,
}

/// The engine that runs collectives, and how to start it.
pub enum Engine {
    Mpi(Options),
    Nccl(nccl::rank::Options),
}

impl Context {
    /// Makes this process a member of a group and starts its thread.
    pub fn join_group(&mut self, engine: Engine) -> Result<()> {
        self.device.check_alive()?;
        if self.group.is_some() {
            return Err(Error::Batch(
                "this process is a member of a group: destroy() it first".to_owned(),
            ));
        }
        let (ranks, shared) = match &engine {
            Engine::Mpi(options) => ([options.rank, options.size], false),
            Engine::Nccl(options) => ([options.rank, options.size], true),
        };
        let group = Group::new(&self.device, &self.timeline, ranks, shared)?;
        match engine {
            Engine::Mpi(options) => thread::start(&group, options)?,
            Engine::Nccl(options) => {
                on_device::start(&group, options, self.device.snapshot.uuid)?;
            }
        }
        exit::at_exit(&group);
        group::set_current(Some(Arc::clone(&group)));
        self.group = Some(group);
        Ok(())
    }

    /// Forgets the group, which all ranks have left or which has failed. Results computed after its failure stay
    /// failed; calls from now on are valid.
    pub fn forget_group(&mut self) -> Result<()> {
        let Some(group) = self.group.clone() else {
            return Ok(());
        };
        if !group.failed() && group.state.lock().ledger.phase != Phase::Left {
            return Err(Error::Batch(
                "the group has neither been left nor failed".to_owned(),
            ));
        }
        group::set_current(None);
        self.group = None;
        // The device may still wait for the group's values, so the semaphore must live until it has passed them. A lost
        // device never does: there the semaphore lives as long as the device.
        let flushed = self.flush();
        let value = *flushed.as_ref().unwrap_or(&u64::MAX);
        self.exchanged.push_back((value, group));
        if let Some(handle) = self.exchange.take() {
            self.destroy_buffer(handle)?;
        }
        if flushed.is_ok() {
            self.timeline.validate_above(value);
        }
        self.reclaim_exchanged();
        Ok(())
    }

    /// The device is being destroyed: stop waiting for other processes.
    pub(super) fn abandon_group(&mut self) {
        if let Some(group) = &self.group {
            let (text, rank) = ("the device was destroyed", Some(group.rank));
            group.fail(Failure::new(Cause::Aborted, text, rank));
            group::set_current(None);
        }
    }

    /// Frees the memory of collectives that the device has finished with.
    pub(super) fn reclaim_exchanged(&mut self) {
        let seen = self.timeline.seen();
        while (self.exchanged.front()).is_some_and(|&(value, _)| value <= seen) {
            self.exchanged.pop_front();
        }
    }

    /// Checks the range of a collective against its buffer. Returns the buffer's slot, the byte at which the range
    /// starts, and its elements.
    fn collective_range(&self, range: Range) -> Result<(u32, u64, u64)> {
        let slot = self.buffer_slot("buffer", range.buffer)?;
        let bytes = range.element.bytes();
        let start = range.offset.saturating_mul(bytes);
        if !start.is_multiple_of(4) {
            let problem = "must be a multiple of 4 bytes";
            return Err(Error::range("offset", problem, range.offset));
        }
        let length = self.buffers.at(slot).map_or(0, |b: &Buffer| b.bytes);
        let rest = length.saturating_sub(start) / bytes;
        let count = range.count.unwrap_or(rest);
        let all = count.saturating_mul(bytes);
        self.check_range(slot, ["offset", "count"], start, all)?;
        Ok((slot, start, count))
    }

    /// A collective of all ranks of the group on a range of a buffer, after everything called so far and before
    /// everything called later. Returns its timeline value.
    pub fn collective(&mut self, kind: Kind, range: Range, root: u32) -> Result<u64> {
        let group = self.ready_group(kind)?;
        let (slot, start, elements) = self.collective_range(range)?;
        let call = Call {
            kind,
            element: range.element,
            elements,
            root,
            number: 0,
        };
        if let Some([argument, problem, value]) = call.problem(group.size) {
            return Err(Error::range(argument, problem, value));
        }
        match group.on_device {
            true => self.on_device(&group, call, (slot, start)),
            false => self.on_host(&group, call, (slot, start)),
        }
    }

    /// A collective on memory that the host can access: the buffer's own, if reading it is fast, or else a copy. A
    /// reduce-scatter always has its result in separate memory, since the result overlaps the first shard.
    fn on_host(&mut self, group: &Group, call: Call, at: (u32, u64)) -> Result<u64> {
        self.reclaim_exchanged();
        let Some(buffer) = self.buffers.at(at.0) else {
            return Err(Error::Internal("a checked buffer is gone".to_owned()));
        };
        let mapped = buffer.mapped.filter(|_| buffer.cached);
        // SAFETY: the range was checked to begin inside the buffer, which is mapped in one piece.
        let range = mapped.map(|first| unsafe { first.add(at.1 as usize) });
        let kept = (Arc::clone(&buffer.resource), Arc::clone(&self.memory));
        let lease = match call.staged_bytes(range.is_some(), group.size) {
            0 => None,
            bytes => Some(Arc::new(self.lease(bytes)?)),
        };
        let memory = Host {
            range,
            lease: lease.clone(),
            kept,
        };
        let called = self.enqueue(group, call, at, memory);
        if let Some(memory) = lease {
            // Also if the group has failed meanwhile: the device may be copying to the memory.
            let value = *called.as_ref().unwrap_or(&self.stream.pending_value());
            self.exchanged.push_back((value, memory));
        }
        called
    }

    fn enqueue(&mut self, of: &Group, call: Call, at: (u32, u64), memory: Host) -> Result<u64> {
        let (slot, start) = at;
        let [out, back] = call.staged(of.rank, of.size);
        let lease = memory.lease.clone();
        if let (None, Some(copy)) = (memory.range, &lease) {
            self.copy_staged(slot, start, copy, out, Access::READ)?;
        }
        let after = self.flush()?;
        self.open()?;
        let value = of.enqueue(call, after, Some(Payload::Host(memory)))?;
        // From here on the other ranks count on this one, so a failure is final.
        let commands = &mut self.recorder.commands;
        commands.wait(of.semaphore.as_raw(), value);
        commands.host_writes();
        let copied = match lease {
            Some(memory) => self.copy_staged(slot, start, &memory, back, Access::WRITE),
            None => self.transfer([(slot, Access::WRITE)]).map(drop),
        };
        let committed = copied.and_then(|()| self.commit());
        self.poison_if_partial(false, committed)
    }

    /// A collective on the device's own memory: in place if the buffer is exportable, or else on an exportable copy.
    /// The range begins at byte `start` of the buffer in `slot`.
    ///
    /// Nothing is submitted after it until the next call or wait. Consecutive collectives follow the same submission,
    /// and the next submission waits for the last of them.
    fn on_device(&mut self, group: &Group, call: Call, (slot, start): (u32, u64)) -> Result<u64> {
        let shared = |buffer: &Buffer| buffer.resource.shared().is_some_and(|b| b.exportable);
        let direct = self.buffers.at(slot).is_some_and(shared);
        let (at, offset) = match direct {
            true => (slot, start),
            false => (self.exchange_buffer(call.bytes())?, 0),
        };
        let [out, back] = call.staged_in_place(group.rank, group.size);
        if !direct {
            let (from, to) = ((slot, start + out.range), (at, out.staged));
            self.copy_between(from, to, out.bytes)?;
        }
        let range = self.shared_range(group, at, offset)?;
        if !self.stream.exchanging() {
            self.flush()?;
        }
        let (submitted, after) = (self.stream.submitted, self.stream.last);
        if !direct {
            self.open()?;
        }
        let number = group.enqueue(call, after, Some(Payload::Shared(range, submitted)))?;
        // From here on the other ranks count on this one, so a failure is final.
        let commands = &mut self.recorder.commands;
        commands.wait(group.semaphore.as_raw(), number);
        if !direct {
            let copied =
                self.copy_between((at, back.staged), (slot, start + back.range), back.bytes);
            self.poison_if_partial(false, copied)?;
            return Ok(self.stream.assign());
        }
        // Memory is shared, so the next submission begins with a barrier anyway.
        let value = self.stream.assign();
        self.stream.exchanged = Some(value);
        if let Some(buffer) = self.buffers.at_mut(slot) {
            buffer.last_use = value;
        }
        Ok(value)
    }

    /// Slot of an exportable buffer of at least `bytes` bytes, for copies of buffers that are not exportable.
    fn exchange_buffer(&mut self, bytes: u64) -> Result<u32> {
        if let Some(handle) = self.exchange {
            let slot = self.buffer_slot("buffer", handle)?;
            if self.buffers.at(slot).is_some_and(|b| b.bytes >= bytes) {
                return Ok(slot);
            }
            self.exchange = None;
            self.destroy_buffer(handle)?;
        }
        let handle = self.create_exportable(bytes)?;
        self.buffers.share(handle);
        self.exchange = Some(handle);
        self.buffer_slot("buffer", handle)
    }

    /// The memory of a buffer from byte `offset`, for the engine; with a file descriptor the first time.
    fn shared_range(&self, group: &Group, slot: u32, offset: u64) -> Result<SharedRange> {
        let buffer = self.buffers.at(slot);
        let Some((buffer, block)) = buffer.and_then(|b| Some((b, b.resource.shared()?))) else {
            return Err(Error::Internal("memory that is not shared".to_owned()));
        };
        let memory = Arc::downgrade(&block.name);
        let shared = &mut group.state.lock().shared;
        shared.retain(|known| known.strong_count() > 0);
        let fd = match shared.iter().any(|known| known.ptr_eq(&memory)) {
            true => None,
            false => self.memory.export(&buffer.resource, buffer.bytes)?,
        };
        if fd.is_some() {
            shared.push(memory.clone());
        }
        Ok(SharedRange {
            memory,
            fd: fd.map(Exported::into_owned),
            size: block.bytes,
            dedicated: block.dedicated,
            offset,
        })
    }

    /// Copies between two buffers, each given with its starting byte.
    fn copy_between(
        &mut self,
        (source, source_at): (u32, u64),
        (target, target_at): (u32, u64),
        bytes: u64,
    ) -> Result<()> {
        let accesses = [(source, Access::READ), (target, Access::WRITE)];
        let [from, to] = self.transfer(accesses)?;
        if bytes == 0 {
            return Ok(());
        }
        self.add_copy(from.0, from.1 + source_at, to.0, to.1 + target_at, bytes)
    }

    /// Leaves the group together with all other ranks, after everything called so far.
    pub fn leave_group(&mut self) -> Result<u64> {
        let group = self.ready_group(Kind::Leave)?;
        let call = Call::leave();
        let after = self.flush()?;
        let value = group.enqueue(call, after, None)?;
        let commands = &mut self.recorder.commands;
        commands.wait(group.semaphore.as_raw(), value);
        let committed = self.commit();
        self.poison_if_partial(false, committed)
    }

    /// The group, if it takes calls now.
    fn ready_group(&self, kind: Kind) -> Result<Arc<Group>> {
        self.device.check_alive()?;
        if self.recording_here() {
            return Err(Error::Batch(format!(
                "a graph is being recorded: {} cannot be part of one",
                kind.name()
            )));
        }
        let group = self.group.as_ref().ok_or_else(|| {
            Error::Batch(
                "this process is a member of no group: call init() of helios-vk/distributed".into(),
            )
        })?;
        group.check()?;
        Ok(Arc::clone(group))
    }

    /// Copies between the buffer and the memory of a collective: out of the buffer before it, back into it afterwards.
    fn copy_staged(
        &mut self,
        slot: u32,
        start: u64,
        memory: &Lease,
        copy: Copy,
        access: Access,
    ) -> Result<()> {
        if copy.bytes == 0 {
            return Ok(());
        }
        let [(buffer, base)] = self.transfer([(slot, access)])?;
        let at = base + start + copy.range;
        let (staged, staged_at) = (memory.raw(), memory.offset() + copy.staged);
        if access == Access::WRITE {
            return self.add_copy(staged, staged_at, buffer, at, copy.bytes);
        }
        self.add_copy(buffer, at, staged, staged_at, copy.bytes)?;
        if !self.direct_reads {
            // With direct reads, every submission ends visible to the host.
            self.recorder.commands.host_barrier();
        }
        Ok(())
    }
}

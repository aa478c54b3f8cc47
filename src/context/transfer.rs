//! Uploads, fills, copies and reads.

use std::sync::Arc;

use ash::vk::{self, Handle};

use super::Context;
use crate::error::{Error, Result};
use crate::memory::Kind;
use crate::memory::buffer::{GRAPH, STREAM};
use crate::memory::bulk::Source;
use crate::memory::staging::{Lease, UPLOAD_CHUNK, Upload};
use crate::plan::hazard::{Access, Stage, Stages};
use crate::timing::Phase;

/// Recorded uploads are submitted once they reach this many bytes, so that the copies run while the caller prepares
/// more.
const FLUSH_UPLOADS: u64 = 4 << 20;
/// Uploads up to this size into idle mapped memory bypass the ring. Above it the copy engine is faster than the
/// processor's writes across the bus, unless device memory is the host's.
const DIRECT_BYTES: u64 = 256 << 10;

/// What is left of a read after the lock is released and `value` is reached.
pub enum Read {
    /// Nothing: the bytes are in the lease.
    Staged { lease: Lease, value: u64 },
    /// Copy from the buffer itself, with [`Context::read_direct`].
    Direct { value: u64 },
}

impl Context {
    /// Checks the byte range `offset … offset + bytes` of a buffer. `names`: the arguments for its start and its
    /// contents.
    pub(super) fn check_range(
        &self,
        slot: u32,
        names: [&str; 2],
        offset: u64,
        bytes: u64,
    ) -> Result<()> {
        let size = self.buffers.at(slot).map_or(0, |b| b.bytes);
        if offset > size {
            let problem = format!("lies beyond the buffer's {size} bytes");
            return Err(Error::range(names[0], problem, offset));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(Error::range(
                names[1],
                if offset == 0 {
                    format!("does not fit the buffer's {size} bytes")
                } else {
                    format!("at byte {offset} does not fit the buffer's {size} bytes")
                },
                format!("{bytes} bytes"),
            ));
        }
        Ok(())
    }

    /// Records a barrier if a transfer with these accesses needs one, then notes its accesses. Returns where the
    /// buffers are. The barrier must come before the notes, because it would erase those of the same command.
    pub(super) fn transfer<const N: usize>(
        &mut self,
        accesses: [(u32, Access); N],
    ) -> Result<[(vk::Buffer, u64); N]> {
        let in_graph = self.recording_here();
        if !in_graph {
            self.open()?;
        }
        let value = self.stream.pending_value();
        let (tracker, place) = match in_graph {
            true => (&mut self.graph_tracker, GRAPH),
            false => (&mut self.stream.tracker, STREAM),
        };
        let mut conflict = false;
        let mut raw = [(vk::Buffer::null(), 0); N];
        for (raw, (slot, access)) in raw.iter_mut().zip(accesses) {
            let Some(buffer) = self.buffers.at(slot) else {
                return Err(Error::Internal("a checked buffer is gone".to_owned()));
            };
            conflict |= tracker.conflicts(&buffer.marks[place], access);
            *raw = (buffer.raw, buffer.offset);
        }
        let stages = match conflict {
            true => tracker.barrier(),
            false => Stages::NONE,
        };
        for (slot, access) in accesses {
            if let Some(buffer) = self.buffers.at_mut(slot) {
                tracker.note(&mut buffer.marks[place], access, Stage::Transfer);
                match &mut self.recording {
                    Some(recording) if in_graph => recording.uses(slot, &buffer.resource),
                    _ => buffer.last_use = value,
                }
            }
        }
        if conflict {
            match &mut self.recording {
                Some(recording) if in_graph => recording.barriers += 1,
                _ => self.stats.barriers += 1,
            }
            if !self.no_barriers {
                self.commands().barrier(stages);
            }
        }
        Ok(raw)
    }

    /// Copies `data` to `offset` in the buffer, in order with all other calls. `own_value`: the call returns a timeline
    /// value of its own, so it uses the ring even if the buffer is idle.
    pub fn upload(
        &mut self,
        handle: i32,
        data: Source<'_>,
        offset: u64,
        own_value: bool,
    ) -> Result<u64> {
        self.device.check_alive()?;
        let slot = self.buffer_slot("handle", handle)?;
        self.check_range(slot, ["byteOffset", "data"], offset, data.len() as u64)?;
        if self.recording_here() {
            self.upload_fixed(slot, data, offset)?;
            self.count_upload(data);
            return Ok(0);
        }
        let start = self.timing.start(Phase::Upload);
        if !own_value && self.upload_direct(slot, data, offset) {
            self.count_upload(data);
            self.timing.end(start);
            return Ok(0);
        }
        if !data.is_empty() {
            // A watched buffer is checked after the last piece.
            let busy = std::mem::replace(&mut self.watches.busy, true);
            let staged = self.upload_pieces(slot, data, offset);
            self.watches.busy = busy;
            staged?;
        }
        self.count_upload(data);
        self.timing.end(start);
        if self.blocking_uploads {
            self.drain()?;
        }
        if !own_value {
            return Ok(0);
        }
        if self.stream.submitted == self.stream.last && !self.stream.open && !data.is_empty() {
            // Submitted just now, under this call's value.
            return Ok(self.stream.submitted);
        }
        Ok(self.stream.assign())
    }

    fn count_upload(&mut self, data: Source<'_>) {
        self.stats.uploads += 1;
        self.stats.upload_bytes += data.len() as u64;
    }

    /// Copies `data` through the upload ring.
    fn upload_pieces(&mut self, slot: u32, data: Source<'_>, offset: u64) -> Result<()> {
        let mut piece = UPLOAD_CHUNK.min(data.len() as u64);
        let present = self.upload.as_ref().map_or(0, Upload::capacity);
        if piece > present && !self.grow_ring(piece)? {
            piece = present;
        }
        let [(target, start)] = self.transfer([(slot, Access::WRITE)])?;
        let mut done = start + offset;
        for chunk in data.chunks(piece as usize) {
            // Staging may have submitted the open commands to free space, and a new command buffer may forget what the
            // device has finished. So note this piece in any case.
            let staged = self.stage(chunk);
            let first = done == start + offset;
            let (source, at) = self.poison_if_partial(first, staged)?;
            let opened = self.open();
            self.poison_if_partial(first, opened)?;
            self.note_upload(slot);
            let bytes = chunk.len() as u64;
            self.add_copy(source, at, target, done, bytes)?;
            done += chunk.len() as u64;
            self.stream.open_uploads += chunk.len() as u64;
            if self.stream.open_uploads >= FLUSH_UPLOADS {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Notes one piece of an upload. Pieces do not overlap, so they need no barrier between them.
    fn note_upload(&mut self, slot: u32) {
        let value = self.stream.pending_value();
        if let Some(buffer) = self.buffers.at_mut(slot) {
            self.stream
                .tracker
                .note(&mut buffer.marks[STREAM], Access::WRITE, Stage::Transfer);
            buffer.last_use = value;
        }
    }

    /// Writes through the mapping if the device is not using the buffer.
    fn upload_direct(&mut self, slot: u32, data: Source<'_>, offset: u64) -> bool {
        let Some(buffer) = self.buffers.at(slot) else {
            return false;
        };
        let Some(mapped) = buffer.mapped else {
            return false;
        };
        if (data.len() as u64 > DIRECT_BYTES && !buffer.cached) || !self.idle(slot) {
            return false;
        }
        // SAFETY: the range was checked against the buffer, the device has finished with it, and
        // JS memory does not overlap it. The next submission makes host writes visible.
        unsafe { data.copy_to(mapped.as_ptr().add(offset as usize)) };
        self.stats.direct_uploads += 1;
        true
    }

    /// Puts a chunk into the upload ring. If that is too full, it grows, and beyond its largest size waits for its
    /// oldest copies.
    fn stage(&mut self, chunk: Source<'_>) -> Result<(vk::Buffer, u64)> {
        loop {
            let value = self.stream.pending_value();
            let Some(upload) = &mut self.upload else {
                return Err(Error::Internal("no upload ring".to_owned()));
            };
            upload.ring.retire(self.timeline.seen());
            if let Some(staged) = upload.stage(chunk, value) {
                return Ok(staged);
            }
            let Some(oldest) = upload.ring.oldest() else {
                return Err(Error::Internal("an empty upload ring is full".to_owned()));
            };
            // Copies may have finished since the device was last asked.
            if self.timeline.completed()? >= oldest || self.grow_ring(chunk.len() as u64)? {
                continue;
            }
            if oldest > self.stream.submitted {
                self.flush()?;
            }
            let start = self.timing.start(Phase::RingWait);
            self.stats.stalls += 1;
            self.wait(oldest)?;
            self.timing.end(start);
        }
    }

    /// Replaces the upload ring by a larger one, or makes the first one; whether it did. The copies in flight keep the
    /// old one's memory.
    fn grow_ring(&mut self, bytes: u64) -> Result<bool> {
        let before = self.upload.as_ref().map_or(0, Upload::capacity);
        let larger = match Upload::larger(&self.memory, before, bytes) {
            // The present ring takes smaller pieces, once copies have finished.
            Err(Error::OutOfMemory { .. }) if before > 0 => None,
            other => other?,
        };
        let grown = larger.is_some();
        if grown && let Some(old) = std::mem::replace(&mut self.upload, larger) {
            let (resource, value) = old.into_parts();
            self.retire(Arc::new(resource), value);
        }
        Ok(grown)
    }

    /// An upload inside a graph: its data is kept with the graph and copied at every launch.
    fn upload_fixed(&mut self, slot: u32, data: Source<'_>, offset: u64) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let source = self.memory.create(data.len() as u64, Kind::Upload)?;
        let Some(mapped) = source.mapped else {
            self.memory.destroy(source);
            return Err(Error::Internal("upload memory is not mapped".to_owned()));
        };
        // SAFETY: the resource is new, mapped and at least as long as `data`.
        unsafe { data.copy_to(mapped.as_ptr()) };
        let [(target, start)] = match self.transfer([(slot, Access::WRITE)]) {
            Ok(places) => places,
            Err(error) => {
                self.memory.destroy(source);
                return Err(error);
            }
        };
        let source = Arc::new(source);
        let (raw, from) = (source.raw, source.offset);
        if let Some(recording) = &mut self.recording {
            recording.keep(source);
        }
        self.add_copy(raw, from, target, start + offset, data.len() as u64)
    }

    /// Fills the first `bytes` bytes with a 32-bit pattern.
    pub fn fill(&mut self, handle: i32, bytes: u64, pattern: u32) -> Result<()> {
        self.device.check_alive()?;
        let slot = self.buffer_slot("handle", handle)?;
        if !bytes.is_multiple_of(4) {
            return Err(Error::range("bytes", "must be a multiple of 4", bytes));
        }
        self.check_range(slot, ["byteOffset", "bytes"], 0, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let start = self.timing.start(Phase::Record);
        self.fill_words(slot, bytes, pattern)?;
        self.timing.end(start);
        Ok(())
    }

    /// Fills `bytes` bytes, a multiple of 4, of the buffer's memory from its start.
    pub(super) fn fill_words(&mut self, slot: u32, bytes: u64, pattern: u32) -> Result<()> {
        let [(target, offset)] = self.transfer([(slot, Access::WRITE)])?;
        self.commands()
            .fill(target.as_raw(), offset, bytes, pattern);
        self.written()
    }

    /// Copies `bytes` bytes between two buffers, or between ranges of one that do not overlap.
    pub fn copy_buffer(
        &mut self,
        source: i32,
        source_offset: u64,
        target: i32,
        target_offset: u64,
        bytes: u64,
    ) -> Result<()> {
        self.device.check_alive()?;
        let from = self.buffer_slot("source", source)?;
        let to = self.buffer_slot("target", target)?;
        self.check_range(from, ["sourceOffset", "byteLength"], source_offset, bytes)?;
        self.check_range(to, ["targetOffset", "byteLength"], target_offset, bytes)?;
        if from == to && source_offset.abs_diff(target_offset) < bytes {
            return Err(Error::range(
                "byteLength",
                "makes source and target ranges of one buffer overlap",
                bytes,
            ));
        }
        if bytes == 0 {
            return Ok(());
        }
        let [(from_raw, from_start), (to_raw, to_start)] = if from == to {
            let [place] = self.transfer([(from, Access::READ_WRITE)])?;
            [place, place]
        } else {
            self.transfer([(from, Access::READ), (to, Access::WRITE)])?
        };
        self.add_copy(
            from_raw,
            from_start + source_offset,
            to_raw,
            to_start + target_offset,
            bytes,
        )
    }

    /// Adds a copy to the stream, or to the graph that this thread is recording.
    pub(super) fn add_copy(
        &mut self,
        source: vk::Buffer,
        source_offset: u64,
        target: vk::Buffer,
        target_offset: u64,
        bytes: u64,
    ) -> Result<()> {
        self.commands().copy(
            source.as_raw(),
            source_offset,
            target.as_raw(),
            target_offset,
            bytes,
        );
        self.written()
    }

    /// Starts a read of `bytes` bytes at `offset`, after everything called so far. The caller waits for the value
    /// without the lock.
    pub fn read(&mut self, handle: i32, offset: u64, bytes: u64) -> Result<Read> {
        let slot = self.check_read("handle", handle, offset, bytes)?;
        if let Some(buffer) = self.buffers.at(slot)
            && buffer.mapped.is_some()
            && buffer.cached
        {
            let value = buffer.last_use.max(self.stream.everything_use);
            if value > self.stream.submitted {
                self.flush_here()?;
            }
            self.stats.direct_reads += 1;
            self.count_read(bytes);
            return Ok(Read::Direct { value });
        }
        let lease = self.copy_out(slot, offset, bytes)?;
        let value = self.flush_here()?;
        self.count_read(bytes);
        // While the copy runs.
        self.reclaim(usize::MAX);
        Ok(Read::Staged { lease, value })
    }

    /// Starts a read as a copy command in the stream, even if the buffer could be read directly, so that later calls do
    /// not show in it. The lease holds the bytes once the value is reached, and must be kept until then.
    pub fn read_staged(&mut self, handle: i32, offset: u64, bytes: u64) -> Result<(Lease, u64)> {
        let slot = self.check_read("buffer", handle, offset, bytes)?;
        let lease = self.copy_out(slot, offset, bytes)?;
        self.count_read(bytes);
        let value = self.flush()?;
        Ok((lease, value))
    }

    fn count_read(&mut self, bytes: u64) {
        self.stats.reads += 1;
        self.stats.read_bytes += bytes;
    }

    /// The slot of a buffer that may be read now.
    fn check_read(&mut self, argument: &str, handle: i32, offset: u64, bytes: u64) -> Result<u32> {
        self.device.check_alive()?;
        let slot = self.buffer_slot(argument, handle)?;
        self.check_range(slot, ["byteOffset", "byteLength"], offset, bytes)?;
        if self.recording_here() {
            return Err(Error::Batch(
                "a graph is being recorded: its results exist only after graphLaunch".to_owned(),
            ));
        }
        Ok(slot)
    }

    /// Records a copy of a range into a readback block.
    fn copy_out(&mut self, slot: u32, offset: u64, bytes: u64) -> Result<Lease> {
        let lease = self.lease(bytes)?;
        if bytes > 0 {
            let [(source, start)] = self.transfer([(slot, Access::READ)])?;
            self.add_copy(source, start + offset, lease.raw(), lease.offset(), bytes)?;
            if !self.direct_reads {
                // With direct reads, every submission ends visible to the host.
                self.recorder.commands.host_barrier();
            }
        }
        Ok(lease)
    }

    pub(super) fn lease(&mut self, bytes: u64) -> Result<Lease> {
        match self.readback.lease(bytes) {
            Err(Error::OutOfMemory { .. }) => {
                self.readback.trim();
                self.readback.lease(bytes)
            }
            other => other,
        }
    }

    /// The second half of a direct read: copies from the buffer to `target`. The value that [`Context::read`] returned
    /// must have been reached.
    ///
    /// # Safety
    /// `target` must be valid for writes of `bytes` bytes.
    pub unsafe fn read_direct(
        &mut self,
        handle: i32,
        offset: u64,
        bytes: u64,
        target: *mut u8,
    ) -> Result<()> {
        let slot = self.buffer_slot("handle", handle)?;
        self.check_range(slot, ["byteOffset", "byteLength"], offset, bytes)?;
        if !self.idle(slot) {
            // Another worker has used the buffer since: wait for that too.
            let value = self.flush_here()?;
            self.wait(value)?;
        }
        let start = self.timing.start(Phase::ReadCopy);
        let Some(mapped) = self.buffers.at(slot).and_then(|b| b.mapped) else {
            return Err(Error::Internal("the buffer is not mapped".to_owned()));
        };
        // SAFETY: the range was checked; the caller vouches for `target`; the device has finished with
        // the buffer, and gets no work while this call holds the context.
        unsafe {
            std::ptr::copy_nonoverlapping(
                mapped.as_ptr().add(offset as usize),
                target,
                bytes as usize,
            );
        }
        self.timing.end(start);
        Ok(())
    }
}

//! Reads made ahead: copies of what will be read next, on their way while JavaScript looks at the last
//! result. What that is says [`Foresight`]. A read takes such a copy only if no command has written
//! anything since; one that nobody wants, or that a write has overtaken, is dropped.

use std::collections::VecDeque;

use super::Context;
use crate::error::Result;
use crate::foresight::{Coming, Foresight};
use crate::profile;
use crate::staging::{Lease, Readback};

/// Bytes that may be on their way or waiting to be read. More are made once half of them are used up,
/// or half of the copies, so that one submission serves several reads. With more, JavaScript finds the
/// results pushed out of the processor's cache: with 64 MiB it lost what the reads won (on an H200's
/// host, sums over results of 12.6 MB).
const MOST_BYTES: u64 = 16 << 20;
/// Copies that may be made ahead: 2 after the first read of a burst, 4 after the second and so on to
/// this many.
const MOST_COPIES: usize = 64;
/// Before anybody asks, a burst's first result is copied behind the work that makes it; and if it is of
/// this size at most…
const SMALL: u64 = 16 << 10;
/// …so many such ones.
const MOST_SMALL: usize = 4;

/// A copy on its way, or there.
struct Prefetched {
    handle: i32,
    offset: u64,
    bytes: u64,
    lease: Lease,
    /// The timeline value that says it is there.
    value: u64,
    /// Writes before it, of whatever buffers, as [`Foresight`] counts.
    writes: u64,
}

/// What a copy is made of.
struct Source {
    handle: i32,
    slot: u32,
    offset: u64,
    bytes: u64,
}

/// Copies made ahead.
pub(super) struct Ahead {
    pub foresight: Foresight,
    on: bool,
    copies: VecDeque<Prefetched>,
    /// Dropped ones that the device may still write, with the value that says when not.
    dropped: Vec<(u64, Lease)>,
    /// Index, in the burst, of the first read that was not looked at.
    next: usize,
    /// What was copied before its burst began: writes before, and the index behind it.
    early: (u64, usize),
    /// Copies that a read took, and dropped ones.
    hits: u64,
    unused: u64,
}

impl Ahead {
    pub fn new(on: bool) -> Self {
        Self {
            foresight: Foresight::default(),
            on,
            copies: VecDeque::new(),
            dropped: Vec::new(),
            next: 0,
            early: (0, 0),
            hits: 0,
            unused: 0,
        }
    }

    /// Bytes of blocks that hold copies.
    pub fn bytes(&self) -> u64 {
        let copies = self.copies.iter().map(|copy| &copy.lease);
        let dropped = self.dropped.iter().map(|(_, lease)| lease);
        copies.chain(dropped).map(Lease::capacity).sum()
    }

    /// Whether a copy of so many bytes may be made.
    fn fits(&self, bytes: u64, readback: &Readback) -> bool {
        self.bytes() + bytes <= MOST_BYTES && readback.fits(bytes)
    }

    /// Drops what `stays` does not keep; what the device has passed, it gives back.
    fn retain(&mut self, seen: u64, stays: impl Fn(&Prefetched) -> bool) {
        if self.copies.iter().any(|copy| !stays(copy)) {
            for copy in std::mem::take(&mut self.copies) {
                if stays(&copy) {
                    self.copies.push_back(copy);
                } else {
                    self.unused += 1;
                    self.dropped.push((copy.value, copy.lease));
                }
            }
        }
        self.dropped.retain(|(value, _)| *value > seen);
    }
}

impl Context {
    /// Whether reads are to be foreseen: not where memory changes unseen, or each command is looked at.
    /// What was copied before that is dropped.
    fn looks_ahead(&mut self) -> bool {
        let on = self.ahead.on && !self.shares && self.watches.is_empty() && !profile::on();
        let none = self.ahead.copies.is_empty() && self.ahead.dropped.is_empty();
        if !on && !none {
            self.forget_ahead();
        }
        on
    }

    /// The copy that was made ahead of this read, if there is one and nothing was written since. What
    /// else was recorded is submitted, as before any read.
    pub(super) fn take_ahead(
        &mut self,
        handle: i32,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<(Lease, u64)>> {
        if !self.looks_ahead() {
            return Ok(None);
        }
        let wanted = (handle, offset, bytes, self.ahead.foresight.writes());
        let is_wanted = |c: &Prefetched| (c.handle, c.offset, c.bytes, c.writes) == wanted;
        let Some(at) = self.ahead.copies.iter().position(is_wanted) else {
            return Ok(None);
        };
        self.flush()?;
        let copy = self.ahead.copies.remove(at);
        self.ahead.hits += u64::from(copy.is_some());
        Ok(copy.map(|copy| (copy.lease, copy.value)))
    }

    /// Notes a read, and makes copies of what is likely to be read after it. They are a matter of speed
    /// alone: for want of memory there are none, and what fails the device fails the next call.
    pub(super) fn look_ahead(&mut self, slot: u32, offset: u64, bytes: u64) {
        if !self.looks_ahead() {
            return;
        }
        let Some(buffer) = self.buffers.at(slot) else {
            return;
        };
        let whole = offset == 0 && bytes == buffer.bytes & !3;
        let foresight = &mut self.ahead.foresight;
        let begins = foresight.read(buffer.wrote, offset, (!whole).then_some(bytes));
        let (writes, seen) = (foresight.writes(), self.timeline.seen());
        if begins {
            let (at, behind) = self.ahead.early;
            self.ahead.next = if at == writes { behind } else { 0 };
            self.ahead.retain(seen, |copy| copy.writes == writes);
        }
        let (reads, expected) = (
            self.ahead.foresight.reads(),
            self.ahead.foresight.expected(),
        );
        self.ahead.next = self.ahead.next.max(reads);
        if self.ahead.next >= expected {
            return;
        }
        self.ahead.retain(seen, |_| true);
        let most = MOST_COPIES.min(1 << reads.min(16));
        let enough = self.ahead.next - reads > most / 2 || self.ahead.bytes() > MOST_BYTES / 2;
        if enough || !self.recorder.is_ready() {
            return;
        }
        let mut any = false;
        while self.ahead.next < expected.min(reads + most) {
            let coming = self.ahead.foresight.coming(self.ahead.next);
            if let Some(source) = coming.and_then(|coming| self.source(coming)) {
                if !self.ahead.fits(source.bytes, &self.readback) {
                    break;
                }
                let Some(lease) = self.readback.lease_idle(source.bytes) else {
                    break;
                };
                any |= self.copy_ahead(source, lease).is_some();
            }
            self.ahead.next += 1;
        }
        if any {
            self.submit_ahead();
        }
    }

    /// Behind a submission: copies what is likely to be read when it is done, small results or a larger one.
    pub(super) fn look_behind(&mut self) {
        if !self.looks_ahead() || self.recording_here() || !self.recorder.is_ready() {
            return;
        }
        if self.ahead.early.0 == self.ahead.foresight.writes() {
            // Done, behind the submission before.
            return;
        }
        self.ahead.retain(self.timeline.seen(), |_| true);
        let mut any = false;
        for index in 0..MOST_SMALL {
            let coming = self.ahead.foresight.soon(index);
            let Some(source) = coming.and_then(|coming| self.source(coming)) else {
                break;
            };
            let small = source.bytes <= SMALL;
            let alone = index == 0;
            if !(small || alone) || !self.ahead.fits(source.bytes, &self.readback) {
                break;
            }
            let Some(lease) = self.readback.lease_idle(source.bytes) else {
                break;
            };
            if !any {
                if self.open().is_err() {
                    return;
                }
                if !self.tracker.pending().is_empty() {
                    // Instead of a barrier these wait for the value of the work before.
                    self.tracker.retire();
                    self.wait_first = true;
                }
            }
            any |= self.copy_ahead(source, lease).is_some();
            self.ahead.early = (self.ahead.foresight.writes(), index + 1);
            if !small {
                break;
            }
        }
        if any {
            self.submit_ahead();
        }
    }

    /// What a read that is likely to come would copy, if it can be copied now.
    fn source(&self, coming: Coming) -> Option<Source> {
        let slot = coming.slot;
        let (handle, buffer) = (self.buffers.handle(slot)?, self.buffers.at(slot)?);
        let offset = coming.offset;
        let bytes = coming.bytes.unwrap_or(buffer.bytes & !3);
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= buffer.bytes);
        // What is mapped may be written without a command.
        let steady = buffer.wrote == coming.wrote && buffer.mapped.is_none();
        (steady && inside && bytes > 0).then_some(Source {
            handle,
            slot,
            offset,
            bytes,
        })
    }

    /// Adds the copy of a result that will be read; none if that fails.
    fn copy_ahead(&mut self, source: Source, lease: Lease) -> Option<()> {
        let Source {
            handle,
            slot,
            offset,
            bytes,
        } = source;
        self.copy_to(&lease, slot, offset, bytes).ok()?;
        self.ahead.copies.push_back(Prefetched {
            handle,
            offset,
            bytes,
            lease,
            value: self.pending_value(),
            writes: self.ahead.foresight.writes(),
        });
        Some(())
    }

    /// Reads whose copy was made ahead, and such copies that were dropped.
    pub fn reads_ahead(&self) -> (u64, u64) {
        (self.ahead.hits, self.ahead.unused)
    }

    /// Bytes of readback blocks that hold results for JavaScript, and of those that hold copies made ahead.
    pub fn leased_bytes(&self) -> (u64, u64) {
        let (all, ahead) = (self.readback.leased_bytes(), self.ahead.bytes());
        (all.saturating_sub(ahead), ahead)
    }

    /// Submits copies made ahead, under a value that no caller is told of.
    fn submit_ahead(&mut self) {
        self.show_copies();
        let told = self.told;
        let _ = self.flush();
        self.told = told;
    }

    /// Drops all copies; what the device may still write stays until it has passed that.
    pub(super) fn forget_ahead(&mut self) {
        let seen = self.timeline.seen();
        self.ahead.retain(seen, |_| false);
    }
}

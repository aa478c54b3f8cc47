//! Hazards between commands: when must a barrier precede the next one?
//!
//! Commands are recorded in call order into one queue. A command needs a barrier before it if it reads what an
//! unordered command wrote, or writes what an unordered command read or wrote. The barrier is global: it orders
//! everything recorded before it against everything after it. So all notes can be forgotten by starting a new epoch, in
//! constant time.
//!
//! For each command: call [`Tracker::conflicts`] for each binding. If any conflicts, call [`Tracker::barrier`] and
//! record one memory barrier from the stages it returns to all that follow. Then call [`Tracker::note`] for each
//! binding.

#![deny(unsafe_code)]

use std::ops::{BitOr, BitOrAssign};

/// The epochs in which a buffer was last read and written. Belongs to one [`Tracker`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    read: u64,
    write: u64,
}

/// What a command does with a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// It may read.
    pub read: bool,
    /// It may write.
    pub write: bool,
}

impl Access {
    /// Does not touch it.
    pub const NONE: Self = Self {
        read: false,
        write: false,
    };
    /// Only reads.
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// Only writes.
    pub const WRITE: Self = Self {
        read: false,
        write: true,
    };
    /// Reads and writes.
    pub const READ_WRITE: Self = Self {
        read: true,
        write: true,
    };
}

/// Where on the device a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Dispatches.
    Compute,
    /// Copies and fills.
    Transfer,
}

/// A set of [`Stage`]s: the source scope of a barrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// No stage.
    pub const NONE: Self = Self(0);
    /// Dispatches.
    pub const COMPUTE: Self = Self(1);
    /// Copies and fills.
    pub const TRANSFER: Self = Self(2);

    /// The set as a number below 4, for [`Stages::from_bits`].
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set that [`Stages::bits`] returned.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 3)
    }

    /// Whether the set is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every stage of `other` is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl From<Stage> for Stages {
    #[inline]
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Compute => Self::COMPUTE,
            Stage::Transfer => Self::TRANSFER,
        }
    }
}

impl BitOr for Stages {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Stages {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The current epoch and its accesses. The rest is in each buffer's [`Marks`].
#[derive(Debug)]
pub struct Tracker {
    /// Marks of this epoch are not ordered before the next command; older ones are.
    epoch: u64,
    /// Stages of the commands noted in this epoch.
    pending: Stages,
    /// Any access to any buffer; at least as recent as every buffer's marks.
    any: Marks,
    /// Accesses that may have touched every buffer.
    everything: Marks,
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new()
    }
}

impl Tracker {
    /// A tracker of a queue on which nothing was recorded.
    #[must_use]
    pub fn new() -> Self {
        Self {
            // Above the default of `Marks`, so that a new buffer has no conflicts.
            epoch: 1,
            pending: Stages::NONE,
            any: Marks::default(),
            everything: Marks::default(),
        }
    }

    /// Whether `access` to the buffer of `marks` needs a barrier first.
    #[inline]
    #[must_use]
    pub fn conflicts(&self, marks: &Marks, access: Access) -> bool {
        self.overlaps(marks, access) | self.overlaps(&self.everything, access)
    }

    /// Whether an access that may touch every buffer (through device addresses, or by a recorded
    /// graph) needs a barrier first.
    #[inline]
    #[must_use]
    pub fn conflicts_everything(&self, access: Access) -> bool {
        self.overlaps(&self.any, access)
    }

    /// Notes a recorded access to the buffer of `marks`.
    #[inline]
    pub fn note(&mut self, marks: &mut Marks, access: Access, stages: impl Into<Stages>) {
        self.mark(marks, access);
        self.note_any(access, stages.into());
    }

    /// Notes a recorded access that may have touched every buffer.
    #[inline]
    pub fn note_everything(&mut self, access: Access, stages: impl Into<Stages>) {
        let mut everything = self.everything;
        self.mark(&mut everything, access);
        self.everything = everything;
        self.note_any(access, stages.into());
    }

    /// Starts the next epoch, after a barrier that the caller records. Returns that barrier's source stages; if they
    /// are empty, nothing was noted since the last barrier and there is nothing to order.
    ///
    /// The barrier's destination must be every stage and access that this tracker is given. If the command buffer with
    /// the barrier is dropped instead of submitted, nothing is ordered: then note everything as read and written by all
    /// stages, so that the next command gets a barrier.
    #[inline]
    #[must_use = "the epoch has moved on: the barrier must be recorded"]
    pub fn barrier(&mut self) -> Stages {
        self.epoch += 1;
        std::mem::take(&mut self.pending)
    }

    /// Starts the next epoch without a barrier, because something else has ordered everything noted so far before
    /// everything that follows: the next submission waits for its timeline value, or the queue has been drained.
    #[inline]
    pub fn retire(&mut self) {
        self.epoch += 1;
        self.pending = Stages::NONE;
    }

    /// Stages of what was noted since the last barrier.
    #[inline]
    #[must_use]
    pub fn pending(&self) -> Stages {
        self.pending
    }

    #[inline]
    fn overlaps(&self, marks: &Marks, access: Access) -> bool {
        let written = marks.write == self.epoch;
        let read = marks.read == self.epoch;
        (access.read | access.write) & written | access.write & read
    }

    #[inline]
    fn mark(&self, marks: &mut Marks, access: Access) {
        if access.read {
            marks.read = self.epoch;
        }
        if access.write {
            marks.write = self.epoch;
        }
    }

    #[inline]
    fn note_any(&mut self, access: Access, stages: Stages) {
        let mut any = self.any;
        self.mark(&mut any, access);
        self.any = any;
        self.pending |= stages;
    }
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;

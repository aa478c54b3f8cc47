//! State of the stream: what was called, what of it was submitted, and what still has to be ordered.

use crate::plan::hazard::Tracker;

pub(super) struct Stream {
    /// Last timeline value given to anything.
    pub last: u64,
    /// Last value handed over for submission.
    pub submitted: u64,
    /// Whether there are commands behind the last submission.
    pub open: bool,
    /// The value of the last call, if that was a collective on the device's own memory: it is behind the last submission.
    pub exchanged: Option<u64>,
    pub open_dispatches: u32,
    /// Bytes of uploads recorded since the last submission.
    pub open_uploads: u64,
    /// Whether the next submission waits on the last one's value (long reached), as the
    /// memory dependency that lets the planner forget all before it.
    pub wait_first: bool,
    /// Value of the last work that may have touched every buffer.
    pub everything_use: u64,
    pub tracker: Tracker,
}

impl Stream {
    /// `start`: the timeline's first value.
    pub fn new(start: u64) -> Self {
        Self {
            last: start,
            submitted: start,
            open: false,
            exchanged: None,
            open_dispatches: 0,
            open_uploads: 0,
            wait_first: false,
            everything_use: start,
            tracker: Tracker::new(),
        }
    }

    /// The value that work recorded now will have been finished at.
    #[inline]
    pub fn pending_value(&self) -> u64 {
        self.last + 1
    }

    /// A new timeline value, for a call that returns it before its work is submitted.
    pub fn assign(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether nothing but collectives on the device's own memory came behind the last submission.
    pub fn exchanging(&self) -> bool {
        !self.open && self.exchanged == Some(self.last)
    }

    /// Whether anything waits for a submission: commands, or a value that was given out.
    pub fn unsubmitted(&self) -> bool {
        self.open || self.submitted < self.last
    }

    /// All that was recorded goes under `value`.
    pub fn submit(&mut self, value: u64) {
        self.open = false;
        self.submitted = value;
        self.open_dispatches = 0;
        self.open_uploads = 0;
    }
}

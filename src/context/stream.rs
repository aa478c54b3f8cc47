//! State of the stream: what was called, what of it was submitted, and what is not ordered yet.

use crate::plan::hazard::Tracker;

pub(super) struct Stream {
    /// Last timeline value given out.
    pub last: u64,
    /// Last value handed over for submission.
    pub submitted: u64,
    /// Whether there are commands after the last submission.
    pub open: bool,
    /// The value of the last call, if it was a collective on the device's own memory, and so follows the last
    /// submission.
    pub exchanged: Option<u64>,
    pub open_dispatches: u32,
    /// Bytes of uploads recorded since the last submission.
    pub open_uploads: u64,
    /// Whether the next submission waits for the last one's value (reached long ago): a memory dependency that lets the
    /// planner forget everything before it.
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

    /// The value at which work recorded now will be finished.
    #[inline]
    pub fn pending_value(&self) -> u64 {
        self.last + 1
    }

    /// A new timeline value for a call that returns before its work is submitted.
    pub fn assign(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether only collectives on the device's own memory followed the last submission.
    pub fn exchanging(&self) -> bool {
        !self.open && self.exchanged == Some(self.last)
    }

    /// Whether anything waits for a submission: commands, or a value that was given out.
    pub fn unsubmitted(&self) -> bool {
        self.open || self.submitted < self.last
    }

    /// Everything recorded is submitted under `value`.
    pub fn submit(&mut self, value: u64) {
        self.open = false;
        self.submitted = value;
        self.open_dispatches = 0;
        self.open_uploads = 0;
    }
}

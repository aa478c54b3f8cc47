//! Where host time goes, by phase, with `HELIOS_HOST_TIMING=1`.
#![deny(unsafe_code)]

use std::time::{Duration, Instant};

/// Phases are disjoint: their sum is the time that the addon's own work takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Decode,
    Record,
    Submit,
    /// Waits for the GPU, for a command slot or for staging space.
    RingWait,
    CreateBuffer,
    DestroyBuffer,
    Upload,
    ReadCopy,
    CreatePipeline,
}

pub const PHASES: [(Phase, &str); 9] = [
    (Phase::Decode, "decode"),
    (Phase::Record, "record"),
    (Phase::Submit, "submit"),
    (Phase::RingWait, "ring_wait"),
    (Phase::CreateBuffer, "create_buffer"),
    (Phase::DestroyBuffer, "destroy_buffer"),
    (Phase::Upload, "upload"),
    (Phase::ReadCopy, "read_copy"),
    (Phase::CreatePipeline, "create_pipeline"),
];

#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    pub nanoseconds: u64,
    pub calls: u64,
}

/// The phase that another one interrupted, to be resumed when that ends.
#[derive(Debug, Clone, Copy)]
pub struct Scope(Option<Phase>);

#[derive(Debug, Default)]
pub struct Timing {
    pub enabled: bool,
    pub batches: u64,
    pub dispatches: u64,
    pub clock_reads: u64,
    pub totals: [Total; PHASES.len()],
    /// The phase that time is counted for now, and since when.
    current: Option<(Phase, Instant)>,
}

impl Timing {
    pub fn new(enabled: bool) -> Self {
        Self {
            enabled,
            ..Self::default()
        }
    }

    fn now(&mut self) -> Instant {
        self.clock_reads += 1;
        Instant::now()
    }

    /// Clears a phase that an error left open.
    #[inline]
    pub fn begin_call(&mut self) {
        self.current = None;
    }

    /// Starts a phase; the enclosing one pauses until [`Timing::end`].
    #[inline]
    pub fn start(&mut self, phase: Phase) -> Option<Scope> {
        if !self.enabled {
            return None;
        }
        let now = self.now();
        let around = self.current.replace((phase, now));
        if let Some((phase, since)) = around {
            self.totals[phase as usize].nanoseconds += (now - since).as_nanos() as u64;
        }
        Some(Scope(around.map(|(phase, _)| phase)))
    }

    #[inline]
    pub fn end(&mut self, scope: Option<Scope>) {
        let Some(Scope(around)) = scope else {
            return;
        };
        let now = self.now();
        if let Some((phase, since)) = self.current.take() {
            let total = &mut self.totals[phase as usize];
            total.nanoseconds += (now - since).as_nanos() as u64;
            total.calls += 1;
        }
        self.current = around.map(|phase| (phase, now));
    }

    /// Moves `time` from the current phase to another.
    #[inline]
    pub fn shift(&mut self, phase: Phase, time: Duration) {
        if time.is_zero() || !self.enabled {
            return;
        }
        if let Some((_, since)) = &mut self.current {
            *since += time;
        }
        let total = &mut self.totals[phase as usize];
        total.nanoseconds += time.as_nanos() as u64;
        total.calls += 1;
    }

    /// Adds a wait that was made without the lock.
    pub fn waited(&mut self, since: Instant) {
        if !self.enabled {
            return;
        }
        let total = &mut self.totals[Phase::RingWait as usize];
        self.clock_reads += 2;
        total.nanoseconds += since.elapsed().as_nanos() as u64;
        total.calls += 1;
    }

    pub fn reset(&mut self) {
        *self = Self::new(self.enabled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_phases_are_disjoint() {
        let mut timing = Timing {
            enabled: true,
            ..Timing::default()
        };
        let begun = Instant::now();
        let outer = timing.start(Phase::Record);
        let inner = timing.start(Phase::Submit);
        let inside = Instant::now();
        while inside.elapsed().as_millis() < 5 {}
        timing.end(inner);
        timing.end(outer);
        let whole = begun.elapsed().as_nanos() as u64;
        let record = timing.totals[Phase::Record as usize];
        let submit = timing.totals[Phase::Submit as usize];
        assert_eq!((record.calls, submit.calls), (1, 1));
        assert!(submit.nanoseconds >= 5_000_000);
        assert!(record.nanoseconds + submit.nanoseconds <= whole);
        assert_eq!(timing.clock_reads, 4);
    }

    #[test]
    fn nothing_is_measured_unless_asked_for() {
        let mut timing = Timing::default();
        let scope = timing.start(Phase::Decode);
        timing.end(scope);
        assert_eq!(timing.clock_reads, 0);
        assert_eq!(timing.totals[Phase::Decode as usize].calls, 0);
    }
}

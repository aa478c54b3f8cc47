//! Where the host's time goes, by phase, when `HELIOS_HOST_TIMING=1` asks.
#![deny(unsafe_code)]

use std::time::Instant;

/// Phases are disjoint: their sum is the time spent in the addon's own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Decode,
    Record,
    Submit,
    /// Waiting for the GPU, for a command slot or for staging space.
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

#[derive(Debug, Default)]
pub struct Timing {
    pub enabled: bool,
    pub batches: u64,
    pub dispatches: u64,
    pub clock_reads: u64,
    pub totals: [Total; PHASES.len()],
}

impl Timing {
    /// Time now, if timing is on.
    #[inline]
    pub fn start(&mut self) -> Option<Instant> {
        if !self.enabled {
            return None;
        }
        self.clock_reads += 1;
        Some(Instant::now())
    }

    #[inline]
    pub fn end(&mut self, phase: Phase, start: Option<Instant>) {
        let Some(start) = start else {
            return;
        };
        self.clock_reads += 1;
        let total = &mut self.totals[phase as usize];
        total.nanoseconds += start.elapsed().as_nanos() as u64;
        total.calls += 1;
    }

    pub fn reset(&mut self) {
        *self = Self {
            enabled: self.enabled,
            ..Self::default()
        };
    }
}

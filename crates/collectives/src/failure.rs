//! How a group of processes fails.
#![deny(unsafe_code)]

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No library loads.
    NoEngine,
    /// The ranks do not come together.
    Rendezvous,
    /// The ranks call different collectives.
    Mismatch,
    /// A process has ended, or is not heard of.
    PeerLost,
    /// A collective took too long.
    Timeout,
    /// The engine's own error.
    Engine,
    /// One side gave up.
    Aborted,
}

impl Cause {
    pub const ALL: [Self; 7] = [
        Self::NoEngine,
        Self::Rendezvous,
        Self::Mismatch,
        Self::PeerLost,
        Self::Timeout,
        Self::Engine,
        Self::Aborted,
    ];
}

/// A failure of the group, the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub cause: Cause,
    pub message: String,
    /// The rank that it is about, where it is about one.
    pub rank: Option<u32>,
}

impl Failure {
    pub fn new(cause: Cause, message: impl Into<String>, rank: Option<u32>) -> Self {
        Self {
            cause,
            message: message.into(),
            rank,
        }
    }

    pub fn engine(message: impl Into<String>) -> Self {
        Self::new(Cause::Engine, message, None)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

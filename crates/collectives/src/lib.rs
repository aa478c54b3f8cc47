//! Collectives between processes, on host memory and on the device's: no Vulkan, no Node-API.
//!
//! `call` is what the ranks ask for, `ledger` what one of them has under way, `member` one rank at work over `mpi`,
//! and `nccl` the engine of NVIDIA's devices with its own.

#![warn(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod call;
mod failure;
mod ledger;
mod member;
mod mpi;
pub mod nccl;

pub use call::{Call, Copy, Element, Kind};
pub use failure::{Cause, Failure};
pub use ledger::{Job, Ledger, Phase};
pub use member::{Ended, MAX_TEXT, Member, Memory, Options};
pub use mpi::flavor::Flavor;
pub use mpi::library::{Found, Missing, probe};

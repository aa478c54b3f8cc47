//! Collectives between processes, on host memory and on the device's: no Vulkan, no Node-API.
//!
//! `call` is a collective call, `ledger` the calls that one rank has under way, `member` a rank that works over `mpi`, and
//! `nccl` a rank that works on the memory of NVIDIA's devices.

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

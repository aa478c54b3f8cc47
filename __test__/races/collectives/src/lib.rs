//! The crate `collectives` with its own files for what one rank does, and a stand-in for the MPI below them: the other ranks are
//! always there, call the same, and each sum adds one to every word.

#[path = "../../../../crates/collectives/src/call.rs"]
mod call;
#[path = "../../../../crates/collectives/src/failure.rs"]
mod failure;
#[path = "../../../../crates/collectives/src/ledger.rs"]
mod ledger;
#[path = "../../../../crates/collectives/src/member.rs"]
#[allow(dead_code)]
mod member;
pub mod mpi;

/// Names of the engine on the device that the group's files speak of; nothing here is one.
pub mod nccl {
    pub mod cuda {
        pub use std::os::fd::OwnedFd;
    }
    pub mod rank {
        pub struct Range;
    }
}

pub use call::{Call, Copy, Element, Kind};
pub use failure::{Cause, Failure};
pub use ledger::{Job, Ledger, Phase};
pub use member::{Ended, Member, Memory, Options};

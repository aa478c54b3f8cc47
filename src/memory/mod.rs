//! Memory of the device and for staging: blocks from the driver, divided by the policy of `memory_policy`.

pub mod allocator;
mod blocks;
pub mod buffer;
pub mod bulk;
pub mod host_memory;
pub mod kind;
pub mod share;
pub mod staging;

pub use allocator::{Memory, Resource, Usage, capacity};
pub use kind::Kind;

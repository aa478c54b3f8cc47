//! Memory of the device and of staging: the blocks that the driver gives, and what is made of them by the policy of `memory_policy`.

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

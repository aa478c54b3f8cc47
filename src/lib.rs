//! helios-vk: a Vulkan compute device for Node.js.
//!
//! Every call takes the same path, and no stage depends on one above it:
//!
//! ```text
//! JS call ─ api ──► decode ──► hazard ──► record ──► submit ──► timeline
//!           │        │           │          │          │          │
//!           │        checked     barrier    command    queue      value reached:
//!           │        lists       or not     slots                 results, reuse
//!           └─ context: owns the device and lets each call append to one stream of work
//! ```
//!
//! Calls behave as if each dispatch, fill, upload and read ran alone, in call order. Rings, staging and batches change
//! only the speed.

#![warn(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

// Tests do not register the module, so nothing calls it there.
#[cfg_attr(test, allow(dead_code))]
mod api;
pub mod collective;
pub mod config;
pub mod context;
pub mod device;
pub mod error;
pub mod memory;
pub mod observe;
pub mod pipeline;
pub mod queue;
pub mod record;
pub mod shaders;
pub mod test_faults;
pub mod timing;
pub mod vk_ext;

/// Integers that name buffers, pipelines and graphs, and whose these are.
pub use handle_table as table;
/// The file of compiled pipelines.
pub use pipeline_cache;
/// The parts without Vulkan: packed lists to checked batches, accesses to barriers.
pub use plan;

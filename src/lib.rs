//! helios-vk: a Vulkan compute device for Node.js.
//!
//! Every call takes the same way, and no stage knows one above it:
//!
//! ```text
//! JS call ─ api ──► decode ──► hazard ──► record ──► submit ──► timeline
//!           │        │           │          │          │          │
//!           │        checked     barrier    command    queue      value reached:
//!           │        lists       or not     slots                 results, reuse
//!           └─ context: owns the device and lets each call append to one stream of work
//! ```
//!
//! What a call does is as if each dispatch, fill, upload and read ran alone, in call order; rings,
//! staging and batches change nothing but the speed.

#![warn(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

// Tests do not register the module, so nothing calls it there.
#[cfg_attr(test, allow(dead_code))]
mod api;
pub mod arena;
pub mod background;
pub mod blackbox;
pub mod buffer;
pub mod bulk;
pub mod commands;
pub mod completion;
pub mod context;
pub mod decode;
pub mod device;
pub mod error;
pub mod foresight;
pub mod hazard;
pub mod leave;
pub mod memory;
pub mod pipeline;
pub mod plan;
pub mod pressure;
pub mod profile;
pub mod record;
pub mod recorder;
pub mod reflect;
pub mod ring;
pub mod shaders;
pub mod share;
pub mod staging;
pub mod submit;
pub mod table;
pub mod test_loss;
pub mod timeline;
pub mod timing;
pub mod vk_ext;

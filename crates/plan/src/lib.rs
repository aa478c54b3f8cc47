//! Pure planning: packed lists to checked batches, accesses to barriers. No Vulkan calls and no `unsafe`.

#![deny(unsafe_code)]

pub mod decode;
pub mod hazard;

//! Pure planning: packed lists to checked batches, accesses to barriers. No Vulkan call is made here and
//! nothing is `unsafe`.

#![deny(unsafe_code)]

pub mod decode;
pub mod hazard;

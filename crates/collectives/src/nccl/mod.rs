//! NCCL on memory of a Vulkan device, through the driver interface of CUDA: neither is linked.
//!
//! [`cuda`] has the calls of CUDA's driver, [`library`] those of NCCL, and [`rank`] one rank at work. Declarations are
//! those of `cuda.h` 12.8 and `nccl.h` 2.27.5.

mod bind;
pub mod cuda;
pub mod library;
pub mod rank;

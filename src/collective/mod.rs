//! Collectives: calls of the stream during which the device waits while the host exchanges data with other processes.
//!
//! The stream copies what a collective sends into mapped memory. The [`group`]'s thread waits for the timeline value of
//! that copy, runs the collective on the memory, and signals a second timeline. The next submission waits for that one
//! and copies the result back. No JavaScript thread waits for any of it.
//!
//! NCCL works on the device's own memory: [`on_device`] hands over to a CUDA stream, which signals the second timeline.

pub mod group;
pub mod on_device;
pub mod thread;

//! Collectives: calls of the stream at which the device waits for the host, and the host exchanges data with other processes.
//!
//! The stream copies what a collective sends into mapped memory; the thread of the [`group`] waits for the timeline
//! value of that copy, runs the collective on the memory, and signals a second timeline, which the submission behind
//! it waits for before it copies the result back. No JavaScript thread waits for any of it.
//!
//! NCCL works on the device's own memory: [`on_device`] hands over to a stream of CUDA's, which signals that timeline itself.

pub mod group;
pub mod on_device;
pub mod thread;

//! From the stream's commands to submitted command buffers: compact command words, the encoder, descriptor sets, the
//! ring of command slots, and the thread that drives them.

pub mod commands;
pub mod descriptors;
pub mod encoder;
pub mod recorder;
pub mod ring;

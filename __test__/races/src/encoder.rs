//! An encoder that notes what the device is to do. It reads the order of a command in the stream from
//! a field that the device has no use for here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ash::vk::{self, Handle};

use crate::device::{Buffer, Device, Op, State};
use crate::error::{Error, Result};
use crate::observe::blackbox::{BlackBox, Log};
use crate::pipeline::Program;
use crate::plain::Block;
use crate::plan::hazard::Stages;
use crate::record::descriptors::Descriptors;

pub fn bytes(words: &[u64], len: usize) -> &[u8] {
    // SAFETY: any byte of the words is a `u8`.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), len.min(size_of_val(words))) }
}

pub struct Encoder {
    device: Arc<Device>,
    pub raw: vk::CommandBuffer,
    pub log: Log,
}

impl Encoder {
    pub fn new(device: Arc<Device>, _: Arc<BlackBox>, raw: vk::CommandBuffer) -> Self {
        Self {
            device,
            raw,
            log: Log,
        }
    }

    fn step(&self, from: State, to: State) {
        self.device.raw.still_works();
        let state = &Buffer::of(self.raw).state;
        assert_eq!(state.get(), from);
        state.set(to);
    }

    fn note(&self, op: Op) {
        self.step(State::Recording, State::Recording);
        Buffer::of(self.raw).ops.with(|ops| ops.push(op));
    }

    pub fn begin(&mut self, once: bool) -> Result<()> {
        assert!(once);
        self.step(State::Initial, State::Recording);
        Ok(())
    }

    pub fn end(&mut self) -> Result<()> {
        self.step(State::Recording, State::Executable);
        Ok(())
    }

    pub fn barrier(&mut self, _: Stages) {
        self.step(State::Recording, State::Recording);
    }

    pub fn host_writes(&mut self) {
        self.step(State::Recording, State::Recording);
    }

    pub fn host_barrier(&mut self) {
        self.step(State::Recording, State::Recording);
    }

    /// The order is in `groups`; the first binding is written.
    pub fn dispatch(
        &mut self,
        descriptors: &mut Descriptors,
        program: &Program,
        bindings: &[u64],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<()> {
        let order = u64::from(groups[0]);
        let raw = &self.device.raw;
        let refuse_at = raw.front.refuse_at.load(Ordering::Relaxed);
        if refuse_at != 0 && order >= refuse_at {
            raw.fail();
            return Err(Error::OutOfMemory("a test"));
        }
        descriptors.recorded(vk::DescriptorSetLayout::null());
        descriptors.allocate(vk::DescriptorSetLayout::null())?;
        let &[target, at, _] = bindings else {
            return Err(Error::Internal("not one binding".to_owned()));
        };
        let word = push
            .first_chunk()
            .map_or(0, |word| u64::from_ne_bytes(*word));
        // As the real one: what the caller has written before it made the pipeline known.
        let program = program.kernel.as_raw();
        assert_ne!(Block::of(program).get(0), 0);
        self.note(Op::Dispatch {
            order,
            program,
            target,
            at,
            word,
        });
        Ok(())
    }

    /// One word at a place; the order is in `bytes`.
    pub fn copy(&mut self, source: vk::Buffer, from: u64, target: vk::Buffer, to: u64, bytes: u64) {
        self.note(Op::Copy {
            order: bytes,
            source: source.as_raw(),
            source_at: from,
            target: target.as_raw(),
            target_at: to,
        });
    }

    /// One word at a place; the order is in `bytes`.
    pub fn fill(&mut self, target: vk::Buffer, offset: u64, bytes: u64, pattern: u32) {
        self.note(Op::Fill {
            order: bytes,
            target: target.as_raw(),
            at: offset,
            word: u64::from(pattern),
        });
    }

    pub fn reset_queries(&mut self, _: vk::QueryPool, _: u32) {}

    pub fn timestamp(&mut self, _: vk::QueryPool, _: u32) {}

    pub fn copy_queries(&mut self, _: vk::QueryPool, _: u32, _: vk::Buffer, _: u64) {}
}

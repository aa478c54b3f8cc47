//! Command slots: each has its own command pool, command buffer and descriptor pools, and remembers the timeline value
//! that frees it.

use std::sync::Arc;

use ash::vk::{self, Handle};

use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::observe::blackbox::BlackBox;
use crate::pipeline::Program;
use crate::record::commands::Command;
use crate::record::descriptors::Descriptors;
use crate::record::encoder::{self, Encoder};

/// Number of slots, by default: enough that recording the next list overlaps the execution of several.
pub const SLOTS: usize = 8;

/// A list with at least this many dispatches is long: its memory is freed once it is done. NVIDIA's driver takes 3.6
/// KiB of device memory for each dispatch, 4 MiB at a time for all slots (H200, driver 580.159.04).
const LONG: u32 = 64;

/// One command buffer with what it needs while it runs.
pub struct Slot {
    device: Arc<Device>,
    pool: vk::CommandPool,
    pub encoder: Encoder,
    pub descriptors: Descriptors,
    /// Timeline value after which the slot is free; 0 if it is free.
    pub owner: u64,
    /// Dispatches recorded into it since it was reset.
    pub dispatches: u32,
}

impl Slot {
    pub fn new(device: &Arc<Device>, blackbox: &Arc<BlackBox>) -> Result<Self> {
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(device.plan.queue_family)
            .flags(vk::CommandPoolCreateFlags::TRANSIENT);
        // SAFETY: the device is live and the family is the queue's.
        let pool = unsafe { device.raw.create_command_pool(&info, None) }
            .map_err(error::create("vkCreateCommandPool", "command pool", 0))?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is live.
        let buffers = match unsafe { device.raw.allocate_command_buffers(&info) } {
            Ok(buffers) => buffers,
            Err(e) => {
                // SAFETY: the pool holds nothing.
                unsafe { device.raw.destroy_command_pool(pool, None) };
                return Err(error::create(
                    "vkAllocateCommandBuffers",
                    "command buffer",
                    0,
                )(e));
            }
        };
        Ok(Self {
            device: Arc::clone(device),
            pool,
            encoder: Encoder::new(Arc::clone(device), Arc::clone(blackbox), buffers[0]),
            descriptors: Descriptors::new(Arc::clone(device)),
            owner: 0,
            dispatches: 0,
        })
    }

    /// Records one command of the stream or of a graph. `programs`: what its dispatches refer to by number. `words`:
    /// the command's own, which the black box keeps.
    #[inline]
    pub fn record(
        &mut self,
        programs: &[Program],
        command: &Command<'_>,
        words: &[u64],
    ) -> Result<()> {
        let encoder = &mut self.encoder;
        match *command {
            Command::Dispatch {
                barrier,
                program,
                groups,
                bindings,
                push,
                push_bytes,
            } => {
                let Some(program) = programs.get(program as usize) else {
                    return Err(Error::Internal("an unknown pipeline".to_owned()));
                };
                self.dispatches = self.dispatches.saturating_add(1);
                if !barrier.is_empty() {
                    encoder.barrier(barrier);
                }
                let push = encoder::bytes(push, push_bytes);
                encoder.dispatch(&mut self.descriptors, program, bindings, push, groups)?;
                encoder.log.dispatch(program.kernel, words);
            }
            Command::Barrier(stages) => encoder.barrier(stages),
            Command::Copy {
                source,
                source_offset,
                target,
                target_offset,
                bytes,
            } => {
                encoder.copy(
                    vk::Buffer::from_raw(source),
                    source_offset,
                    vk::Buffer::from_raw(target),
                    target_offset,
                    bytes,
                );
                encoder.log.transfer(words);
            }
            Command::Fill {
                target,
                offset,
                bytes,
                pattern,
            } => {
                encoder.fill(vk::Buffer::from_raw(target), offset, bytes, pattern);
                encoder.log.transfer(words);
            }
            Command::HostBarrier => encoder.host_barrier(),
            Command::HostWrites => encoder.host_writes(),
            Command::ResetQueries { pool, count } => {
                encoder.reset_queries(vk::QueryPool::from_raw(pool), count);
            }
            Command::Timestamp { pool, query } => {
                encoder.timestamp(vk::QueryPool::from_raw(pool), query);
            }
            Command::CopyQueries {
                pool,
                count,
                target,
                offset,
            } => encoder.copy_queries(
                vk::QueryPool::from_raw(pool),
                count,
                vk::Buffer::from_raw(target),
                offset,
            ),
            Command::Submit { .. } | Command::Wait { .. } => {}
        }
        Ok(())
    }

    /// Resets the slot for new commands. The device must have passed `owner`.
    pub fn reset(&mut self) -> Result<()> {
        self.reset_with(vk::CommandPoolResetFlags::empty())
    }

    fn reset_with(&mut self, flags: vk::CommandPoolResetFlags) -> Result<()> {
        self.owner = 0;
        // SAFETY: the device has finished with the command buffer.
        unsafe { self.device.raw.reset_command_pool(self.pool, flags) }
            .map_err(|e| self.device.observe(error::vulkan("vkResetCommandPool")(e)))?;
        self.dispatches = 0;
        self.descriptors.reset()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: the owner waited until the device had finished with the slot.
        unsafe { self.device.raw.destroy_command_pool(self.pool, None) };
    }
}

/// The slots. Only as many are made and used as lists are in flight.
pub struct Ring {
    device: Arc<Device>,
    blackbox: Arc<BlackBox>,
    pub slots: Vec<Slot>,
    /// Largest number of slots.
    most: usize,
    /// The slot that is recording, or that will record next.
    pub current: usize,
}

impl Ring {
    /// Starts with one slot; more, up to `most`, are made when needed.
    pub fn new(device: &Arc<Device>, blackbox: &Arc<BlackBox>, most: usize) -> Result<Self> {
        Ok(Self {
            device: Arc::clone(device),
            blackbox: Arc::clone(blackbox),
            slots: vec![Slot::new(device, blackbox)?],
            most,
            current: 0,
        })
    }

    pub fn slot(&mut self) -> &mut Slot {
        &mut self.slots[self.current]
    }

    /// Whether the device, at `completed`, has finished with a slot, or a new one may be made.
    pub fn has_free(&self, completed: u64) -> bool {
        self.slots.len() < self.most || self.slots.iter().any(|slot| slot.owner <= completed)
    }

    /// Frees the memory of long lists that the device, at `completed`, has finished with: their slots may not be used
    /// again for a long time.
    pub fn release(&mut self, completed: u64) {
        let done = |slot: &&mut Slot| slot.dispatches >= LONG && slot.owner <= completed;
        for slot in self.slots.iter_mut().filter(done) {
            // If it fails, the reset before the slot's next use reports it.
            let _ = slot.reset_with(vk::CommandPoolResetFlags::RELEASE_RESOURCES);
        }
    }

    /// Moves to the first slot that the device has finished with; otherwise to a new one; if none can be made, to the
    /// one that the device will finish with first. `seen`: the device's last known value; `ask` gets the current one.
    pub fn choose(&mut self, seen: u64, ask: impl FnOnce() -> u64) {
        let owners = self.slots.iter().map(|slot| slot.owner);
        let free = |completed| owners.clone().position(|owner| owner <= completed);
        if let Some(free) = free(seen).or_else(|| free(ask())) {
            self.current = free;
            return;
        }
        if self.slots.len() < self.most
            && let Ok(slot) = Slot::new(&self.device, &self.blackbox)
        {
            self.current = self.slots.len();
            self.slots.push(slot);
            return;
        }
        let first = owners.enumerate().min_by_key(|&(_, owner)| owner);
        self.current = first.map_or(0, |(at, _)| at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn what_long_lists_took_is_released_once_they_are_done() {
        let device =
            Device::new(&Config::from_env(true).unwrap()).expect("tests need a Vulkan device");
        let mut ring =
            Ring::new(&Arc::new(device), &Arc::new(BlackBox::new(false)), 5).expect("a ring");
        for (owner, dispatches) in [(1, LONG), (2, LONG), (3, LONG - 1), (4, LONG), (5, LONG)] {
            ring.choose(0, || 0);
            ring.slot().owner = owner;
            ring.slot().dispatches = dispatches;
        }
        let owners = |ring: &Ring| -> Vec<u64> { ring.slots.iter().map(|s| s.owner).collect() };
        ring.release(4);
        assert_eq!(owners(&ring), [0, 0, 3, 0, 5]);
        assert_eq!(ring.slots[3].dispatches, 0);
        ring.release(5);
        assert_eq!(owners(&ring), [0, 0, 3, 0, 0]);
    }
}

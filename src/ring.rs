//! Command slots: each has its own command pool, command buffer and descriptor pools, and remembers
//! the timeline value that frees it.

use std::sync::Arc;

use ash::vk;

use crate::device::Device;
use crate::error::{self, Result};
use crate::record::Encoder;

/// Slots of the ring: enough that recording the next list overlaps the execution of several.
pub const SLOTS: usize = 8;

/// Dispatches from which on a list is long, and its memory given back once it is done: NVIDIA's driver takes
/// 3.6 KiB of the device's for each dispatch, 4 MiB at a time for all slots (H200, driver 580.159.04).
const LONG: u32 = 64;

/// Sets of one descriptor pool; a slot takes as many pools as its lists need.
const POOL_SETS: u32 = 1024;
/// Storage buffers of one pool.
const POOL_DESCRIPTORS: u32 = 8 * POOL_SETS;

/// Descriptor pools that grow, for devices without push descriptors.
pub struct Descriptors {
    device: Arc<Device>,
    pools: Vec<vk::DescriptorPool>,
    current: usize,
    /// One for each layout that sets were reserved of; there are few.
    reserved: Vec<Reserved>,
}

/// Sets of one layout, allocated ahead.
struct Reserved {
    layout: vk::DescriptorSetLayout,
    sets: Vec<vk::DescriptorSet>,
    /// Dispatches that were promised one and are not recorded yet.
    promised: usize,
}

impl Descriptors {
    fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            pools: Vec::new(),
            current: 0,
            reserved: Vec::new(),
        }
    }

    fn reserved(&mut self, layout: vk::DescriptorSetLayout) -> Option<&mut Reserved> {
        self.reserved.iter_mut().find(|r| r.layout == layout)
    }

    /// Allocates ahead, so that recording `count` more dispatches with sets of the layout cannot fail.
    pub fn reserve(&mut self, layout: vk::DescriptorSetLayout, count: usize) -> Result<()> {
        let (there, promised) = self
            .reserved(layout)
            .map_or((0, 0), |r| (r.sets.len(), r.promised));
        let missing = (promised + count).saturating_sub(there);
        for _ in 0..missing {
            let set = self.allocate_now(layout)?;
            match self.reserved(layout) {
                Some(reserved) => reserved.sets.push(set),
                None => self.reserved.push(Reserved {
                    layout,
                    sets: vec![set],
                    promised: 0,
                }),
            }
        }
        if let Some(reserved) = self.reserved(layout) {
            reserved.promised += count;
        }
        Ok(())
    }

    /// Notes that a dispatch is being recorded, whether it needs a new set or not.
    pub fn recorded(&mut self, layout: vk::DescriptorSetLayout) {
        if let Some(reserved) = self.reserved(layout) {
            reserved.promised = reserved.promised.saturating_sub(1);
        }
    }

    /// A set of the layout, valid until the slot is reused.
    pub fn allocate(&mut self, layout: vk::DescriptorSetLayout) -> Result<vk::DescriptorSet> {
        match self.reserved(layout).and_then(|r| r.sets.pop()) {
            Some(set) => Ok(set),
            None => self.allocate_now(layout),
        }
    }

    fn allocate_now(&mut self, layout: vk::DescriptorSetLayout) -> Result<vk::DescriptorSet> {
        loop {
            if self.current == self.pools.len() {
                let sizes = [vk::DescriptorPoolSize::default()
                    .ty(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(POOL_DESCRIPTORS)];
                let info = vk::DescriptorPoolCreateInfo::default()
                    .max_sets(POOL_SETS)
                    .pool_sizes(&sizes);
                // SAFETY: the device is live and the description valid.
                let pool = unsafe { self.device.raw.create_descriptor_pool(&info, None) }.map_err(
                    error::create("vkCreateDescriptorPool", "descriptor pool", 0),
                )?;
                self.pools.push(pool);
            }
            let layouts = [layout];
            let info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(self.pools[self.current])
                .set_layouts(&layouts);
            // SAFETY: pool and layout are live; the slot is used by one thread at a time.
            match unsafe { self.device.raw.allocate_descriptor_sets(&info) } {
                Ok(sets) => return Ok(sets[0]),
                Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY | vk::Result::ERROR_FRAGMENTED_POOL) => {
                    self.current += 1
                }
                Err(other) => {
                    return Err(self
                        .device
                        .observe(error::vulkan("vkAllocateDescriptorSets")(other)));
                }
            }
        }
    }

    fn reset(&mut self) -> Result<()> {
        for reserved in &mut self.reserved {
            reserved.sets.clear();
            reserved.promised = 0;
        }
        for &pool in &self.pools[..self.pools.len().min(self.current + 1)] {
            // SAFETY: the device has finished with every set of the pool.
            unsafe {
                self.device
                    .raw
                    .reset_descriptor_pool(pool, vk::DescriptorPoolResetFlags::empty())
            }
            .map_err(error::vulkan("vkResetDescriptorPool"))?;
        }
        self.current = 0;
        Ok(())
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for &pool in &self.pools {
            // SAFETY: the owner waited until the device had finished with the slot.
            unsafe { self.device.raw.destroy_descriptor_pool(pool, None) };
        }
    }
}

/// One command buffer with what it needs while it runs.
pub struct Slot {
    device: Arc<Device>,
    pool: vk::CommandPool,
    pub encoder: Encoder,
    pub descriptors: Descriptors,
    /// Timeline value after which the slot is free; 0 if it is.
    pub owner: u64,
    /// Dispatches that the recorder put into it since it was reset.
    pub dispatches: u32,
}

impl Slot {
    pub fn new(device: &Arc<Device>) -> Result<Self> {
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
            encoder: Encoder::new(Arc::clone(device), buffers[0]),
            descriptors: Descriptors::new(Arc::clone(device)),
            owner: 0,
            dispatches: 0,
        })
    }

    /// Makes the slot ready for new commands. The device must have passed `owner`.
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

/// The slots. No more of them are made, or used, than lists are in flight.
pub struct Ring {
    device: Arc<Device>,
    pub slots: Vec<Slot>,
    /// How many there may be.
    most: usize,
    /// The slot that records now, or that will next.
    pub current: usize,
}

impl Ring {
    /// With one slot; up to `most` are made when they are needed.
    pub fn new(device: &Arc<Device>, most: usize) -> Result<Self> {
        Ok(Self {
            device: Arc::clone(device),
            slots: vec![Slot::new(device)?],
            most,
            current: 0,
        })
    }

    pub fn slot(&mut self) -> &mut Slot {
        &mut self.slots[self.current]
    }

    /// Whether the device, at `completed`, has finished with a slot, or one may be made.
    pub fn has_free(&self, completed: u64) -> bool {
        self.slots.len() < self.most || self.slots.iter().any(|slot| slot.owner <= completed)
    }

    /// Gives back what long lists took that the device, at `completed`, has finished with: their slots may
    /// not record another for long.
    pub fn release(&mut self, completed: u64) {
        let done = |slot: &&mut Slot| slot.dispatches >= LONG && slot.owner <= completed;
        for slot in self.slots.iter_mut().filter(done) {
            // If it fails, the slot is reset before it is used, which then says so.
            let _ = slot.reset_with(vk::CommandPoolResetFlags::RELEASE_RESOURCES);
        }
    }

    /// Goes on to the first slot that the device has finished with; else to a new one; or else, and if none
    /// can be had, to the one that it will finish with first. `seen`: where the device was when last
    /// asked; `ask` asks it.
    pub fn choose(&mut self, seen: u64, ask: impl FnOnce() -> u64) {
        let owners = self.slots.iter().map(|slot| slot.owner);
        let free = |completed| owners.clone().position(|owner| owner <= completed);
        if let Some(free) = free(seen).or_else(|| free(ask())) {
            self.current = free;
            return;
        }
        if self.slots.len() < self.most
            && let Ok(slot) = Slot::new(&self.device)
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
    use crate::device::Settings;

    #[test]
    fn what_long_lists_took_is_released_once_they_are_done() {
        let device = Device::new(&Settings::from_env()).expect("tests need a Vulkan device");
        let mut ring = Ring::new(&Arc::new(device), 5).expect("a ring");
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

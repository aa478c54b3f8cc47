//! Descriptor sets for devices without push descriptors.

use std::sync::Arc;

use ash::vk;

use crate::device::Device;
use crate::error::{self, Result};

/// Sets in one descriptor pool; a slot uses as many pools as its lists need.
const POOL_SETS: u32 = 1024;
/// Storage buffers of one pool.
const POOL_DESCRIPTORS: u32 = 8 * POOL_SETS;

/// Descriptor pools that grow, for devices without push descriptors.
pub struct Descriptors {
    device: Arc<Device>,
    pools: Vec<vk::DescriptorPool>,
    current: usize,
    /// One for each layout with reserved sets; there are few.
    reserved: Vec<Reserved>,
}

/// Preallocated sets of one layout.
struct Reserved {
    layout: vk::DescriptorSetLayout,
    sets: Vec<vk::DescriptorSet>,
    /// Dispatches that have reserved a set and are not recorded yet.
    promised: usize,
}

impl Descriptors {
    pub(super) fn new(device: Arc<Device>) -> Self {
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

    /// Preallocates sets, so that recording `count` more dispatches with the layout cannot fail.
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

    pub(super) fn reset(&mut self) -> Result<()> {
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

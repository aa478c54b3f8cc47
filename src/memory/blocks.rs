//! One block: device memory from the driver with one `VkBuffer` over all of it.

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;

use crate::device::{Device, buffer_usage};
use crate::error::{self, Error, Result};
use crate::memory::kind::Kind;

/// Memory of a shared buffer, used by nothing else; the buffer starts at offset 0.
pub struct SharedBlock {
    pub raw: vk::DeviceMemory,
    /// Bytes of the memory, at least those of the buffer.
    pub bytes: u64,
    pub exportable: bool,
    pub dedicated: bool,
    /// The memory's identity. It lives exactly as long as the memory.
    pub name: Arc<()>,
}

/// A block's memory is dedicated to its buffer: NVIDIA's driver allocates 256 MiB of dedicated memory in 0.6 ms, of
/// other memory in 6 ms (H100, driver 580.159.04).
pub struct Block {
    pub raw: vk::Buffer,
    memory: vk::DeviceMemory,
    pub bytes: u64,
    /// Device address of its first byte; 0 without device addresses.
    pub address: u64,
    /// Host address of its first byte, if its memory is host-visible and coherent.
    pub mapped: Option<NonNull<u8>>,
    /// Whether host reads are cached, hence fast.
    pub cached: bool,
}

// SAFETY: what is not `Send` by itself is the mapped pointer, which is the driver's until the block is freed. Nothing is
// read or written through it here: resources get parts of it, and say who uses them.
unsafe impl Send for Block {}
// SAFETY: as above; a block does not change.
unsafe impl Sync for Block {}

impl Block {
    pub fn new(device: &Device, bytes: u64, kind: Kind) -> Result<Self> {
        let failed = |call, result| device.observe(error::create(call, kind.name(), bytes)(result));
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(buffer_usage(device.plan.device_address));
        // SAFETY: the device is live and the description valid.
        let raw = unsafe { device.raw.create_buffer(&info, None) }
            .map_err(|result| failed("vkCreateBuffer", result))?;
        device.name(raw, kind.name());
        // SAFETY: `raw` was created above.
        let requirements = unsafe { device.raw.get_buffer_memory_requirements(raw) };
        let mut block = Self {
            raw,
            memory: vk::DeviceMemory::null(),
            bytes,
            address: 0,
            mapped: None,
            cached: false,
        };
        let wanted = kind.memory_type(device);
        let memory_type = match requirements.memory_type_bits & (1 << wanted) {
            0 => requirements.memory_type_bits.trailing_zeros(),
            _ => wanted,
        };
        match block.back(device, requirements.size, memory_type) {
            Ok(()) => Ok(block),
            Err((call, result)) => {
                block.destroy(device);
                Err(failed(call, result))
            }
        }
    }

    /// Binds memory to the buffer, mapped if it is host-visible.
    fn back(
        &mut self,
        device: &Device,
        bytes: u64,
        memory_type: u32,
    ) -> Result<(), (&'static str, vk::Result)> {
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(self.raw);
        let mut flags = vk::MemoryAllocateFlagsInfo::default();
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes)
            .memory_type_index(memory_type)
            .push_next(&mut dedicated);
        if device.plan.device_address {
            flags = flags.flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
            info = info.push_next(&mut flags);
        }
        // SAFETY: the device is live, the type one that the buffer allows, and the size what it requires.
        self.memory = unsafe { device.raw.allocate_memory(&info, None) }
            .map_err(|result| ("vkAllocateMemory", result))?;
        // SAFETY: both were made for each other above.
        unsafe { device.raw.bind_buffer_memory(self.raw, self.memory, 0) }
            .map_err(|result| ("vkBindBufferMemory", result))?;
        self.address = address(device, self.raw);
        let properties = device.snapshot.memory_types[memory_type as usize].flags;
        // Incoherent memory would need flushes and invalidations, so it is treated as not host-visible.
        let coherent =
            vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        if properties.contains(coherent) {
            let flags = vk::MemoryMapFlags::empty();
            // SAFETY: the memory is host-visible, live, and not mapped yet; freeing it unmaps it.
            let mapped = unsafe { device.raw.map_memory(self.memory, 0, vk::WHOLE_SIZE, flags) }
                .map_err(|result| ("vkMapMemory", result))?;
            self.mapped = NonNull::new(mapped.cast());
            self.cached = properties.contains(vk::MemoryPropertyFlags::HOST_CACHED);
        }
        Ok(())
    }

    /// Returns the memory to the driver. The device must have finished with it.
    pub fn destroy(self, device: &Device) {
        // SAFETY: the caller's promise above; both handles die with the block.
        unsafe {
            device.raw.destroy_buffer(self.raw, None);
            device.raw.free_memory(self.memory, None);
        }
    }
}

/// Device address of the first byte of a buffer that has its memory; 0 without device addresses.
pub fn address(device: &Device, raw: vk::Buffer) -> u64 {
    if !device.plan.device_address {
        return 0;
    }
    let info = vk::BufferDeviceAddressInfo::default().buffer(raw);
    // SAFETY: the buffer is live, has its memory, and was created for device addresses.
    unsafe { device.raw.get_buffer_device_address(&info) }
}

/// The error when the device is out of memory.
pub fn out_of_memory(kind: Kind, bytes: u64) -> Error {
    Error::OutOfMemory {
        what: kind.name(),
        bytes,
        space: "device",
        hint: String::new(),
    }
}

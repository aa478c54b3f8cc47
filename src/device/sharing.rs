//! What the device can share with other processes and APIs through file descriptors: handles only.

use ash::{khr, vk};

/// The kind of handle that stands for shared memory: a file descriptor.
pub const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// What the device can share, and the calls for it.
pub struct Sharing {
    pub calls: khr::external_memory_fd::Device,
    pub properties: Properties,
}

/// What the device says of storage buffers in shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties {
    pub exportable: bool,
    pub importable: bool,
    /// Whether the memory must be the buffer's alone. Both sides have to say so, or neither.
    pub dedicated: bool,
}

impl Properties {
    /// `usage`: how the buffers are used. The device must have `VK_KHR_external_memory_fd`.
    pub fn probe(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        usage: vk::BufferUsageFlags,
    ) -> Self {
        let info = vk::PhysicalDeviceExternalBufferInfo::default()
            .usage(usage)
            .handle_type(HANDLE);
        let mut found = vk::ExternalBufferProperties::default();
        // SAFETY: the physical device belongs to the live instance; the call is a part of Vulkan 1.1.
        unsafe {
            instance.get_physical_device_external_buffer_properties(physical, &info, &mut found)
        };
        let features = found.external_memory_properties.external_memory_features;
        let has = |flag| features.contains(flag);
        Self {
            exportable: has(vk::ExternalMemoryFeatureFlags::EXPORTABLE),
            importable: has(vk::ExternalMemoryFeatureFlags::IMPORTABLE),
            dedicated: has(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY),
        }
    }
}

impl Sharing {
    /// For a device on which the extension is enabled.
    pub fn new(instance: &ash::Instance, device: &ash::Device, properties: Properties) -> Self {
        Self {
            calls: khr::external_memory_fd::Device::new(instance, device),
            properties,
        }
    }
}

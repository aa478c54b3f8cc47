//! What the device can share with other processes and APIs through file descriptors. Only handles here.

use ash::{khr, vk};

/// The kind of handle for shared memory: a file descriptor.
pub const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// The same for timeline semaphores.
pub const TIMELINE_HANDLE: vk::ExternalSemaphoreHandleTypeFlags =
    vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;

/// What the device can share, and the calls for it.
pub struct Sharing {
    pub calls: khr::external_memory_fd::Device,
    /// Present if timeline semaphores can be exported.
    pub timelines: Option<khr::external_semaphore_fd::Device>,
    pub properties: Properties,
}

/// What the device reports about storage buffers in shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties {
    pub exportable: bool,
    pub importable: bool,
    /// Whether the memory must be dedicated to the buffer. Both sides must state it, or neither.
    pub dedicated: bool,
    /// Whether timeline semaphores can be exported; the device then has `VK_KHR_external_semaphore_fd`.
    pub timelines: bool,
}

impl Properties {
    /// `usage` is that of the buffers. The device must have `VK_KHR_external_memory_fd`. `semaphores`: it also has the
    /// extension for semaphores.
    pub fn probe(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        usage: vk::BufferUsageFlags,
        semaphores: bool,
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
            timelines: semaphores && exports_timelines(instance, physical),
        }
    }
}

impl Sharing {
    /// For a device that was created with the extension.
    pub fn new(instance: &ash::Instance, device: &ash::Device, properties: Properties) -> Self {
        Self {
            calls: khr::external_memory_fd::Device::new(instance, device),
            timelines: (properties.timelines)
                .then(|| khr::external_semaphore_fd::Device::new(instance, device)),
            properties,
        }
    }
}

fn exports_timelines(instance: &ash::Instance, physical: vk::PhysicalDevice) -> bool {
    let mut kind =
        vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::PhysicalDeviceExternalSemaphoreInfo::default()
        .handle_type(TIMELINE_HANDLE)
        .push_next(&mut kind);
    let mut found = vk::ExternalSemaphoreProperties::default();
    // SAFETY: the physical device belongs to the live instance; the call is a part of Vulkan 1.1.
    unsafe {
        instance.get_physical_device_external_semaphore_properties(physical, &info, &mut found)
    };
    let exportable = vk::ExternalSemaphoreFeatureFlags::EXPORTABLE;
    found.external_semaphore_features.contains(exportable)
}

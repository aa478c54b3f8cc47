//! The structures by which the Vulkan loader and its layers find each other (`vk_layer.h`).

use std::ffi::c_void;

use ash::vk;

/// `VK_LAYER_LINK_INFO`
const LINK_INFO: i32 = 0;

#[repr(C)]
pub struct NegotiateLayerInterface {
    pub s_type: i32,
    pub p_next: *mut c_void,
    pub version: u32,
    pub get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    pub get_device_proc_addr: Option<vk::PFN_vkGetDeviceProcAddr>,
    pub get_physical_device_proc_addr: Option<unsafe extern "system" fn()>,
}

#[repr(C)]
pub struct InstanceLink {
    pub p_next: *mut InstanceLink,
    pub get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    pub get_physical_device_proc_addr: Option<unsafe extern "system" fn()>,
}

#[repr(C)]
pub struct DeviceLink {
    pub p_next: *mut DeviceLink,
    pub get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    pub get_device_proc_addr: vk::PFN_vkGetDeviceProcAddr,
}

/// `VkLayerInstanceCreateInfo` and `VkLayerDeviceCreateInfo`.
#[repr(C)]
pub struct CreateInfo<L> {
    s_type: vk::StructureType,
    p_next: *const c_void,
    function: i32,
    pub link: *mut L,
}

/// The structure in a chain that holds this layer's link to the next.
///
/// # Safety
/// `chain` must be the `pNext` of the loader's create info, and `s_type` that of `L`.
pub unsafe fn link<L>(
    mut chain: *const c_void,
    s_type: vk::StructureType,
) -> Option<*mut CreateInfo<L>> {
    while !chain.is_null() {
        let info = chain.cast::<CreateInfo<L>>().cast_mut();
        // SAFETY: every structure of a chain begins with type and next; a link info has all fields.
        unsafe {
            if (*info).s_type == s_type && (*info).function == LINK_INFO {
                return Some(info);
            }
            chain = (*info).p_next;
        }
    }
    None
}

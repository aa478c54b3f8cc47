//! `VK_KHR_external_semaphore_fd` for timeline semaphores of devices that have none to export.
//!
//! The exported descriptor is a pipe. It contains the functions that wait and signal, with their arguments, for the CUDA
//! of `nccl.c` in the same process.

#![allow(non_snake_case)]

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::IntoRawFd;

use ash::vk::{self, Handle};

use crate::chain::{device_of, enter, instance_of};
use crate::control::STATE;

pub const EXTERNAL_SEMAPHORE: &CStr = ash::khr::external_semaphore_fd::NAME;

/// Whether devices have it, and this layer answers for them.
pub fn offered() -> bool {
    STATE.lock().offers(EXTERNAL_SEMAPHORE)
}

pub unsafe extern "system" fn vkGetPhysicalDeviceExternalSemaphoreProperties(
    physical: vk::PhysicalDevice,
    info: *const vk::PhysicalDeviceExternalSemaphoreInfo<'_>,
    properties: *mut vk::ExternalSemaphoreProperties<'_>,
) {
    let next = instance_of(physical).fp_v1_1();
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        (next.get_physical_device_external_semaphore_properties)(physical, info, properties);
        if offered() {
            (*properties).external_semaphore_features =
                vk::ExternalSemaphoreFeatureFlags::EXPORTABLE;
        }
    }
}

pub unsafe extern "system" fn vkGetSemaphoreFdKHR(
    device: vk::Device,
    info: *const vk::SemaphoreGetFdInfoKHR<'_>,
    fd: *mut i32,
) -> vk::Result {
    if let Some(result) = enter("vkGetSemaphoreFdKHR", device) {
        return result;
    }
    let calls = device_of(device).fp_v1_2();
    // SAFETY: the caller's structure.
    let semaphore = unsafe { (*info).semaphore };
    let words = [
        device.as_raw(),
        semaphore.as_raw(),
        calls.wait_semaphores as usize as u64,
        calls.signal_semaphore as usize as u64,
        calls.get_semaphore_counter_value as usize as u64,
    ];
    let Ok((reader, mut writer)) = std::io::pipe() else {
        return vk::Result::ERROR_TOO_MANY_OBJECTS;
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if writer.write_all(&bytes).is_err() {
        return vk::Result::ERROR_TOO_MANY_OBJECTS;
    }
    // SAFETY: the caller's number is written to.
    unsafe { *fd = reader.into_raw_fd() };
    vk::Result::SUCCESS
}

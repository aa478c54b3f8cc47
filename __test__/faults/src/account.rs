//! `VK_EXT_device_fault`, which software devices do not have.

#![allow(non_snake_case)]

use std::ffi::{CStr, c_char};

use ash::vk;

use crate::chain::key;
use crate::control::STATE;

/// The extension that this layer answers for itself; the driver's own is hidden.
pub const FAULT: &CStr = ash::ext::device_fault::NAME;

/// The account of a loss that this layer gives.
pub unsafe extern "system" fn vkGetDeviceFaultInfoEXT(
    device: vk::Device,
    counts: *mut vk::DeviceFaultCountsEXT<'_>,
    info: *mut vk::DeviceFaultInfoEXT<'_>,
) -> vk::Result {
    if !STATE.lock().has_lost(key(device)) {
        return vk::Result::ERROR_UNKNOWN;
    }
    let text = |target: &mut [c_char], text: &CStr| {
        for (target, byte) in target.iter_mut().zip(text.to_bytes_with_nul()) {
            *target = *byte as c_char;
        }
    };
    // SAFETY: the caller's structures; the arrays have as many elements as the counts say.
    unsafe {
        let room = (&*counts)
            .address_info_count
            .min((&*counts).vendor_info_count);
        (*counts).address_info_count = 1;
        (*counts).vendor_info_count = 1;
        (*counts).vendor_binary_size = 0;
        if info.is_null() {
            return vk::Result::SUCCESS;
        }
        if room == 0 {
            return vk::Result::INCOMPLETE;
        }
        text(&mut (*info).description, c"a page that is not there");
        *(*info).p_address_infos = vk::DeviceFaultAddressInfoEXT {
            address_type: vk::DeviceFaultAddressTypeEXT::WRITE_INVALID,
            reported_address: 0xdead_0040,
            address_precision: 0x1000,
        };
        let vendor = &mut *(*info).p_vendor_infos;
        *vendor = vk::DeviceFaultVendorInfoEXT::default();
        text(&mut vendor.description, c"unit 3");
        vendor.vendor_fault_code = 7;
        vendor.vendor_fault_data = 0x1234;
    }
    vk::Result::SUCCESS
}

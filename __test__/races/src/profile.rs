//! A profile that measures nothing, but may be on.

use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;

use crate::device::Device;

pub static ON: AtomicBool = AtomicBool::new(false);

pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub fn begin() -> Option<u64> {
    None
}

pub fn submitted(_: &Device, _: &[vk::CommandBuffer], _: u64, _: u64, _: u64) {}

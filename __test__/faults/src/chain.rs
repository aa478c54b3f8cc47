//! What comes after this layer, by the handle of a call, and what every call does first.

use std::collections::BTreeMap;

use ash::vk;
use ash::vk::Handle;
use parking_lot::Mutex;

use crate::control::STATE;

/// What comes after this layer in the chain.
pub struct Next<T, P> {
    pub raw: T,
    /// The next layer's `vkGet*ProcAddr`.
    pub get: P,
}

pub type NextInstance = &'static Next<ash::Instance, vk::PFN_vkGetInstanceProcAddr>;
pub type NextDevice = &'static Next<ash::Device, vk::PFN_vkGetDeviceProcAddr>;

/// By dispatch key. Entries live forever: a test has few.
pub static INSTANCES: Mutex<BTreeMap<usize, NextInstance>> = Mutex::new(BTreeMap::new());
pub static DEVICES: Mutex<BTreeMap<usize, NextDevice>> = Mutex::new(BTreeMap::new());

/// All objects of one instance or device begin with the same pointer.
pub fn key<H: Handle>(handle: H) -> usize {
    // SAFETY: dispatchable handles point to the loader's dispatch table.
    unsafe { *(handle.as_raw() as *const usize) }
}

pub fn next_instance<H: Handle>(handle: H) -> NextInstance {
    let found = INSTANCES.lock().get(&key(handle)).copied();
    found.expect("an instance that was created through this layer")
}

pub fn next_device<H: Handle>(handle: H) -> NextDevice {
    let found = DEVICES.lock().get(&key(handle)).copied();
    found.expect("a device that was created through this layer")
}

pub fn instance_of<H: Handle>(handle: H) -> &'static ash::Instance {
    &next_instance(handle).raw
}

pub fn device_of<H: Handle>(handle: H) -> &'static ash::Device {
    &next_device(handle).raw
}

/// Counts the call; what it must fail with, if it must. A loss is final: the real device is drained
/// first, since what is in flight on a lost device counts as done.
pub fn enter<H: Handle + Copy>(call: &'static str, handle: H) -> Option<vk::Result> {
    let result = STATE.lock().enter(call)?;
    if result == vk::Result::ERROR_DEVICE_LOST {
        lose(handle);
    }
    Some(result)
}

fn lose<H: Handle + Copy>(handle: H) {
    let device = device_of(handle);
    // SAFETY: the device is live; the driver's queues have locks of their own.
    let _ = unsafe { device.device_wait_idle() };
    STATE.lock().lose(key(handle));
}

/// The same for calls that notice a lost device.
pub fn enter_waiting<H: Handle + Copy>(call: &'static str, handle: H) -> Option<vk::Result> {
    enter(call, handle).or_else(|| {
        let lost = STATE.lock().has_lost(key(handle));
        lost.then_some(vk::Result::ERROR_DEVICE_LOST)
    })
}

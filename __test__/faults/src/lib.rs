//! A Vulkan layer that makes calls fail on demand, for the tests.
//!
//! The Vulkan loader puts it between the addon and the driver (`VK_ADD_LAYER_PATH`,
//! `VK_INSTANCE_LAYERS`). The same file is a Node addon: loaded as one, it is the control panel of the
//! layer in that process. So one process can walk through "the 1st, 2nd, 3rd … call of f fails".
//!
//! - [`fail`]: the nth call of a function from now on fails with a result. `ERROR_DEVICE_LOST` is
//!   sticky, as it is on a real device: everything that waits or submits fails with it from then on.
//! - [`withhold`]: the device lacks a feature, an extension, a kind of queue.
//! - [`offer_ptx`]: the device runs kernels in PTX.
//! - [`offer_timelines`]: the device exports timeline semaphores.
//! - [`offer_portability`]: the device is as those of MoltenVK.
//! - [`tell_faults`]: the device gives an account of how it was lost, which software devices do not.
//! - [`counts`] and [`live`]: what was called, and which objects were made and not destroyed.

mod account;
mod chain;
mod control;
mod layer;
mod loader;
mod ptx;
mod timelines;

use std::collections::HashMap;

use napi_derive::napi;

use control::STATE;

/// The `nth` call (from 1) of `call` from now on fails with `result`, and so do the `times - 1` calls
/// after it. Several faults may wait at a time.
#[napi]
pub fn fail(call: String, nth: u32, result: String, times: Option<u32>) -> napi::Result<()> {
    let wrong = |text: String| napi::Error::new(napi::Status::InvalidArg, text);
    let name = layer::names()
        .find(|name| *name == call)
        .ok_or_else(|| wrong(format!("{call} is not among the calls that can fail")))?;
    let raw = control::result(&result)
        .ok_or_else(|| wrong(format!("{result} is no VkResult that is known here")))?;
    STATE
        .lock()
        .arm(name, nth.max(1), raw, times.unwrap_or(1).max(1));
    Ok(())
}

/// From now on devices lack `what`: an extension's name, `queue` (no queue that computes), `devices`,
/// `timestamps`, `timelineSemaphore`, `bufferDeviceAddress`, `shaderFloat16`,
/// `storageBuffer16BitAccess`, `cudaKernelLaunchFeatures`, `hostCached` (memory that host reads are fast from); or drivers
/// lack a function of a device, by its name.
#[napi]
pub fn withhold(what: String) {
    STATE.lock().withheld.insert(what);
}

/// From now on devices have `VK_EXT_device_fault`, and give an account of a loss that is always the same.
#[napi]
pub fn tell_faults() {
    STATE.lock().tells_faults = true;
}

/// From now on devices have this extension, `VK_NVX_binary_import` or `VK_NV_cuda_kernel_launch`, and run kernels of the
/// tests in PTX by what stands beside them in SPIR-V. With the latter they also tell a compute capability of 9.0 and
/// 132 multiprocessors.
#[napi]
pub fn offer_ptx(extension: String) {
    STATE.lock().offered.insert(extension);
}

/// From now on devices have `VK_KHR_external_semaphore_fd` for timeline semaphores, for the CUDA of `nccl.c`.
#[napi]
pub fn offer_timelines() {
    let name = timelines::EXTERNAL_SEMAPHORE.to_string_lossy().into_owned();
    STATE.lock().offered.insert(name);
}

/// From now on devices have `VK_KHR_portability_subset`, as those of MoltenVK: none can be made without asking for it.
#[napi]
pub fn offer_portability() {
    let name = control::PORTABILITY.to_string_lossy().into_owned();
    STATE.lock().offered.insert(name);
}

/// Forgets faults, withheld things and counts; live objects stay known.
#[napi]
pub fn reset() {
    STATE.lock().reset();
}

/// How often each function was called since `reset`.
#[napi]
pub fn counts() -> HashMap<String, u32> {
    let state = STATE.lock();
    let owned = |(name, count): (&&str, &u32)| ((*name).to_owned(), *count);
    state.counts.iter().map(owned).collect()
}

/// Live objects by kind; kinds without any are left out.
#[napi]
pub fn live() -> HashMap<String, u32> {
    let state = STATE.lock();
    let objects = state.live.iter().filter(|(_, objects)| !objects.is_empty());
    objects
        .map(|(kind, objects)| ((*kind).to_owned(), objects.len() as u32))
        .collect()
}

/// How many calls were made to fail since `reset`.
#[napi]
pub fn fired() -> u32 {
    STATE.lock().fired
}

/// Calls that no program may make, such as destroying an object twice; since the process started.
#[napi]
pub fn violations() -> Vec<String> {
    STATE.lock().violations.clone()
}

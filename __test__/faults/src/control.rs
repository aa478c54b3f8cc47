//! Which calls should fail, and what has happened.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::CStr;

use ash::vk;
use parking_lot::Mutex;

/// What MoltenVK's devices have, and whoever makes one must ask for.
pub const PORTABILITY: &CStr = ash::khr::portability_subset::NAME;

pub static STATE: Mutex<State> = Mutex::new(State::new());

struct Fault {
    call: &'static str,
    /// Calls that still pass before it.
    after: u32,
    /// Calls that fail.
    times: u32,
    result: vk::Result,
}

pub struct State {
    faults: Vec<Fault>,
    pub withheld: BTreeSet<String>,
    /// Whether devices have `VK_EXT_device_fault`, and this layer answers for them.
    pub tells_faults: bool,
    /// Extensions that stand-ins of this layer answer for.
    pub offered: BTreeSet<String>,
    pub counts: BTreeMap<&'static str, u32>,
    pub fired: u32,
    /// Raw handles by kind.
    pub live: BTreeMap<&'static str, HashSet<u64>>,
    pub violations: Vec<String>,
    /// Dispatch keys of devices that were lost and not destroyed yet.
    lost: BTreeSet<usize>,
}

impl State {
    const fn new() -> Self {
        Self {
            faults: Vec::new(),
            withheld: BTreeSet::new(),
            tells_faults: false,
            offered: BTreeSet::new(),
            counts: BTreeMap::new(),
            fired: 0,
            live: BTreeMap::new(),
            violations: Vec::new(),
            lost: BTreeSet::new(),
        }
    }

    pub fn reset(&mut self) {
        self.faults.clear();
        self.withheld.clear();
        self.tells_faults = false;
        self.offered.clear();
        self.counts.clear();
        self.fired = 0;
    }

    pub fn arm(&mut self, call: &'static str, nth: u32, result: vk::Result, times: u32) {
        self.faults.push(Fault {
            call,
            after: nth - 1,
            times,
            result,
        });
    }

    /// Counts a call; what it must fail with, if it must.
    pub fn enter(&mut self, call: &'static str) -> Option<vk::Result> {
        *self.counts.entry(call).or_default() += 1;
        let fault = self.faults.iter_mut().find(|f| f.call == call)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        let result = fault.result;
        fault.times -= 1;
        if fault.times == 0 {
            self.faults.retain(|f| f.times > 0);
        }
        self.fired += 1;
        Some(result)
    }

    pub fn has_lost(&self, device: usize) -> bool {
        self.lost.contains(&device)
    }

    pub fn lose(&mut self, device: usize) {
        self.lost.insert(device);
    }

    pub fn forget_device(&mut self, device: usize) {
        self.lost.remove(&device);
    }

    pub fn offers(&self, extension: &CStr) -> bool {
        self.offered.contains(&*extension.to_string_lossy())
    }

    pub fn withholds(&self, what: &str) -> bool {
        self.withheld.contains(what)
    }

    pub fn created(&mut self, kind: &'static str, handle: u64) {
        if !self.live.entry(kind).or_default().insert(handle) {
            self.violations
                .push(format!("{kind} {handle:#x} exists twice"));
        }
    }

    pub fn destroyed(&mut self, kind: &'static str, handle: u64) {
        if handle != 0 && !self.live.entry(kind).or_default().remove(&handle) {
            self.violations
                .push(format!("{kind} {handle:#x} was destroyed, but is not live"));
        }
    }
}

/// The result of that name, without its `VK_`.
pub fn result(name: &str) -> Option<vk::Result> {
    Some(match name {
        "TIMEOUT" => vk::Result::TIMEOUT,
        "NOT_READY" => vk::Result::NOT_READY,
        "ERROR_OUT_OF_HOST_MEMORY" => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        "ERROR_OUT_OF_DEVICE_MEMORY" => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        "ERROR_INITIALIZATION_FAILED" => vk::Result::ERROR_INITIALIZATION_FAILED,
        "ERROR_DEVICE_LOST" => vk::Result::ERROR_DEVICE_LOST,
        "ERROR_MEMORY_MAP_FAILED" => vk::Result::ERROR_MEMORY_MAP_FAILED,
        "ERROR_LAYER_NOT_PRESENT" => vk::Result::ERROR_LAYER_NOT_PRESENT,
        "ERROR_EXTENSION_NOT_PRESENT" => vk::Result::ERROR_EXTENSION_NOT_PRESENT,
        "ERROR_FEATURE_NOT_PRESENT" => vk::Result::ERROR_FEATURE_NOT_PRESENT,
        "ERROR_INCOMPATIBLE_DRIVER" => vk::Result::ERROR_INCOMPATIBLE_DRIVER,
        "ERROR_TOO_MANY_OBJECTS" => vk::Result::ERROR_TOO_MANY_OBJECTS,
        "ERROR_FRAGMENTED_POOL" => vk::Result::ERROR_FRAGMENTED_POOL,
        "ERROR_OUT_OF_POOL_MEMORY" => vk::Result::ERROR_OUT_OF_POOL_MEMORY,
        "ERROR_INVALID_SHADER_NV" => vk::Result::ERROR_INVALID_SHADER_NV,
        "ERROR_UNKNOWN" => vk::Result::ERROR_UNKNOWN,
        _ => return None,
    })
}

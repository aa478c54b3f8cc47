//! Vulkan instances are kept for the life of the process and reused by one device after the other.
//!
//! NVIDIA's driver does not survive many instances: after about ten it has miscompiled `SubgroupLocalInvocationId`, and
//! after about a hundred it offered no device any more. Reuse also saves the time of loading drivers.

use std::ffi::OsString;
use std::ops::Deref;

use ash::vk;
use parking_lot::Mutex;

use super::choice::Snapshot;
use super::instance::Instance;
use crate::config::{self, Config};
use crate::error::Result;

/// What two instances must have in common to be interchangeable.
#[derive(Clone, PartialEq, Eq)]
struct Origin {
    loader: Option<OsString>,
    validation: bool,
    /// The variables that the loader and the drivers read when they are loaded, sorted.
    environment: Vec<(String, OsString)>,
}

impl Origin {
    fn new(config: &Config) -> Self {
        Self {
            loader: config.loader.clone(),
            validation: config.validation,
            environment: config::for_drivers(),
        }
    }
}

/// Largest number of idle instances: a program that keeps changing drivers' variables would otherwise collect them.
const MAX_IDLE: usize = 4;

/// Instances that no device uses, the latest last. Leaked when the process ends, so that exit need not wait for drivers
/// to be unloaded.
static IDLE: Mutex<Vec<(Origin, Instance)>> = Mutex::new(Vec::new());

/// An instance in use. When this is dropped, the instance becomes idle if it has listed a device and nothing failed;
/// otherwise it is destroyed.
pub struct Lease {
    /// Always present until `drop`.
    held: Option<(Origin, Instance)>,
    /// Whether the next device may use it.
    sound: bool,
    /// Test switch: never share it with other devices.
    alone: bool,
}

impl Lease {
    /// An idle instance that fits `config` and the environment, or a new one.
    pub fn new(config: &Config) -> Result<Self> {
        let origin = Origin::new(config);
        let alone = config.test_new_instances;
        let idle = (!alone).then(|| take(&origin)).flatten();
        let instance = match idle {
            Some(instance) => instance,
            None => Instance::new(config)?,
        };
        Ok(Self {
            held: Some((origin, instance)),
            sound: false,
            alone,
        })
    }

    /// Every physical device with what it reports, in the loader's order.
    pub fn snapshots(&mut self) -> Result<Vec<(vk::PhysicalDevice, Snapshot)>> {
        self.sound = false;
        let found = Instance::snapshots(self)?;
        // An instance without devices is not kept, because a driver may be installed later.
        self.sound = !found.is_empty();
        Ok(found)
    }

    /// Never gives the instance to another device, since it may be the cause of a failure.
    pub fn discard(&mut self) {
        self.sound = false;
    }
}

fn take(origin: &Origin) -> Option<Instance> {
    let mut idle = IDLE.lock();
    let at = idle.iter().rposition(|(known, _)| known == origin)?;
    Some(idle.swap_remove(at).1)
}

impl Deref for Lease {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        let (_, instance) = self.held.as_ref().expect("held until it is dropped");
        instance
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some((origin, instance)) = self.held.take() else {
            return;
        };
        if self.sound && !self.alone {
            // So that the next device does not get this one's messages.
            instance.messages.take();
            let mut idle = IDLE.lock();
            idle.push((origin, instance));
            let oldest = (idle.len() > MAX_IDLE).then(|| idle.remove(0));
            drop(idle);
            // Outside the lock, because a driver may take long.
            drop(oldest);
        }
    }
}

//! Instances are kept for the life of the process, and used by one device after the other.
//!
//! NVIDIA's driver does not survive many instances: after some ten it has compiled `SubgroupLocalInvocationId` wrongly,
//! and after some hundred it offered no device any more. Keeping instances also saves the time of loading drivers.

use std::ffi::OsString;
use std::ops::Deref;

use ash::vk;
use parking_lot::Mutex;

use super::choice::Snapshot;
use super::instance::Instance;
use crate::config::{self, Config};
use crate::error::Result;

/// What instances must have in common to be exchangeable.
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

/// Most idle instances that are kept: a program that keeps changing drivers' variables would otherwise collect them.
const MAX_IDLE: usize = 4;

/// Instances that no device uses, the latest last. They are leaked when the process ends, which need not wait for drivers
/// to be unloaded.
static IDLE: Mutex<Vec<(Origin, Instance)>> = Mutex::new(Vec::new());

/// An instance in use. When this is dropped, the instance becomes idle if it has listed a device and nothing failed;
/// otherwise it is destroyed.
pub struct Lease {
    /// Some until `drop`.
    held: Option<(Origin, Instance)>,
    /// Whether the next device may have it.
    sound: bool,
    /// Test switch: it is not shared with other devices.
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
        // An instance without devices is not kept: a driver may be installed later.
        self.sound = !found.is_empty();
        Ok(found)
    }

    /// Keeps the instance from other devices, since it may be the cause of a failure.
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
            // The next device must not get this one's messages.
            instance.messages.take();
            let mut idle = IDLE.lock();
            idle.push((origin, instance));
            let oldest = (idle.len() > MAX_IDLE).then(|| idle.remove(0));
            drop(idle);
            // Not under the lock: this may take a driver long.
            drop(oldest);
        }
    }
}

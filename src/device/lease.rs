//! Instances are kept for the life of the process, and used by one device after the other.
//!
//! NVIDIA's driver does not stand their coming and going: after some ten instances it has been seen to compile
//! `SubgroupLocalInvocationId` wrongly, and after some hundred to offer no device any more. It also saves the time of
//! loading the drivers.

use std::ffi::OsString;
use std::ops::Deref;

use ash::vk;
use parking_lot::Mutex;

use super::choice::Snapshot;
use super::instance::Instance;
use crate::config::{self, Config};
use crate::error::Result;

/// What decides what an instance is.
#[derive(Clone, PartialEq, Eq)]
struct Origin {
    loader: Option<OsString>,
    validation: bool,
    /// What the loader and the drivers read as they are loaded, sorted.
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

/// Idle instances that are kept: programs that go on changing variables of drivers would leave ever more.
const MAX_IDLE: usize = 4;

/// Instances that no device uses, the latest last. Never dropped at the end: the process does not wait for drivers to be unloaded.
static IDLE: Mutex<Vec<(Origin, Instance)>> = Mutex::new(Vec::new());

/// An instance for as long as this lives. Then it goes back to the idle ones if it has shown a device and no failure,
/// or is destroyed.
pub struct Lease {
    /// Some until `drop`.
    held: Option<(Origin, Instance)>,
    /// Whether the next device may have it.
    sound: bool,
    /// Test switch: it is not shared with other devices.
    alone: bool,
}

impl Lease {
    /// An idle instance as `config` and the environment want it, or a new one.
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
        // One without a device is not kept: a driver may come to be there.
        self.sound = !found.is_empty();
        Ok(found)
    }

    /// No other device gets it, since something failed that may be its fault.
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
            // The next device is not to hear what was said of this one.
            instance.messages.take();
            let mut idle = IDLE.lock();
            idle.push((origin, instance));
            let oldest = (idle.len() > MAX_IDLE).then(|| idle.remove(0));
            drop(idle);
            // Not under the lock: drivers take their time.
            drop(oldest);
        }
    }
}

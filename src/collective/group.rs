//! A group of processes as this one sees it: its ledger, and the timeline that the host signals for the device.
//!
//! Whatever happens, every value that the device waits for is signalled: by the group's thread when the collective
//! has ended, or by whoever notes the failure, at once and for all calls that are under way. A thread that sits in a
//! library and does not come back therefore holds up nothing but itself.

use std::sync::Arc;

use ash::vk;
use collectives::{Call, Cause, Failure, Job, Ledger, Phase};
use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::memory::staging::Lease;
use crate::queue::exit::OnExit;
use crate::queue::timeline::Timeline;

/// The group of this process; there is one at most.
static GROUP: Mutex<Option<Arc<Group>>> = Mutex::new(None);

pub fn current() -> Option<Arc<Group>> {
    GROUP.lock().clone()
}

pub fn set_current(group: Option<Arc<Group>>) {
    *GROUP.lock() = group;
}

pub struct State {
    pub ledger: Ledger<Arc<Lease>>,
    /// What rank 0 gave all others at the start.
    pub text: String,
    /// The driver is not called any more: the process ends.
    exiting: bool,
}

pub struct Group {
    pub rank: u32,
    pub size: u32,
    /// Its values are the numbers of the calls.
    pub semaphore: vk::Semaphore,
    pub state: Mutex<State>,
    /// There is a job, or a failure.
    wake: Condvar,
    /// Held by the group's thread while it is in the driver.
    driver: Mutex<()>,
    pub timeline: Arc<Timeline>,
    device: Arc<Device>,
}

impl Group {
    pub fn new(
        device: &Arc<Device>,
        timeline: &Arc<Timeline>,
        rank: u32,
        size: u32,
    ) -> Result<Arc<Self>> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(0);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is live and has timeline semaphores.
        let semaphore = unsafe { device.raw.create_semaphore(&info, None) }
            .map_err(error::create("vkCreateSemaphore", "timeline semaphore", 0))
            .map_err(|error| device.observe(error))?;
        device.name(semaphore, "helios collectives");
        Ok(Arc::new(Self {
            rank,
            size,
            semaphore,
            state: Mutex::new(State {
                ledger: Ledger::default(),
                text: String::new(),
                exiting: false,
            }),
            wake: Condvar::new(),
            driver: Mutex::new(()),
            timeline: Arc::clone(timeline),
            device: Arc::clone(device),
        }))
    }

    /// Why the group takes no calls, if so.
    pub fn check(&self) -> Result<()> {
        let ledger = &self.state.lock().ledger;
        if let Some(failure) = &ledger.failure {
            return Err(failure.clone().into());
        }
        let problem = match ledger.phase {
            Phase::Ready => return Ok(()),
            Phase::Starting => "the group is still starting",
            Phase::Left => "the group was left: destroy() was called",
        };
        Err(Error::Batch(problem.to_owned()))
    }

    /// Takes a collective on; the value of the group's timeline that says that it has ended, one way or the other.
    pub fn enqueue(&self, call: Call, after: u64, memory: Option<Arc<Lease>>) -> Result<u64> {
        let value = self.state.lock().ledger.enqueue(call, after, memory);
        self.wake.notify_one();
        match value {
            Some(value) => Ok(value),
            None => self.check().and(Err(Error::Internal("no call".to_owned()))),
        }
    }

    /// Waits for the next call; none when the group has failed.
    pub fn next(&self) -> Option<Job<Arc<Lease>>> {
        let mut state = self.state.lock();
        while state.ledger.failure.is_none() {
            if let Some(job) = state.ledger.take() {
                return Some(job);
            }
            self.wake.wait(&mut state);
        }
        None
    }

    pub fn failed(&self) -> bool {
        self.state.lock().ledger.failure.is_some()
    }

    /// Notes that the turn of a call has come; false if the group has failed.
    pub fn begin(&self, call: Call) -> bool {
        let mut state = self.state.lock();
        let begins = state.ledger.begin(call);
        // Under the lock: a failure that comes now lets go of it again.
        self.timeline.hold(begins);
        begins
    }

    /// Notes that a call has ended: the device may go on behind it.
    pub fn end(&self, call: &Call) {
        let mut state = self.state.lock();
        if let Some(value) = state.ledger.end(call) {
            self.signal(&state, value);
        }
    }

    /// Notes a failure, the first alone: the device goes on, and results from the first call on that has not ended
    /// stand for nothing.
    pub fn fail(&self, failure: Failure) {
        let mut state = self.state.lock();
        let Some((value, spoiled)) = state.ledger.fail(failure.clone()) else {
            return;
        };
        if let Some(after) = spoiled {
            // Before the device goes on.
            self.timeline.invalidate_above(after, failure.into());
            self.signal(&state, value);
        }
        drop(state);
        self.wake.notify_one();
    }

    fn signal(&self, state: &State, value: u64) {
        self.timeline.hold(false);
        if state.exiting {
            return;
        }
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(self.semaphore)
            .value(value);
        // SAFETY: the semaphore is live. Its values only grow, as the ledger's do, and its lock is held.
        if let Err(result) = unsafe { self.device.raw.signal_semaphore(&info) } {
            // The device waits forever for what cannot be signalled.
            self.timeline.give_up();
            self.device
                .fail(&error::vulkan("vkSignalSemaphore")(result));
        }
    }

    /// Runs `body` unless the process ends, with its end waiting for it meanwhile.
    pub fn in_driver<T>(&self, body: impl FnOnce() -> T) -> Option<T> {
        let _in = self.driver.lock();
        let exiting = self.state.lock().exiting;
        (!exiting).then(body)
    }
}

impl OnExit for Group {
    fn on_exit(&self) {
        let rank = Some(self.rank);
        self.fail(Failure::new(Cause::Aborted, "the process is ending", rank));
        std::mem::forget(self.driver.lock());
        self.state.lock().exiting = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: `Context` has waited for the queue or has leaked its reference; the thread has dropped its own.
        unsafe { self.device.raw.destroy_semaphore(self.semaphore, None) };
    }
}

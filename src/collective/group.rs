//! This process's side of a group: its ledger, and the timeline that the host signals for the device.
//!
//! Every value that the device waits for is signalled, whatever happens. The group's thread signals it when the
//! collective has ended; after a failure the thread that notes the failure signals the values of all running calls. If
//! MPI is working on a call's memory at that moment, the failure first waits for the group's thread to leave MPI, so
//! that MPI and the device never use the memory together. It does not wait long for a thread that is stuck in the
//! library.
//!
//! An engine on the device signals the end of its collectives itself and cannot be stopped. After a failure the group's
//! thread signals the remaining values once the engine's stream is idle.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ash::vk;
use collectives::nccl::cuda::OwnedFd;
use collectives::nccl::rank::Range;
use collectives::{Call, Cause, Failure, Job, Ledger, Phase};
use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::device::sharing::TIMELINE_HANDLE;
use crate::error::{self, Error, Result};
use crate::memory::staging::Lease;
use crate::memory::{Memory, Resource};
use crate::queue::exit::{self, OnExit};
use crate::queue::timeline::Timeline;

/// This process's group, if it is in one.
static GROUP: Mutex<Option<Arc<Group>>> = Mutex::new(None);

pub fn current() -> Option<Arc<Group>> {
    GROUP.lock().clone()
}

pub fn set_current(group: Option<Arc<Group>>) {
    *GROUP.lock() = group;
}

/// How long process exit waits for an engine on the device to become idle.
const LEAVE: Duration = Duration::from_secs(5);

/// How long a failure waits for MPI to release a call's memory. The group's thread checks for failures every 50 µs, unless
/// the library does not return.
const LOOK_UP: Duration = Duration::from_millis(100);

/// What a collective works on.
pub enum Payload {
    Host(Host),
    /// The device's own memory, and the submission's value that the engine waits for. Consecutive calls share that
    /// value.
    Shared(Range, u64),
}

/// Memory that MPI works on: a buffer's, a copy, or from one to the other.
pub struct Host {
    /// The range of a buffer that the host can access.
    pub range: Option<NonNull<u8>>,
    /// Where MPI writes, and where it reads if there is no range.
    pub lease: Option<Arc<Lease>>,
    /// Keeps the memory of the range alive.
    pub kept: (Arc<Resource>, Arc<Memory>),
}

// SAFETY: the pointer alone is not `Send`. It leads into memory that stays mapped for as long as what is kept, and the
// stream's order says who uses it.
unsafe impl Send for Host {}

pub struct State {
    pub ledger: Ledger<Payload>,
    /// What rank 0 sent to all others at the start.
    pub text: String,
    /// Memory that the engine has imported.
    pub shared: Vec<Weak<()>>,
    /// An engine on the device may signal, or MPI is working on a call.
    at_work: bool,
    /// The value to signal once that has ended.
    owed: Option<u64>,
    /// The process is ending: do not call the driver.
    exiting: bool,
}

pub struct Group {
    pub rank: u32,
    pub size: u32,
    /// The group's timeline. Its values are the numbers of the calls.
    pub semaphore: vk::Semaphore,
    /// Whether the engine works on the device and signals the timeline itself.
    pub on_device: bool,
    pub state: Mutex<State>,
    /// Notified of a job or a failure.
    wake: Condvar,
    /// Held by the group's thread while it is in the driver.
    driver: Mutex<()>,
    pub timeline: Arc<Timeline>,
    device: Arc<Device>,
}

/// A timeline that starts at 0; exportable if `shared`.
fn semaphore(device: &Device, shared: bool) -> Result<vk::Semaphore> {
    let mut kind = vk::SemaphoreTypeCreateInfo::default()
        .semaphore_type(vk::SemaphoreType::TIMELINE)
        .initial_value(0);
    let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(TIMELINE_HANDLE);
    let mut info = vk::SemaphoreCreateInfo::default();
    if shared {
        info = info.push_next(&mut export);
    }
    let info = info.push_next(&mut kind);
    // SAFETY: the device is live, has timeline semaphores, and exports them if it is asked to.
    let semaphore = unsafe { device.raw.create_semaphore(&info, None) }
        .map_err(error::create("vkCreateSemaphore", "timeline semaphore", 0))
        .map_err(|error| device.observe(error))?;
    device.name(semaphore, "helios collectives");
    Ok(semaphore)
}

impl Group {
    /// `on_device`: the engine works on the device and imports the timeline.
    pub fn new(
        device: &Arc<Device>,
        timeline: &Arc<Timeline>,
        [rank, size]: [u32; 2],
        on_device: bool,
    ) -> Result<Arc<Self>> {
        let able = (device.sharing.as_ref()).is_some_and(|s| s.timelines.is_some());
        if on_device && !able {
            let text = format!(
                "{} cannot share timeline semaphores (VK_KHR_external_semaphore_fd), which NCCL needs",
                device.snapshot.name
            );
            return Err(Failure::engine(text).into());
        }
        Ok(Arc::new(Self {
            rank,
            size,
            semaphore: semaphore(device, on_device)?,
            on_device,
            state: Mutex::new(State {
                ledger: Ledger::default(),
                text: String::new(),
                shared: Vec::new(),
                at_work: false,
                owed: None,
                exiting: false,
            }),
            wake: Condvar::new(),
            driver: Mutex::new(()),
            timeline: Arc::clone(timeline),
            device: Arc::clone(device),
        }))
    }

    /// A new descriptor for the group's timeline.
    #[cfg(unix)]
    pub fn export(&self) -> Result<OwnedFd> {
        use std::os::fd::FromRawFd;
        let sharing = self.device.sharing.as_ref();
        let Some(calls) = sharing.and_then(|sharing| sharing.timelines.as_ref()) else {
            return Err(Error::Internal("no timelines to share".to_owned()));
        };
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(self.semaphore)
            .handle_type(TIMELINE_HANDLE);
        // SAFETY: the semaphore is live and was made to be exported as this type.
        let fd = unsafe { calls.get_semaphore_fd(&info) }
            .map_err(|e| self.device.observe(error::vulkan("vkGetSemaphoreFdKHR")(e)))?;
        // SAFETY: the descriptor is new, and nobody else's. If this fails, a child process gets one too many.
        let _ = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: as above.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[cfg(not(unix))]
    pub fn export(&self) -> Result<OwnedFd> {
        Err(Error::Internal("no descriptors here".to_owned()))
    }

    /// Fails if the group takes no calls, with the reason.
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

    /// The engine has started; `text` is what rank 0 gave all others.
    pub fn ready(&self, text: String) {
        let mut state = self.state.lock();
        state.text = text;
        state.ledger.phase = Phase::Ready;
    }

    /// Queues a collective. Returns the value of the group's timeline that is signalled when it has succeeded or
    /// failed.
    pub fn enqueue(&self, call: Call, after: u64, memory: Option<Payload>) -> Result<u64> {
        let value = self.state.lock().ledger.enqueue(call, after, memory);
        self.wake.notify_one();
        match value {
            Some(value) => Ok(value),
            None => self.check().and(Err(Error::Internal("no call".to_owned()))),
        }
    }

    /// Waits for the next call; none when the group has failed.
    pub fn next(&self) -> Option<Job<Payload>> {
        let mut state = self.state.lock();
        while state.ledger.failure.is_none() {
            if let Some(job) = state.ledger.take() {
                return Some(job);
            }
            self.wake.wait(&mut state);
        }
        None
    }

    /// The next call on the device's own memory, if it is queued already and follows the same submission.
    pub fn next_behind(&self, submitted: u64) -> Option<(Call, Range)> {
        let behind = |job: &Job<Payload>| matches!(job.memory, Some(Payload::Shared(_, value)) if value == submitted);
        let job = self.state.lock().ledger.take_if(behind)?;
        match job.memory {
            Some(Payload::Shared(range, _)) => Some((job.call, range)),
            _ => None,
        }
    }

    pub fn failed(&self) -> bool {
        self.state.lock().ledger.failure.is_some()
    }

    /// Whether the group has failed, or the device is lost and signals nothing more.
    pub fn stopped(&self) -> bool {
        self.device.lost() || self.failed()
    }

    /// Notes that an engine on the device may signal from now on.
    pub fn engine_begins(&self) {
        self.state.lock().at_work = true;
    }

    /// Notes that the engine has signalled its last value, or that MPI has finished a call.
    pub fn engine_ends(&self) {
        let mut state = self.state.lock();
        state.at_work = false;
        if let Some(value) = state.owed.take() {
            self.signal(&state, value);
        }
        drop(state);
        self.wake.notify_all();
    }

    /// Notes that a call begins; false if the group has failed.
    pub fn begin(&self, call: Call) -> bool {
        let mut state = self.state.lock();
        let begins = state.ledger.begin(call);
        state.at_work |= begins;
        // Under the lock, since a failure that comes now releases it again.
        self.timeline.hold(begins);
        begins
    }

    /// Notes that a call has ended, so that the device may continue. `signalled`: the engine has signalled it.
    pub fn end(&self, call: &Call, signalled: bool) {
        let mut state = self.state.lock();
        match state.ledger.end(call) {
            Some(_) if signalled => self.timeline.hold(false),
            Some(value) => self.signal(&state, value),
            None => {}
        }
    }

    /// Notes the first failure; later ones change nothing. The device continues, but results are invalid from the first
    /// unfinished call on.
    pub fn fail(&self, failure: Failure) {
        let mut state = self.state.lock();
        let Some((value, spoiled)) = state.ledger.fail(failure.clone()) else {
            return;
        };
        if let Some(after) = spoiled {
            // Before the device continues.
            self.timeline.invalidate_above(after, failure.into());
            if !self.on_device {
                let at_work = |state: &mut State| state.at_work;
                self.wake.wait_while_for(&mut state, at_work, LOOK_UP);
            }
            match state.at_work && self.on_device {
                true => {
                    self.timeline.hold(false);
                    state.owed = Some(value);
                }
                false => self.signal(&state, value),
            }
        }
        drop(state);
        self.wake.notify_all();
    }

    fn signal(&self, state: &State, value: u64) {
        self.timeline.hold(false);
        // An engine on the device may have signalled this value before it was stopped, and values may only grow.
        // SAFETY: the semaphore is live.
        let counter = || unsafe { self.device.raw.get_semaphore_counter_value(self.semaphore) };
        let there = || self.on_device && counter().is_ok_and(|reached| reached >= value);
        if state.exiting || there() {
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

    /// Runs `body` unless the process is ending; the process does not exit while it runs.
    pub fn in_driver<T>(&self, body: impl FnOnce() -> T) -> Option<T> {
        let _in = self.driver.lock();
        let exiting = self.state.lock().exiting;
        (!exiting).then(body)
    }
}

impl OnExit for Group {
    fn on_exit(&self) -> bool {
        let rank = Some(self.rank);
        self.fail(Failure::new(Cause::Aborted, "the process is ending", rank));
        // CUDA's driver is about to be torn down too.
        let mut state = self.state.lock();
        if self.on_device {
            let at_work = |state: &mut State| state.at_work;
            self.wake.wait_while_for(&mut state, at_work, LEAVE);
        }
        drop(state);
        let driver = self.driver.try_lock_for(exit::LIMIT);
        self.state.lock().exiting = true;
        driver.map(std::mem::forget).is_some()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: `Context` has waited for the queue or has leaked its reference; the thread has dropped its own.
        unsafe { self.device.raw.destroy_semaphore(self.semaphore, None) };
    }
}

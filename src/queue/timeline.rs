//! The clock: one timeline semaphore, polled and then waited for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ash::vk;
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::queue::interrupt::Interrupt;

/// One blocking wait; a lost device is noticed at least this often.
const SLICE: Duration = Duration::from_millis(500);
/// Longest time spent polling before a blocking wait, on a device that is not this processor.
const SPIN: Duration = Duration::from_micros(2_000);

/// How long a device that is not this processor may go without completing a value while somebody waits.
const LIMIT: Duration = Duration::from_secs(60);

/// Watches a wait for progress. Time counts by the slices that went by in vain, so that a process that was
/// stopped in between has not waited.
#[derive(Default)]
pub struct Patience {
    seen: u64,
    waited: Duration,
}

impl Patience {
    /// Notes that a wait of `time` was in vain. Fails the device if nothing was completed for too long.
    pub fn after(&mut self, timeline: &Timeline, time: Duration) -> Result<()> {
        let seen = timeline.seen();
        if seen != self.seen {
            *self = Self {
                seen,
                waited: Duration::ZERO,
            };
        }
        if timeline.held.load(Ordering::Acquire) {
            // The device waits for the host, which waits for other processes and has a limit of its own.
            self.waited = Duration::ZERO;
            return Ok(());
        }
        self.waited += time;
        match timeline.limit {
            Some(limit) if self.waited >= limit => Err(timeline.hangs(limit)),
            _ => Ok(()),
        }
    }
}

pub struct Timeline {
    pub semaphore: vk::Semaphore,
    device: Arc<Device>,
    /// Highest value seen to be complete.
    completed: AtomicU64,
    /// Highest value whose submission the queue has: those behind it are still being recorded.
    queued: AtomicU64,
    /// Values of the submissions in flight. The calls between two submissions get values of their
    /// own, which the semaphore jumps over: waits go to the submission's.
    submissions: Mutex<VecDeque<u64>>,
    /// Polls before a blocking wait, where `HELIOS_SPIN_WAIT` says so.
    polls: Option<u64>,
    spin: Duration,
    /// How long a wait may be without progress.
    limit: Option<Duration>,
    /// Whether a wait was longer than that.
    hangs: AtomicBool,
    /// Whether the device waits for the host.
    held: AtomicBool,
    /// Values above this one count for nothing up to a last one, and why; [`u64::MAX`] for none.
    invalid_above: AtomicU64,
    invalid: Mutex<Option<(u64, Error)>>,
}

impl Timeline {
    /// `start` is the semaphore's first value.
    pub fn new(device: Arc<Device>, start: u64) -> Result<Self> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(start);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is live and has timeline semaphores.
        let semaphore = unsafe { device.raw.create_semaphore(&info, None) }
            .map_err(error::create("vkCreateSemaphore", "timeline semaphore", 0))?;
        device.name(semaphore, "helios timeline");
        // A software device computes on the cores that would poll.
        let software = device.snapshot.device_type == vk::PhysicalDeviceType::CPU;
        let spin = if software { Duration::ZERO } else { SPIN };
        let limit = match device.config.wait_timeout {
            Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None => (!software).then_some(LIMIT),
        };
        Ok(Self {
            semaphore,
            completed: AtomicU64::new(start),
            queued: AtomicU64::new(start),
            submissions: Mutex::new(VecDeque::new()),
            polls: device.config.spin_wait,
            spin,
            limit,
            hangs: AtomicBool::new(false),
            held: AtomicBool::new(false),
            invalid_above: AtomicU64::new(u64::MAX),
            invalid: Mutex::new(None),
            device,
        })
    }

    /// Highest value known to be complete, without asking the driver.
    #[inline]
    pub fn seen(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Notes that a submission will signal `value`.
    pub fn submitted(&self, value: u64) {
        let mut submissions = self.submissions.lock();
        let seen = self.seen();
        while submissions.front().is_some_and(|&v| v <= seen) {
            submissions.pop_front();
        }
        submissions.push_back(value);
    }

    /// What must be reached so that fewer than `most` submissions are in flight, if it is not.
    pub fn beyond(&self, most: usize) -> Option<u64> {
        let submissions = self.submissions.lock();
        let value = submissions[submissions.len().checked_sub(most)?];
        drop(submissions);
        let reached = |completed| completed >= value;
        (!reached(self.seen()) && !self.completed().is_ok_and(reached)).then_some(value)
    }

    /// Notes that the queue has the submission of `value`.
    pub fn queued(&self, value: u64) {
        self.queued.store(value, Ordering::Release);
    }

    /// The value of the submission that `value` belongs to.
    fn signalled_by(&self, value: u64) -> u64 {
        let submissions = self.submissions.lock();
        let at = submissions.partition_point(|&v| v < value);
        submissions.get(at).copied().unwrap_or(value)
    }

    /// Notes that `value` is complete. Not by `fetch_max`, which ThreadSanitizer does not see.
    fn note(&self, value: u64) {
        let higher = |seen| (value > seen).then_some(value);
        let _ = self
            .completed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, higher);
    }

    /// Asks the driver.
    pub fn completed(&self) -> Result<u64> {
        // SAFETY: the semaphore is live.
        let value = unsafe { self.device.raw.get_semaphore_counter_value(self.semaphore) }
            .map_err(|e| {
                self.device
                    .observe(error::vulkan("vkGetSemaphoreCounterValue")(e))
            })?;
        if value == u64::MAX {
            // Drivers set the counter to its maximum when the device is lost.
            return Err(self
                .device
                .observe(Error::DeviceLost("vkGetSemaphoreCounterValue".to_owned())));
        }
        self.note(value);
        Ok(value)
    }

    /// Notes whether the device waits for the host, so that it is not taken for one that hangs.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    /// The device goes on, but what values above `value` stand for was computed from what never came: waits for
    /// them end with `error`.
    pub fn invalidate_above(&self, value: u64, error: Error) {
        let mut invalid = self.invalid.lock();
        if invalid.is_none() || value < self.invalid_above.load(Ordering::Acquire) {
            *invalid = Some((u64::MAX, error));
            self.invalid_above.store(value, Ordering::Release);
        }
    }

    /// Values above `value` count again.
    pub fn validate_above(&self, value: u64) {
        if let Some((last, _)) = &mut *self.invalid.lock() {
            *last = (*last).min(value);
        }
    }

    /// Why the value, reached or not, stands for nothing, if so.
    #[inline]
    pub fn check_valid(&self, value: u64) -> Result<()> {
        if value <= self.invalid_above.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.invalid.lock() {
            Some((last, error)) if value <= *last => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Nothing will come to an end on the device any more: nobody may wait for it to.
    pub fn give_up(&self) {
        self.hangs.store(true, Ordering::Release);
    }

    /// Returns when `value`, which must have been submitted, is reached.
    pub fn wait(&self, value: u64) -> Result<()> {
        self.wait_while(value, || Ok(()))
    }

    /// The same, with an error from `wanted` as its end: it is asked before a wait that blocks, and after each slice.
    pub fn wait_while(&self, value: u64, wanted: impl Fn() -> Result<()>) -> Result<()> {
        self.wait_until_reached(value, wanted)?;
        self.check_valid(value)
    }

    fn wait_until_reached(&self, value: u64, wanted: impl Fn() -> Result<()>) -> Result<()> {
        if self.seen() >= value {
            return Ok(());
        }
        let value = self.signalled_by(value);
        if !self.spin.is_zero() {
            // Polling the driver would slow down the thread that is recording.
            let end = Instant::now() + self.spin;
            while self.queued.load(Ordering::Acquire) < value && Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        if self.completed()? >= value {
            return Ok(());
        }
        match self.polls {
            Some(polls) => {
                for _ in 0..polls {
                    if self.completed()? >= value {
                        return Ok(());
                    }
                    std::hint::spin_loop();
                }
            }
            None => {
                if self.poll(value, self.spin)? {
                    return Ok(());
                }
            }
        }
        let mut patience = Patience::default();
        let mut interrupt = None;
        wanted()?;
        while !self.wait_for(value, SLICE)? {
            patience.after(self, SLICE)?;
            interrupt.get_or_insert_with(Interrupt::watch);
            wanted()?;
        }
        Ok(())
    }

    #[cold]
    fn hangs(&self, limit: Duration) -> Error {
        self.hangs.store(true, Ordering::Release);
        self.device.observe(Error::DeviceLost(format!(
            "nothing was completed in {} s, and timeline value {} of {} was the last (HELIOS_WAIT_TIMEOUT sets \
             another time)",
            limit.as_secs(),
            self.seen(),
            self.queued.load(Ordering::Acquire),
        )))
    }

    /// Waits until the device has done what the queue has of it, also if it counts as lost, for `at_most` so long.
    /// Nobody may submit any more. False if it does not come to an end: then nothing that it uses may be touched.
    pub fn drained(&self, at_most: Option<Duration>) -> bool {
        let semaphores = [self.semaphore];
        let values = [self.queued.load(Ordering::Acquire)];
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values);
        let mut patience = Patience::default();
        let mut interrupt = None;
        let mut left = at_most.unwrap_or(Duration::MAX);
        loop {
            let raw = &self.device.raw;
            // SAFETY: the semaphore is live.
            let waited = unsafe { raw.wait_semaphores(&info, SLICE.as_nanos() as u64) };
            if waited != Err(vk::Result::TIMEOUT) {
                // Reached, or lost in the driver's own eyes: then nothing is at work for long.
                // SAFETY: the device is live, and whoever submits has ended.
                let _ = unsafe { self.device.raw.device_wait_idle() };
                return true;
            }
            // Progress; a failure shows in the next wait.
            let _ = self.completed();
            left = left.saturating_sub(SLICE);
            if left.is_zero()
                || self.hangs.load(Ordering::Acquire)
                || patience.after(self, SLICE).is_err()
            {
                return false;
            }
            interrupt.get_or_insert_with(Interrupt::watch);
        }
    }

    /// Whether the submission of `value`, which was handed over, is reached. Does not wait.
    pub fn reached(&self, value: u64) -> Result<bool> {
        // Polling the driver would slow down the thread that is recording.
        let queued = || self.queued.load(Ordering::Acquire) >= value;
        Ok(self.seen() >= value || queued() && self.completed()? >= value)
    }

    /// Polls for so long; whether the submission of `value` was reached.
    fn poll(&self, value: u64, time: Duration) -> Result<bool> {
        if time.is_zero() {
            return Ok(false);
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.reached(value)? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Blocks for at most `time`; whether `value`, which must have been submitted, was reached.
    pub fn wait_for(&self, value: u64, time: Duration) -> Result<bool> {
        if self.seen() >= value {
            return Ok(true);
        }
        self.device.check_alive()?;
        let semaphores = [self.semaphore];
        let signalled = self.signalled_by(value);
        let values = [signalled];
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values);
        let raw = &self.device.raw;
        // SAFETY: the semaphore is live.
        match unsafe { raw.wait_semaphores(&info, time.as_nanos() as u64) } {
            Ok(()) => {
                self.note(signalled);
                Ok(true)
            }
            Err(vk::Result::TIMEOUT) => {
                self.completed()?;
                Ok(self.seen() >= value)
            }
            Err(other) => Err(self
                .device
                .observe(error::vulkan("vkWaitSemaphores")(other))),
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: `Context` has waited for the queue; nobody waits on the semaphore any more.
        unsafe { self.device.raw.destroy_semaphore(self.semaphore, None) };
    }
}

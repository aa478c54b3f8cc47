//! The clock: one timeline semaphore, which waits first poll and then block on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ash::vk;
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::queue::interrupt::Interrupt;

/// Length of one blocking wait: a lost device is noticed at least this often.
const SLICE: Duration = Duration::from_millis(500);
/// Longest time spent polling before a blocking wait, on a device other than this processor.
const SPIN: Duration = Duration::from_micros(2_000);

/// How long a device other than this processor may go without completing a value while somebody waits.
const LIMIT: Duration = Duration::from_secs(60);

/// Watches a wait for progress. It counts waits that ended in vain rather than the clock, so that a process that was
/// stopped in between has not waited.
#[derive(Default)]
pub struct Patience {
    seen: u64,
    waited: Duration,
}

impl Patience {
    /// Notes a wait of `time` that ended in vain. Fails the device if nothing was completed for too long.
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
    /// Highest value known to be complete.
    completed: AtomicU64,
    /// Highest value whose submission the queue has; later ones are still being recorded.
    queued: AtomicU64,
    /// Values of the submissions in flight. Calls between two submissions get values too, which the semaphore skips: a
    /// wait for one of them waits for the submission's value.
    submissions: Mutex<VecDeque<u64>>,
    /// Number of polls before a blocking wait, if `HELIOS_SPIN_WAIT` sets it.
    polls: Option<u64>,
    spin: Duration,
    /// How long a wait may go without progress.
    limit: Option<Duration>,
    /// Whether a wait went longer than that.
    hangs: AtomicBool,
    /// Whether the device waits for the host.
    held: AtomicBool,
    /// Values above this one, up to the last one given here, are invalid, and why; [`u64::MAX`] for none.
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

    /// The value to wait for until fewer than `most` submissions are in flight; none if there already are.
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

    /// The value that the submission containing `value` signals.
    fn signalled_by(&self, value: u64) -> u64 {
        let submissions = self.submissions.lock();
        let at = submissions.partition_point(|&v| v < value);
        submissions.get(at).copied().unwrap_or(value)
    }

    /// Notes that `value` is complete. Does not use `fetch_max`, which ThreadSanitizer does not see.
    fn note(&self, value: u64) {
        let higher = |seen| (value > seen).then_some(value);
        let _ = self
            .completed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, higher);
    }

    /// The highest complete value, from the driver.
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

    /// Notes whether the device waits for the host, so that it does not count as hanging.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    /// Waits for values above `value` end with `error` from now on: the device continues, but on data that never
    /// arrived.
    pub fn invalidate_above(&self, value: u64, error: Error) {
        let mut invalid = self.invalid.lock();
        if invalid.is_none() || value < self.invalid_above.load(Ordering::Acquire) {
            *invalid = Some((u64::MAX, error));
            self.invalid_above.store(value, Ordering::Release);
        }
    }

    /// Values above `value` are valid again.
    pub fn validate_above(&self, value: u64) {
        if let Some((last, _)) = &mut *self.invalid.lock() {
            *last = (*last).min(value);
        }
    }

    /// Fails if the value is invalid, reached or not.
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

    /// Nothing will finish on the device any more: nobody may wait for it.
    pub fn give_up(&self) {
        self.hangs.store(true, Ordering::Release);
    }

    /// Returns when `value`, which must have been submitted, is reached.
    pub fn wait(&self, value: u64) -> Result<()> {
        self.wait_while(value, || Ok(()))
    }

    /// The same, but `wanted` may end it with an error: it is asked before a blocking wait and after each slice.
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

    /// Waits for at most `at_most` until the device has finished everything in the queue, even if it counts as lost.
    /// Nobody may submit any more. False if it does not finish: then nothing that it uses may be touched.
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
                // Reached, or lost in the driver's own view: either way the device is soon idle. SAFETY: the device is
                // live, and whoever submits has ended.
                let _ = unsafe { self.device.raw.device_wait_idle() };
                return true;
            }
            // Notes progress; a failure shows in the next wait.
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

    /// Polls for `time`; whether the submission of `value` was reached.
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

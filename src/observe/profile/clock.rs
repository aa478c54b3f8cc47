//! Converts device time to the host's clock.
//!
//! With `VK_KHR_calibrated_timestamps` (or its EXT form) the driver reads both clocks at once. Without it, waiting for
//! an empty submission bounds the difference.

use ash::{ext, khr, vk};

use crate::device::{Device, calibrated_timestamps};

/// How the clocks were aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Khr,
    Ext,
    Submission,
}

impl Source {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Khr => "VK_KHR_calibrated_timestamps",
            Self::Ext => "VK_EXT_calibrated_timestamps",
            Self::Submission => "submission",
        }
    }
}

/// Nanoseconds of the host's monotonic clock: on Unix that of `process.hrtime`.
#[cfg(unix)]
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is this function's own.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since the first call.
#[cfg(not(unix))]
pub fn now() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START
        .get_or_init(std::time::Instant::now)
        .elapsed()
        .as_nanos() as u64
}

/// The driver's call that reads both clocks at once.
enum Calls {
    Khr(khr::calibrated_timestamps::Device),
    Ext(ext::calibrated_timestamps::Device),
}

pub struct Calibrated {
    calls: Calls,
}

impl Calibrated {
    /// None if the extension is not enabled, or cannot read the host's monotonic clock.
    pub fn new(device: &Device) -> Option<Self> {
        // A test selects the other path.
        if device.config.test_no_calibration {
            return None;
        }
        let entry = device.instance.entry();
        let (instance, raw) = (&device.instance.raw, &device.raw);
        let enabled = calibrated_timestamps(&|name| {
            device
                .snapshot
                .extensions
                .iter()
                .any(|e| e.as_bytes() == name.to_bytes())
        })?;
        // SAFETY: the device has the extension, here and below.
        let (calls, domains) = unsafe {
            if enabled == khr::calibrated_timestamps::NAME {
                let query = khr::calibrated_timestamps::Instance::new(entry, instance);
                (
                    Calls::Khr(khr::calibrated_timestamps::Device::new(instance, raw)),
                    query.get_physical_device_calibrateable_time_domains(device.physical),
                )
            } else {
                let query = ext::calibrated_timestamps::Instance::new(entry, instance);
                (
                    Calls::Ext(ext::calibrated_timestamps::Device::new(instance, raw)),
                    query.get_physical_device_calibrateable_time_domains(device.physical),
                )
            }
        };
        let domains = domains.ok()?;
        (domains.contains(&vk::TimeDomainKHR::DEVICE)
            && domains.contains(&vk::TimeDomainKHR::CLOCK_MONOTONIC))
        .then_some(Self { calls })
    }

    pub fn source(&self) -> Source {
        match self.calls {
            Calls::Khr(_) => Source::Khr,
            Calls::Ext(_) => Source::Ext,
        }
    }

    /// Device ticks and host nanoseconds of one moment, and the largest error in nanoseconds.
    pub fn read(&self) -> Option<(u64, u64, u64)> {
        let info = [
            vk::CalibratedTimestampInfoKHR::default().time_domain(vk::TimeDomainKHR::DEVICE),
            vk::CalibratedTimestampInfoKHR::default()
                .time_domain(vk::TimeDomainKHR::CLOCK_MONOTONIC),
        ];
        // SAFETY: the device has the extension and both domains.
        let (times, deviation) = unsafe {
            match &self.calls {
                Calls::Khr(calls) => calls.get_calibrated_timestamps(&info),
                Calls::Ext(calls) => calls.get_calibrated_timestamps(&info),
            }
        }
        .ok()?;
        Some((times[0], times[1], deviation))
    }
}

/// Maps device ticks, whose upper bits may be invalid, to the host's nanoseconds.
#[derive(Debug, Clone)]
pub struct Clock {
    /// Valid bits of a timestamp.
    mask: u64,
    /// Nanoseconds of a tick.
    period: f64,
    /// The last timestamp seen, and its ticks with wraps undone.
    last: u64,
    unwrapped: i128,
    /// A moment on both clocks.
    ticks: i128,
    host: u64,
    /// Largest error that a calibration allows, in nanoseconds.
    pub deviation: u64,
    pub source: Source,
}

impl Clock {
    pub fn new(valid_bits: u32, period: f64, source: Source, moment: (u64, u64, u64)) -> Self {
        let mask = if valid_bits >= 64 {
            u64::MAX
        } else {
            (1 << valid_bits) - 1
        };
        let (ticks, host, deviation) = moment;
        let ticks = ticks & mask;
        Self {
            mask,
            period,
            last: ticks,
            unwrapped: i128::from(ticks),
            ticks: i128::from(ticks),
            host,
            deviation,
            source,
        }
    }

    /// Ticks that continue where the device's counter wraps. Times must come in nearly sorted.
    pub fn unwrap(&mut self, raw: u64) -> i128 {
        let forward = raw.wrapping_sub(self.last) & self.mask;
        let delta = if forward > self.mask / 2 {
            i128::from(forward) - i128::from(self.mask) - 1
        } else {
            i128::from(forward)
        };
        self.last = raw & self.mask;
        self.unwrapped += delta;
        self.unwrapped
    }

    /// Aligns the clocks again, since oscillators drift.
    pub fn calibrate(&mut self, (ticks, host, deviation): (u64, u64, u64)) {
        self.ticks = self.unwrap(ticks);
        self.host = host;
        self.deviation = self.deviation.max(deviation);
    }

    pub fn nanoseconds(&self, ticks: i128) -> f64 {
        ticks as f64 * self.period
    }

    /// Nanoseconds of the host's clock after `origin`.
    pub fn since(&self, ticks: i128, origin: u64) -> f64 {
        self.nanoseconds(ticks - self.ticks) + (i128::from(self.host) - i128::from(origin)) as f64
    }

    /// Nanoseconds since the last calibration.
    pub fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_counters_go_on_and_late_times_go_back() {
        let mut clock = Clock::new(32, 2.0, Source::Submission, (0xffff_fff0, 1000, 5));
        assert_eq!(clock.since(clock.unwrapped, 1000), 0.0);
        let later = clock.unwrap(0x10);
        assert_eq!(clock.since(later, 1000), 64.0);
        let before = clock.unwrap(0xffff_fff8);
        assert_eq!(clock.since(before, 1000), 16.0);
        assert_eq!(clock.since(before, 900), 116.0);
    }

    #[test]
    fn calibration_moves_the_host_and_keeps_the_largest_deviation() {
        let mut clock = Clock::new(64, 1.0, Source::Khr, (100, 1000, 7));
        clock.calibrate((1100, 2010, 3));
        assert_eq!(clock.deviation, 7);
        let ticks = clock.unwrap(1200);
        assert_eq!(clock.since(ticks, 0), 2110.0);
        assert_eq!(clock.age(2510), 500);
    }
}

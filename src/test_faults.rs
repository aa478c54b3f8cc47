//! Test switches. `HELIOS_TEST_LOSE_DEVICE=N[,M…]` loses the process's first device at its Nth submission,
//! its second at its Mth, and so on; 0, or nothing, leaves a device alone. The submission does not reach
//! the driver, so its work is lost indeed. `HELIOS_TEST_PANIC=place` panics once, where the code has come to
//! that place.
#![deny(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

static PANIC: OnceLock<String> = OnceLock::new();

/// The place where this process panics, once.
pub fn panic_at(place: &str) {
    let _ = PANIC.set(place.to_owned());
}

/// Panics if this is the place.
#[inline]
pub fn panic_if_asked(place: &str) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if PANIC.get().is_some_and(|named| named == place) && !DONE.swap(true, Ordering::Relaxed) {
        panic!("HELIOS_TEST_PANIC, in {place}");
    }
}

pub struct Loss {
    /// The submission that fails; 0 for none.
    at: u64,
    submissions: AtomicU64,
}

impl Loss {
    /// `at`: the submission of each device in turn.
    pub fn of_next_device(at: &[u64]) -> Self {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        let device = DEVICES.fetch_add(1, Ordering::Relaxed) as usize;
        Self::new(at, device)
    }

    fn new(at: &[u64], device: usize) -> Self {
        Self {
            at: at.get(device).copied().unwrap_or(0),
            submissions: AtomicU64::new(0),
        }
    }

    /// Counts a submission.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.at == 0 || self.submissions.fetch_add(1, Ordering::Relaxed) + 1 < self.at {
            return Ok(());
        }
        Err(Error::DeviceLost(format!(
            "HELIOS_TEST_LOSE_DEVICE, at submission {}",
            self.at
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_its_own_number() {
        let fails = |list: &[u64], device| {
            let loss = Loss::new(list, device);
            (1..10).find(|_| loss.check().is_err())
        };
        assert_eq!(fails(&[3, 5], 0), Some(3));
        assert_eq!(fails(&[3, 5], 1), Some(5));
        assert_eq!(fails(&[3, 5], 2), None);
        assert_eq!(fails(&[0, 2], 0), None);
        assert_eq!(fails(&[], 0), None);
    }
}

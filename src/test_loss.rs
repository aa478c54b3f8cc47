//! A test switch: `HELIOS_TEST_LOSE_DEVICE=N[,M…]` loses the process's first device at its Nth submission,
//! its second at its Mth, and so on; 0, or nothing, leaves a device alone. The submission does not reach
//! the driver, so its work is lost indeed.
#![deny(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

pub struct Loss {
    /// The submission that fails; 0 for none.
    at: u64,
    submissions: AtomicU64,
}

impl Loss {
    pub fn of_next_device() -> Self {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        let device = DEVICES.fetch_add(1, Ordering::Relaxed) as usize;
        let list = std::env::var("HELIOS_TEST_LOSE_DEVICE").unwrap_or_default();
        Self::new(&list, device)
    }

    fn new(list: &str, device: usize) -> Self {
        let at = list
            .split(',')
            .nth(device)
            .and_then(|n| n.trim().parse().ok());
        Self {
            at: at.unwrap_or(0),
            submissions: AtomicU64::new(0),
        }
    }

    /// Counts a submission.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.at == 0 {
            return Ok(());
        }
        if self.submissions.fetch_add(1, Ordering::Relaxed) + 1 < self.at {
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
        let fails = |list: &str, device| {
            let loss = Loss::new(list, device);
            (1..10).find(|_| loss.check().is_err())
        };
        assert_eq!(fails("3, 5", 0), Some(3));
        assert_eq!(fails("3, 5", 1), Some(5));
        assert_eq!(fails("3, 5", 2), None);
        assert_eq!(fails("0,2", 0), None);
        assert_eq!(fails("", 0), None);
        assert_eq!(fails("nonsense", 0), None);
    }
}

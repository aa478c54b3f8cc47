//! Test switches.
//!
//! `HELIOS_TEST_LOSE_DEVICE=N[,M…]` loses the process's first device at its Nth submission, its second at its Mth, and
//! so on; 0 or nothing leaves a device alone. The submission does not reach the driver, so its work really is lost.
//!
//! `HELIOS_TEST_PANIC=place`, one of [`PLACES`], panics once, when the code reaches that place.
#![deny(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// The places that ask whether to panic, separated by `, `.
pub const PLACES: &str = "abort, completion, pressure, settle, stream, submit";

static PANIC: OnceLock<&str> = OnceLock::new();

/// Sets the place where this process panics, once.
pub fn panic_at(place: &'static str) {
    let _ = PANIC.set(place);
}

/// Panics if this is the place.
#[inline]
pub fn panic_if_asked(place: &str) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if PANIC.get().is_some_and(|named| *named == place) && !DONE.swap(true, Ordering::Relaxed) {
        panic!("HELIOS_TEST_PANIC, in {place}");
    }
}

pub struct Loss {
    /// The submission that fails; 0 for none.
    at: u64,
    submissions: AtomicU64,
}

impl Loss {
    /// `at`: the submission for each device in turn.
    pub fn of_next_device(at: &[u64]) -> Self {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        Self::new(at, DEVICES.fetch_add(1, Ordering::Relaxed) as usize)
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
    use std::path::Path;

    use super::*;

    #[test]
    fn the_places_are_those_where_the_code_asks() {
        fn walk(folder: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let asked = text.split("panic_if_asked(\"").skip(1);
                    found.extend(asked.map(|rest| rest.split('"').next().unwrap().to_owned()));
                }
            }
        }
        let mut found = Vec::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        walk(&source, &mut found);
        // This file has the beginning of such a call in this test.
        found.retain(|place| place.chars().all(|c| c.is_ascii_lowercase()));
        found.sort();
        assert_eq!(found.join(", "), PLACES);
    }

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

//! Listeners for memory pressure.
//!
//! Memory use is checked when memory is taken from the driver and when a caller asks for statistics. Without listeners
//! a check costs one load.
#![deny(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Use of the largest device-local heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub used: u64,
    /// What the driver allows this process, or else the heap's size.
    pub budget: u64,
}

impl Use {
    pub fn fraction(self) -> f64 {
        self.used as f64 / (self.budget.max(1)) as f64
    }
}

struct Listener {
    id: u64,
    fraction: f64,
    /// Whether the listener knows of the present shortage.
    reported: bool,
    report: Box<dyn Fn(Use) + Send>,
}

/// The listeners.
pub struct Listeners {
    any: AtomicBool,
    last: AtomicU64,
    list: Mutex<Vec<Listener>>,
}

/// The process's listeners, whatever device it has.
pub static LISTENERS: Listeners = Listeners::new();

impl Listeners {
    const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            last: AtomicU64::new(0),
            list: Mutex::new(Vec::new()),
        }
    }

    /// Calls `report` whenever use rises to `fraction` of the budget. It must not block or call back into this module.
    pub fn add(&self, fraction: f64, report: Box<dyn Fn(Use) + Send>) -> u64 {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.list.lock().push(Listener {
            id,
            fraction,
            reported: false,
            report,
        });
        self.any.store(true, Ordering::Release);
        id
    }

    /// Removes a listener; whether it existed.
    pub fn remove(&self, id: u64) -> bool {
        let mut list = self.list.lock();
        let before = list.len();
        list.retain(|l| l.id != id);
        self.any.store(!list.is_empty(), Ordering::Release);
        list.len() < before
    }

    /// Checks memory use if there are listeners.
    pub fn look(&self, measure: impl FnOnce() -> Use) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let now = measure();
        for listener in self.list.lock().iter_mut() {
            let short = now.fraction() >= listener.fraction;
            if short && !listener.reported {
                (listener.report)(now);
            }
            listener.reported = short;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn each_shortage_is_reported_once() {
        let (sender, reported) = channel();
        let listeners = Listeners::new();
        let report = Box::new(move |now: Use| sender.send(now.used).expect("a receiver"));
        let id = listeners.add(0.5, report);
        for used in [10, 49, 50, 80, 60, 40, 70] {
            listeners.look(|| Use { used, budget: 100 });
        }
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [50, 70]);
        assert!(listeners.remove(id));
        assert!(!listeners.remove(id));
        listeners.look(|| Use {
            used: 99,
            budget: 100,
        });
        assert_eq!(reported.try_iter().count(), 0);
    }
}

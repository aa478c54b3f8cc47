//! The completion thread: many threads ask, drop and end at once. The device is a timeline that
//! another thread advances.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::device::Device;
use crate::error;
use crate::memory::staging::{Lease, Pool};
use crate::queue::completion;
use crate::queue::timeline::Timeline;

/// Threads that ask, like workers that share the device.
const ASKERS: u64 = 6;
/// Requests of each in one life of the device.
pub const REQUESTS: u64 = 400;

/// How a life of the device ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// Everything is reached first.
    Drained,
    /// `destroy` with values outstanding that nothing signals.
    Early,
    /// The device is lost.
    Lost,
}

pub fn life(end: End) {
    let (device, gpu) = Device::new(true);
    let timeline = Arc::new(Timeline::new(Arc::clone(&device), 0).expect("a timeline"));
    let pool = Arc::new(Pool::default());
    let answered = Arc::new(AtomicU64::new(0));
    // As in the addon: asking goes on under the lock that `destroy` takes.
    let open = Arc::new(Mutex::new(true));
    let last = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for asker in 0..ASKERS {
            let (timeline, pool, answered) = (&timeline, &pool, &answered);
            let (open, last) = (&open, &last);
            scope.spawn(move || {
                for request in 0..REQUESTS {
                    let open = open.lock();
                    if !*open {
                        return;
                    }
                    completion::start().expect("a thread");
                    let value = last.fetch_add(1, Ordering::Relaxed) + 1;
                    timeline.submitted(value);
                    // Not in order: some ask for what is long past, some for what is to come.
                    let value = match (asker + request) % 3 {
                        0 => value,
                        1 => value.saturating_sub(20).max(1),
                        _ => value.min(1),
                    };
                    let lease = (request % 2 == 0).then(|| pool.lease(value));
                    lease.iter().for_each(Lease::write);
                    let answered = Arc::clone(answered);
                    let clock = Arc::clone(timeline);
                    let expected = lease.is_some();
                    let done = Box::new(move |outcome: error::Result<Option<Lease>>| {
                        match outcome {
                            Ok(lease) => {
                                assert!(clock.seen() >= value, "answered before it was reached");
                                assert_eq!(lease.is_some(), expected);
                                lease.iter().for_each(Lease::check);
                            }
                            Err(error) => assert_ne!(end, End::Drained, "{error}"),
                        }
                        answered.fetch_add(1, Ordering::Release);
                    });
                    completion::when(timeline, value, lease, done);
                    drop(open);
                    if request % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        // The device.
        let (raw, last, open) = (&device.raw, &last, &open);
        let total = ASKERS * REQUESTS;
        let stop = if end == End::Drained {
            total
        } else {
            total / 2
        };
        scope.spawn(move || {
            let begun = Instant::now();
            let mut reached = 0;
            while reached < stop && begun.elapsed() < Duration::from_secs(20) {
                if !*open.lock() {
                    return;
                }
                reached = last.load(Ordering::Relaxed).min(reached + 7).min(stop);
                raw.signal(reached);
                std::thread::yield_now();
            }
            if end == End::Lost {
                raw.lose();
            }
        });
        if end == End::Early {
            std::thread::sleep(Duration::from_millis(2));
            let mut open = open.lock();
            *open = false;
            completion::finish();
        }
    });
    completion::finish();
    let (asked, answered) = (pool.asked(), answered.load(Ordering::Acquire));
    assert!(answered <= ASKERS * REQUESTS);
    if end != End::Early {
        assert_eq!(answered, ASKERS * REQUESTS, "{end:?}: all are answered");
    }
    assert_eq!(pool.returned(), asked, "{end:?}: every block came back");
    device.raw.stop();
    gpu.join().expect("a device");
}

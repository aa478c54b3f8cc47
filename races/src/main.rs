//! The completion thread, as it is in the addon, with many threads asking, dropping and ending at
//! once, for ThreadSanitizer to watch. The device is a clock that another thread advances.
//!
//! `node scripts/races.mjs`; as a program without the sanitizer it checks the answers alone.

#[path = "../../src/completion.rs"]
mod completion;
mod error;
mod staging;
mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use staging::Pool;
use timeline::Timeline;

/// Threads that ask, like workers that share the device.
const ASKERS: u64 = 6;
/// Requests of each in one life of the device.
const REQUESTS: u64 = 400;

/// How a life of the device ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// Everything is reached first.
    Drained,
    /// `destroy` with values outstanding that nothing signals.
    Early,
    /// The device is lost.
    Lost,
}

fn life(end: End) {
    let timeline = Arc::new(Timeline::default());
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
                    // Not in order: some ask for what is long past, some for what is to come.
                    let value = match (asker + request) % 3 {
                        0 => value,
                        1 => value.saturating_sub(20).max(1),
                        _ => value.min(1),
                    };
                    let lease = (request % 2 == 0).then(|| pool.lease(value));
                    let answered = Arc::clone(answered);
                    let clock = Arc::clone(timeline);
                    let expected = lease.is_some();
                    let done = Box::new(move |outcome: error::Result<Option<staging::Lease>>| {
                        match outcome {
                            Ok(lease) => {
                                assert!(clock.seen() >= value, "answered before it was reached");
                                assert_eq!(lease.is_some(), expected);
                                lease.iter().for_each(|lease| lease.check());
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
        let (clock, last, open) = (&timeline, &last, &open);
        let total = ASKERS * REQUESTS;
        let stop = if end == End::Drained {
            total
        } else {
            total / 2
        };
        scope.spawn(move || {
            let begun = Instant::now();
            while clock.seen() < stop && begun.elapsed() < Duration::from_secs(20) {
                if !*open.lock() {
                    return;
                }
                let given = last.load(Ordering::Relaxed);
                clock.advance(given.min(clock.seen() + 7).min(stop));
                std::thread::yield_now();
            }
            if end == End::Lost {
                clock.lose();
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
    assert!(answered > 0 && answered <= ASKERS * REQUESTS);
    if end != End::Early {
        assert_eq!(answered, ASKERS * REQUESTS, "{end:?}: all are answered");
    }
    assert_eq!(pool.returned(), asked, "{end:?}: every block came back");
}

/// Two threads in one block at once: what the sanitizer must find, if it is there at all. Neither
/// begins before both are there, and neither ends before both are done: one that ended before the
/// other began would be ordered before it by the thread that starts them. They meet without a lock,
/// which would order them too.
fn race() {
    struct Shared(staging::Lease);
    // SAFETY: it is not safe; that is the point.
    unsafe impl Sync for Shared {}
    let shared = Shared(Arc::new(Pool::default()).lease(1));
    let arrived = AtomicU32::new(0);
    let meet = |all: u32| {
        arrived.fetch_add(1, Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < all {
            std::thread::yield_now();
        }
    };
    let (shared, meet) = (&shared, &meet);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                meet(2);
                shared.0.check();
                meet(4);
            });
        }
    });
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("race") {
        return race();
    }
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let rounds: u32 = rounds.unwrap_or(20);
    for _ in 0..rounds {
        for end in [End::Drained, End::Early, End::Lost] {
            life(end);
        }
    }
    println!(
        "{} lives of a device, {} requests in each at most",
        rounds * 3,
        ASKERS * REQUESTS
    );
}

//! The completion thread: the one thread of the process that waits for the device on behalf of promises. It runs from
//! the first promise of a device until that device is destroyed, and sleeps while nothing is awaited.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::memory::staging::Lease;
use crate::queue::exit::{self, OnExit};
use crate::queue::timeline::{Patience, Timeline};
use crate::test_faults::panic_if_asked;

/// Length of one blocking wait. After it, at the latest, the thread notices a request for a lower value, a lost device,
/// and the end of the process.
const SLICE: Duration = Duration::from_millis(2);

/// Called on the completion thread with the request's readback block. It must not take a lock under which [`finish`] or
/// [`when`] is called.
pub type Done = Box<dyn FnOnce(Result<Option<Lease>>) + Send>;

struct Waiter {
    timeline: Arc<Timeline>,
    /// The block that the device copies into until the value is reached.
    lease: Option<Lease>,
    done: Done,
}

struct Queue {
    /// By value, then by order of request.
    waiters: BTreeMap<(u64, u64), Waiter>,
    requests: u64,
    /// Blocks of failed waits. The device may still write to them, so they are kept until it is gone.
    abandoned: Vec<Lease>,
    thread: Option<(JoinHandle<()>, Arc<LeaveDriver>)>,
    /// The device is idle: a value not reached now never will be.
    finishing: bool,
    /// The process is ending: drivers are being torn down.
    exiting: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    waiters: BTreeMap::new(),
    requests: 0,
    abandoned: Vec::new(),
    thread: None,
    finishing: false,
    exiting: false,
});
static WAKE: Condvar = Condvar::new();

/// Ensures that the thread runs. Call it before recording the work that [`when`] waits for, so that nothing can fail
/// afterwards.
pub fn start() -> Result<()> {
    let mut queue = QUEUE.lock();
    if queue.exiting {
        return Err(Error::Aborted("the process is ending".to_owned()));
    }
    if queue.thread.is_none() {
        let on_exit = Arc::new(LeaveDriver);
        exit::at_exit(&on_exit);
        let thread = std::thread::Builder::new()
            .name("helios completion".to_owned())
            .spawn(run)
            .map_err(|e| Error::Internal(format!("no completion thread: {e}")))?;
        queue.thread = Some((thread, on_exit));
    }
    Ok(())
}

/// Makes the thread leave the driver before the process ends.
struct LeaveDriver;

impl OnExit for LeaveDriver {
    fn on_exit(&self) -> bool {
        let thread = {
            let mut queue = QUEUE.lock();
            queue.exiting = true;
            queue.thread.take()
        };
        WAKE.notify_one();
        // The thread checks again after a slice.
        let _ = thread.map(|(thread, _)| thread.join());
        true
    }
}

/// Calls `done` once `value`, which must have been submitted, is reached or can no longer be.
pub fn when(timeline: &Arc<Timeline>, value: u64, lease: Option<Lease>, done: Done) {
    let mut queue = QUEUE.lock();
    queue.requests += 1;
    let key = (value, queue.requests);
    let waiter = Waiter {
        timeline: Arc::clone(timeline),
        lease,
        done,
    };
    queue.waiters.insert(key, waiter);
    // If there were others, the thread is waiting for the device and will check again by itself.
    if queue.waiters.len() == 1 {
        WAKE.notify_one();
    }
}

/// Answers every request and ends the thread. The device must be idle or lost, and no new requests may come.
pub fn finish() {
    let thread = {
        let mut queue = QUEUE.lock();
        queue.finishing = true;
        queue.thread.take()
    };
    WAKE.notify_one();
    // The thread ends by returning.
    let _ = thread.map(|(thread, _)| thread.join());
    let abandoned = {
        let mut queue = QUEUE.lock();
        queue.finishing = false;
        std::mem::take(&mut queue.abandoned)
    };
    drop(abandoned);
}

/// Returns the lowest awaited value; sleeps while there is none. None at the end.
fn next() -> Option<(u64, Arc<Timeline>, bool)> {
    let mut queue = QUEUE.lock();
    loop {
        if queue.exiting {
            return None;
        }
        if let Some((&(value, _), waiter)) = queue.waiters.first_key_value() {
            return Some((value, Arc::clone(&waiter.timeline), queue.finishing));
        }
        if queue.finishing {
            return None;
        }
        WAKE.wait(&mut queue);
    }
}

/// Takes the requests for values up to `most` out of the queue, lowest first.
fn take(most: u64) -> BTreeMap<(u64, u64), Waiter> {
    let mut queue = QUEUE.lock();
    match most.checked_add(1) {
        Some(above) => {
            let rest = queue.waiters.split_off(&(above, 0));
            std::mem::replace(&mut queue.waiters, rest)
        }
        None => std::mem::take(&mut queue.waiters),
    }
}

fn run() {
    let mut patience = Patience::default();
    while let Some((value, timeline, finishing)) = next() {
        let slice = if finishing { Duration::ZERO } else { SLICE };
        let failure = match timeline.wait_for(value, slice) {
            Ok(true) => {
                for ((value, _), waiter) in take(timeline.seen()) {
                    let valid = timeline.check_valid(value);
                    answer(waiter.done, valid.map(|()| waiter.lease));
                }
                continue;
            }
            Ok(false) if !finishing => match patience.after(&timeline, slice) {
                Ok(()) => continue,
                Err(error) => error,
            },
            Ok(false) => Error::Aborted(format!(
                "the device was destroyed before timeline value {value} was reached"
            )),
            Err(error) => error,
        };
        for waiter in take(u64::MAX).into_values() {
            QUEUE.lock().abandoned.extend(waiter.lease);
            answer(waiter.done, Err(failure.clone()));
        }
    }
}

/// Calls a listener; a panic in one must not affect the others.
fn answer(done: Done, outcome: Result<Option<Lease>>) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        panic_if_asked("completion");
        done(outcome);
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::config::Config;
    use crate::context::{Context, Legacy};

    /// The queue is shared by the process.
    static ALONE: Mutex<()> = Mutex::new(());
    const LONG: Duration = Duration::from_secs(10);

    fn context() -> Context {
        Context::new(&Config::from_env(true).unwrap(), &mut Legacy::default())
            .expect("tests need a Vulkan device")
    }

    /// Requests each value, with a block where asked; outcomes in order of arrival.
    fn request(
        context: &Context,
        values: &[(u64, bool)],
    ) -> Receiver<(u64, Result<Option<Lease>>)> {
        let (sender, receiver) = channel();
        start().expect("a thread");
        for &(value, block) in values {
            let sender = sender.clone();
            let lease = block.then(|| context.readback.lease(4096).expect("a block"));
            let done = Box::new(move |outcome| {
                let _ = sender.send((value, outcome));
            });
            when(&context.timeline, value, lease, done);
        }
        receiver
    }

    #[test]
    fn values_are_answered_as_they_are_reached_whatever_the_order_of_requests() {
        let _alone = ALONE.lock();
        let mut context = context();
        let answers = request(&context, &[(5, false), (3, true), (4, false), (3, false)]);
        assert!(answers.recv_timeout(4 * SLICE).is_err());
        for _ in 0..3 {
            context.commit().expect("a submission");
        }
        for block in [true, false] {
            let (value, outcome) = answers.recv_timeout(LONG).expect("an answer");
            assert_eq!(value, 3);
            assert_eq!(outcome.expect("success").is_some(), block);
        }
        assert_eq!(context.readback.leased_bytes(), 0);
        assert!(answers.recv_timeout(4 * SLICE).is_err());
        for expected in [4, 5] {
            context.commit().expect("a submission");
            let (value, outcome) = answers.recv_timeout(LONG).expect("an answer");
            assert_eq!(value, expected);
            assert!(outcome.is_ok());
        }
        context.close(None);
        finish();
        assert!(QUEUE.lock().thread.is_none());
    }

    #[test]
    fn a_lost_device_answers_everybody_and_its_blocks_wait_for_its_end() {
        let _alone = ALONE.lock();
        let context = context();
        let answers = request(&context, &[(8, true), (9, false)]);
        context.device.fail(&Error::Internal("a test".to_owned()));
        for expected in [8, 9] {
            let (value, outcome) = answers.recv_timeout(LONG).expect("an answer");
            assert_eq!(value, expected);
            assert!(matches!(outcome, Err(Error::DeviceLost(_))));
        }
        let readback = Arc::clone(&context.readback);
        assert!(readback.leased_bytes() >= 4096);
        context.close(None);
        finish();
        assert_eq!(readback.leased_bytes(), 0);
    }

    #[test]
    fn the_end_answers_what_was_never_reached() {
        let _alone = ALONE.lock();
        let context = context();
        let answers = request(&context, &[(7, true)]);
        context.close(None);
        finish();
        let (value, outcome) = answers.try_recv().expect("an answer");
        assert_eq!(value, 7);
        assert!(matches!(outcome, Err(Error::Aborted(_))));
    }
}

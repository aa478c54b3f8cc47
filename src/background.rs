//! What takes the driver long, done in order on a thread of its own, for callers that can go on without.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::leave::{self, Leave};

/// How long a waiting thread looks again and again before it sleeps: to wake one takes a good part of what
/// most jobs take.
const SPIN: Duration = Duration::from_micros(500);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Whether the thread is at one.
    busy: bool,
    ending: bool,
    /// The process ends: drivers are being torn down.
    leaving: bool,
}

/// A thread that does jobs in order. It starts with the first.
pub struct Background {
    name: &'static str,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Jobs that were given, and that are done, for a look without the lock.
    given: AtomicU64,
    done: AtomicU64,
    /// The last job that somebody may have to wait for.
    needed: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Whether there are processors enough to poll.
    spins: bool,
}

impl Background {
    /// `name`: the thread's.
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            queue: Mutex::default(),
            changed: Condvar::new(),
            given: AtomicU64::new(0),
            done: AtomicU64::new(0),
            needed: AtomicU64::new(0),
            thread: Mutex::new(None),
            spins: thread::available_parallelism().is_ok_and(|cores| cores.get() > 2),
        })
    }

    /// Has the job done behind all those before it; here and now where no thread can be had.
    pub fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        self.add(job, true);
    }

    /// As [`Self::run`], of a job that nobody needs: tickets do not count it.
    pub fn run_some_time(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        self.add(job, false);
    }

    fn add(self: &Arc<Self>, job: impl FnOnce() + Send + 'static, needed: bool) {
        if !self.start() {
            job();
            return;
        }
        let mut queue = self.queue.lock();
        // With the lock held: jobs are counted in the order in which they are done.
        let number = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        if needed {
            self.needed.store(number, Ordering::Relaxed);
        }
        queue.jobs.push_back(Box::new(job));
        drop(queue);
        self.changed.notify_all();
    }

    /// Whether the thread runs; starts it if need be.
    fn start(self: &Arc<Self>) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_none() && !self.queue.lock().ending {
            let shared = Arc::clone(self);
            let spawned = thread::Builder::new()
                .name(self.name.to_owned())
                .spawn(move || shared.work());
            *thread = spawned.ok();
            if thread.is_some() {
                leave::at_exit(self);
            }
        }
        thread.is_some()
    }

    /// Whether there was ever a job.
    pub fn started(&self) -> bool {
        self.thread.lock().is_some()
    }

    /// Names all jobs so far that are needed, for [`Self::wait_for`].
    #[inline]
    pub fn ticket(&self) -> u64 {
        self.needed.load(Ordering::Relaxed)
    }

    /// Returns once all jobs so far are done, or fails where some never will be: the process is ending.
    pub fn wait(&self) -> Result<()> {
        self.wait_for(self.given.load(Ordering::Relaxed))
    }

    /// Returns once the jobs of the ticket are done, whatever comes behind them.
    #[inline]
    pub fn wait_for(&self, ticket: u64) -> Result<()> {
        // Acquire: what the jobs did is seen by whoever finds them done.
        match self.done.load(Ordering::Acquire) >= ticket {
            true => Ok(()),
            false => self.wait_long(ticket),
        }
    }

    #[cold]
    fn wait_long(&self, ticket: u64) -> Result<()> {
        let mut queue = self.queue.lock();
        let mut until = self.spins.then(|| Instant::now() + SPIN);
        while self.done.load(Ordering::Acquire) < ticket {
            if queue.leaving {
                return Err(Error::Aborted("the process is ending".to_owned()));
            }
            until = until.filter(|&until| Instant::now() < until);
            match until {
                Some(_) => MutexGuard::unlocked(&mut queue, || {
                    (0..64).for_each(|_| std::hint::spin_loop());
                }),
                None => self.changed.wait(&mut queue),
            }
        }
        Ok(())
    }

    /// Ends the thread, behind all jobs.
    pub fn close(&self) {
        self.queue.lock().ending = true;
        self.changed.notify_all();
        // Not with the lock held: a job may give another.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // It cannot panic but by a bug, which the panic itself has reported.
            let _ = thread.join();
        }
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            let job = match queue.leaving {
                true => None,
                false => queue.jobs.pop_front(),
            };
            let Some(job) = job else {
                if queue.ending {
                    return;
                }
                self.changed.wait(&mut queue);
                continue;
            };
            queue.busy = true;
            MutexGuard::unlocked(&mut queue, job);
            queue.busy = false;
            self.done.fetch_add(1, Ordering::Release);
            self.changed.notify_all();
        }
    }
}

impl Leave for Background {
    fn leave(&self) {
        let mut queue = self.queue.lock();
        queue.leaving = true;
        self.changed.notify_all();
        while queue.busy {
            self.changed.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn jobs_are_done_in_order_and_all_before_the_wait_and_the_end() {
        let background = Background::new("test");
        assert!(background.wait().is_ok() && !background.started());
        let done = Arc::new(Mutex::new(Vec::new()));
        for round in 0..100 {
            for number in 0..round % 7 {
                let done = Arc::clone(&done);
                background.run(move || done.lock().push((round, number)));
            }
            background.wait().expect("done");
            let count: usize = (0..=round).map(|round| round % 7).sum();
            assert_eq!(done.lock().len(), count);
        }
        assert!(done.lock().is_sorted());
        for _ in 0..10 {
            let done = Arc::clone(&done);
            background.run(move || {
                thread::sleep(Duration::from_millis(1));
                done.lock().push((100, 0));
            });
        }
        background.close();
        assert_eq!(
            done.lock()
                .iter()
                .filter(|(round, _)| *round == 100)
                .count(),
            10
        );
    }

    #[test]
    fn a_wait_is_over_when_the_jobs_before_it_are_done() {
        let background = Background::new("test");
        background.run(|| {});
        let ticket = background.ticket();
        let (go, gate) = channel();
        background.run(move || gate.recv().expect("a word"));
        background.wait_for(ticket).expect("done");
        assert!(background.done.load(Ordering::Relaxed) < background.ticket());
        go.send(()).expect("the thread");
        background.wait().expect("done");
        background.close();
    }

    #[test]
    fn a_job_may_give_another_also_at_the_end() {
        let background = Background::new("test");
        let done = Arc::new(AtomicUsize::new(0));
        let (entered, seen) = channel();
        let (inner, count) = (Arc::clone(&background), Arc::clone(&done));
        background.run(move || {
            entered.send(()).expect("the test");
            while !inner.queue.lock().ending {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(20));
            inner.run(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        seen.recv().expect("the job");
        background.close();
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_ticket_does_not_count_what_nobody_needs() {
        let background = Background::new("test");
        background.run(|| {});
        let ticket = background.ticket();
        let (go, gate) = channel();
        background.run_some_time(move || gate.recv().expect("a word"));
        assert_eq!(background.ticket(), ticket);
        background.wait_for(background.ticket()).expect("done");
        assert_eq!(background.done.load(Ordering::Relaxed), 1);
        go.send(()).expect("the thread");
        background.wait().expect("done");
        assert_eq!(background.done.load(Ordering::Relaxed), 2);
        background.close();
    }

    #[test]
    fn at_the_end_of_the_process_the_job_at_hand_is_the_last() {
        let background = Background::new("test");
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let done = Arc::clone(&done);
            background.run(move || {
                thread::sleep(Duration::from_millis(20));
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        while !background.queue.lock().busy {
            thread::yield_now();
        }
        background.leave();
        let at_once = done.load(Ordering::Relaxed);
        assert!(at_once > 0 && background.wait().is_err());
        thread::sleep(Duration::from_millis(40));
        assert_eq!(done.load(Ordering::Relaxed), at_once);
        background.close();
    }
}

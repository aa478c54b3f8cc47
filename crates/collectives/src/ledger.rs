//! The calls of one rank in order: which are under way, and how far the device may continue.
//!
//! The device waits for every value that [`Ledger::enqueue`] returns. So every value is signalled: by [`Ledger::end`], or
//! all at once by [`Ledger::fail`].
#![deny(unsafe_code)]

use std::collections::VecDeque;
use std::time::Instant;

use crate::call::{Call, Kind};
use crate::failure::Failure;

/// How far a group has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Ready,
    /// All ranks have left.
    Left,
}

/// A collective that has not ended. `M` is the memory that it runs on.
#[derive(Debug)]
pub struct Job<M> {
    /// Its number is the value that the device waits for.
    pub call: Call,
    /// The device's own value of everything called before: what a failure leaves valid.
    pub after: u64,
    pub memory: Option<M>,
}

#[derive(Debug)]
pub struct Ledger<M> {
    pub phase: Phase,
    pub failure: Option<Failure>,
    jobs: VecDeque<Job<M>>,
    /// (number, `after`) of the calls that have not ended.
    outstanding: VecDeque<(u64, u64)>,
    /// The number of the last call that was enqueued.
    pub last: u64,
    /// The last call whose turn has come, and since when; it stays when it has ended.
    pub begun: Option<(Call, Instant)>,
    pub ended: u64,
}

impl<M> Default for Ledger<M> {
    fn default() -> Self {
        Self {
            phase: Phase::Starting,
            failure: None,
            jobs: VecDeque::new(),
            outstanding: VecDeque::new(),
            last: 0,
            begun: None,
            ended: 0,
        }
    }
}

impl<M> Ledger<M> {
    /// Enqueues a call and returns its number, which the device may wait for. None if the group takes no calls.
    pub fn enqueue(&mut self, mut call: Call, after: u64, memory: Option<M>) -> Option<u64> {
        if self.failure.is_some() || self.phase != Phase::Ready {
            return None;
        }
        self.last += 1;
        call.number = self.last;
        self.outstanding.push_back((self.last, after));
        self.jobs.push_back(Job {
            call,
            after,
            memory,
        });
        Some(self.last)
    }

    /// The next call to be carried out.
    pub fn take(&mut self) -> Option<Job<M>> {
        self.jobs.pop_front()
    }

    /// The same if it `fits`.
    pub fn take_if(&mut self, fits: impl FnOnce(&Job<M>) -> bool) -> Option<Job<M>> {
        self.jobs.pop_front_if(|job| fits(job))
    }

    /// Notes that the turn of a call has come; false if the group has failed.
    pub fn begin(&mut self, call: Call) -> bool {
        if self.failure.is_none() {
            self.begun = Some((call, Instant::now()));
        }
        self.failure.is_none()
    }

    /// Notes that a call has ended; the value to signal, unless a failure has signalled all.
    pub fn end(&mut self, call: &Call) -> Option<u64> {
        if self.failure.is_some() {
            return None;
        }
        self.ended = call.number;
        if call.kind == Kind::Leave {
            self.phase = Phase::Left;
        }
        while (self.outstanding.front()).is_some_and(|&(number, _)| number <= call.number) {
            self.outstanding.pop_front();
        }
        Some(call.number)
    }

    /// Notes the first failure; later ones change nothing. Returns the value to signal, and the device's value from which on
    /// results are invalid, if there are any.
    pub fn fail(&mut self, failure: Failure) -> Option<(u64, Option<u64>)> {
        if self.failure.is_some() || self.phase == Phase::Left {
            return None;
        }
        self.failure = Some(failure);
        self.jobs.clear();
        let spoiled = self.outstanding.front().map(|&(_, after)| after);
        self.outstanding.clear();
        Some((self.last, spoiled))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::call::Element;
    use crate::failure::Cause;

    fn call(kind: Kind) -> Call {
        Call {
            kind,
            element: Element::F32,
            elements: 1,
            root: 0,
            number: 0,
        }
    }

    fn ready() -> Ledger<()> {
        Ledger {
            phase: Phase::Ready,
            ..Ledger::default()
        }
    }

    fn lost() -> Failure {
        Failure::new(Cause::PeerLost, "rank 1 is gone", Some(1))
    }

    #[test]
    fn calls_are_taken_only_between_start_and_end() {
        let mut ledger = Ledger::<()>::default();
        assert_eq!(ledger.enqueue(call(Kind::AllReduce), 0, None), None);
        ledger.phase = Phase::Ready;
        assert_eq!(ledger.enqueue(call(Kind::Leave), 0, None), Some(1));
        let job = ledger.take().expect("a job");
        assert_eq!(ledger.end(&job.call), Some(1));
        assert_eq!(ledger.phase, Phase::Left);
        assert_eq!(ledger.enqueue(call(Kind::AllReduce), 0, None), None);
        assert_eq!(ledger.fail(lost()), None, "what was left cannot fail");
    }

    #[test]
    fn a_failure_names_what_it_spoils() {
        let mut ledger = ready();
        for after in [10, 20, 30] {
            ledger.enqueue(call(Kind::AllReduce), after, None);
        }
        let first = ledger.take().expect("a job");
        assert!(ledger.begin(first.call));
        assert_eq!(ledger.end(&first.call), Some(1));
        assert_eq!(ledger.fail(lost()), Some((3, Some(20))));
        assert_eq!(ledger.fail(Failure::engine("later")), None);
        assert_eq!(ledger.failure, Some(lost()));
        assert!(ledger.take().is_none());
        let mut idle = ready();
        assert_eq!(idle.fail(lost()), Some((0, None)));
    }

    proptest! {
        /// Whatever happens in whatever order, in the end no value is left that was given out and not signalled, and
        /// signals only grow.
        #[test]
        fn every_value_is_signalled(steps in prop::collection::vec(0u8..8, 1..60)) {
            let mut ledger = ready();
            let (mut given, mut signalled) = (0, 0);
            let mut running: Option<Job<()>> = None;
            for step in steps {
                let signal = match step {
                    0..=3 => {
                        given = ledger.enqueue(call(Kind::AllReduce), given, None).unwrap_or(given);
                        None
                    }
                    4 | 5 => {
                        running = running.or_else(|| ledger.take());
                        None
                    }
                    6 => running.take().and_then(|job| ledger.end(&job.call)),
                    _ => ledger.fail(lost()).map(|(value, _)| value),
                };
                if let Some(value) = signal {
                    prop_assert!(value >= signalled && value <= given);
                    signalled = value;
                }
            }
            if let Some((value, _)) = ledger.fail(lost()) {
                signalled = value;
            }
            prop_assert_eq!(signalled, given);
        }
    }
}

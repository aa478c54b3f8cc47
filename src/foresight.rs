//! Which results will be read next? A program that trains reads the same ones at the same places of each
//! step, under handles that it makes anew. So a read is known by where its buffer was last written: so
//! many writes before the reads began. Reads without a write between them are a burst, and a burst is
//! known by how many writes there were since the one before, and between that and its predecessor. In a
//! program that goes back through its layers that number grows by the same each time: so it is guessed
//! to go on as it did the last two times.

#![deny(unsafe_code)]

use std::collections::HashMap;

/// Writes that can be looked up.
const LOG: usize = 1 << 15;
/// Bursts that are remembered; beyond it all are forgotten.
const MOST_BURSTS: usize = 256;
/// Reads of one burst that are remembered.
const MOST_READS: usize = 1024;

/// A read that is likely to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// Slot of the buffer, if `wrote` is still its last write.
    pub slot: u32,
    /// Number of that write.
    pub wrote: u64,
    /// First byte.
    pub offset: u64,
    /// How many; none if all that there are.
    pub bytes: Option<u64>,
}

/// One read of a burst as it was when that last came.
#[derive(Clone, Copy)]
struct Guess {
    /// Writes since the buffer's last one when the burst began…
    age: u64,
    /// …and by how much that had grown, wrapping around.
    growth: u64,
    offset: u64,
    bytes: Option<u64>,
    /// Whether it was guessed right.
    right: bool,
}

/// What was written and read so far, as far as it tells what comes.
pub struct Foresight {
    /// Slots of the buffers written, by the write's number.
    log: Box<[u32; LOG]>,
    writes: u64,
    /// Writes before the burst at hand…
    at: u64,
    /// …of them, since the one before, and between that and its predecessor…
    distances: [u64; 2],
    /// …its reads so far…
    reads: usize,
    /// …how many of them were guessed right…
    right: usize,
    /// …and what it is guessed to be: as it is now up to `reads`, beyond as it was when it last came.
    guesses: Vec<Guess>,
    /// The others, by their distances.
    known: HashMap<[u64; 2], Vec<Guess>>,
}

impl Default for Foresight {
    fn default() -> Self {
        let log = vec![0; LOG].into_boxed_slice();
        Self {
            // The length is right.
            log: log.try_into().unwrap_or_else(|_| Box::new([0; LOG])),
            writes: 0,
            at: 0,
            distances: [0; 2],
            reads: 0,
            right: 0,
            guesses: Vec::new(),
            known: HashMap::new(),
        }
    }
}

impl Foresight {
    /// Writes so far.
    #[inline]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Notes that the buffer in this slot is written; the write's number, from 1.
    #[inline]
    pub fn wrote(&mut self, slot: u32) -> u64 {
        self.writes += 1;
        self.log[self.writes as usize % LOG] = slot;
        self.writes
    }

    /// Notes the read of a buffer whose last write was `wrote` (0 if it had none); whether it begins a
    /// burst.
    pub fn read(&mut self, wrote: u64, offset: u64, bytes: Option<u64>) -> bool {
        let begins = self.at != self.writes || self.reads == 0;
        if begins {
            self.begin();
        }
        // What was never written is older than anything.
        let age = match wrote {
            0 => u64::MAX,
            _ => self.at - wrote,
        };
        let mut guess = Guess {
            age,
            growth: 0,
            offset,
            bytes,
            right: false,
        };
        if let Some(known) = self.guesses.get_mut(self.reads) {
            if (known.offset, known.bytes) == (offset, bytes) {
                let growth = age.wrapping_sub(known.age);
                guess.right = growth == known.growth;
                // One wrong guess is the beginning of another round.
                guess.growth = match known.right {
                    true => known.growth,
                    false => growth,
                };
            }
            *known = guess;
        } else if self.reads < MOST_READS {
            self.guesses.push(guess);
        }
        self.reads += 1;
        self.right += usize::from(guess.right);
        begins
    }

    /// Ends the burst at hand and begins another.
    fn begin(&mut self) {
        if self.known.len() >= MOST_BURSTS {
            self.known.clear();
        }
        let mut ended = std::mem::take(&mut self.guesses);
        ended.truncate(self.reads);
        self.known.insert(self.distances, ended);
        self.distances = self.distances_now();
        self.at = self.writes;
        (self.reads, self.right) = (0, 0);
        self.guesses = self.known.remove(&self.distances).unwrap_or_default();
    }

    /// Distances of a burst that would begin now.
    fn distances_now(&self) -> [u64; 2] {
        [self.writes - self.at, self.distances[0]]
    }

    /// Reads of the burst at hand so far.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// Reads that the burst at hand had when it last came; none if it is another this time.
    pub fn expected(&self) -> usize {
        match self.reads - self.right > 1 + self.right {
            true => 0,
            false => self.guesses.len(),
        }
    }

    /// Read `index` of the burst at hand, if it is likely: all before it came as they were guessed, or it
    /// did itself when the burst last came.
    pub fn coming(&self, index: usize) -> Option<Coming> {
        let guess = self.guesses[..self.expected()].get(index)?;
        let likely = index >= self.reads && (guess.right || self.right == self.reads);
        likely.then(|| self.locate(guess, self.at))?
    }

    /// Read `index` of the burst that would begin now, if that was guessed right when it last came.
    pub fn soon(&self, index: usize) -> Option<Coming> {
        let distances = self.distances_now();
        let guesses = if distances == self.distances {
            &self.guesses[..self.reads.min(self.guesses.len())]
        } else {
            self.known.get(&distances)?
        };
        let guess = guesses.get(index)?;
        let likely = guess.right && distances[0] > 0;
        likely.then(|| self.locate(guess, self.writes))?
    }

    fn locate(&self, guess: &Guess, at: u64) -> Option<Coming> {
        // Writes count from 1: number 0 is no write.
        let wrote = at
            .checked_sub(guess.age.wrapping_add(guess.growth))
            .filter(|&wrote| wrote > 0)?;
        if self.writes - wrote >= LOG as u64 {
            return None;
        }
        Some(Coming {
            slot: self.log[wrote as usize % LOG],
            wrote,
            offset: guess.offset,
            bytes: guess.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One step of a program: writes (buffer) and reads (buffer).
    #[derive(Clone, Debug)]
    enum Call {
        Write(u32),
        Read(u32),
    }

    /// Steps whose bursts follow on different numbers of writes, and read what the step wrote.
    fn step() -> impl Strategy<Value = Vec<Call>> {
        let burst = (
            prop::collection::vec(1u32..12, 1..10),
            prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        );
        prop::collection::vec(burst, 1..6).prop_map(|bursts| {
            let (mut step, mut written) = (Vec::new(), Vec::new());
            for (i, (writes, reads)) in bursts.into_iter().enumerate() {
                let more = std::iter::repeat_n(20, 10 * i);
                for buffer in more.chain(writes) {
                    written.push(buffer);
                    step.push(Call::Write(buffer));
                }
                step.extend(reads.iter().map(|read| Call::Read(*read.get(&written))));
            }
            step
        })
    }

    /// Buffers with the number of their last write, and what was foreseen of the reads.
    #[derive(Default)]
    struct Program {
        foresight: Foresight,
        wrote: HashMap<u32, u64>,
    }

    impl Program {
        /// Runs a step with every buffer in slot `base` + its number; for each read, whether its buffer
        /// was foreseen: right before it, and by the read before it in the same burst.
        fn run(&mut self, step: &[Call], base: u32) -> Vec<(bool, bool)> {
            let mut seen = Vec::new();
            let mut next = None;
            for call in step {
                match call {
                    Call::Write(buffer) => {
                        let number = self.foresight.wrote(base + buffer);
                        self.wrote.insert(*buffer, number);
                        next = None;
                    }
                    Call::Read(buffer) => {
                        let wrote = self.wrote.get(buffer).copied().unwrap_or(0);
                        let soon = self.foresight.soon(0);
                        let here = |c: Option<Coming>| {
                            c.is_some_and(|c| c.wrote == wrote && c.slot == base + buffer)
                        };
                        let (soon, coming) = (here(soon), here(next.take().flatten()));
                        self.foresight.read(wrote, 0, None);
                        next = Some(self.foresight.coming(self.foresight.reads()));
                        seen.push((soon, coming));
                    }
                }
            }
            seen
        }
    }

    #[test]
    fn a_read_is_never_guessed_before_the_first_write() {
        let mut foresight = Foresight::default();
        for second in [None, Some(10), Some(5), None] {
            for slot in 0..10 {
                foresight.wrote(slot);
            }
            foresight.read(foresight.writes(), 0, None);
            if let Some(wrote) = second {
                foresight.read(wrote, 0, None);
            }
        }
        // Written 10 before the burst, then 25: now it would be 40, of 40 writes.
        assert_eq!((foresight.reads(), foresight.expected()), (1, 2));
        assert_eq!(foresight.coming(1), None);
    }

    #[test]
    fn a_burst_that_comes_again_is_foreseen_under_other_handles() {
        let step = [
            Call::Write(1),
            Call::Write(2),
            Call::Write(3),
            Call::Read(3),
            Call::Read(1),
            Call::Read(2),
            Call::Write(4),
            Call::Read(4),
        ];
        let mut program = Program::default();
        let runs: Vec<_> = (0..5).map(|i| program.run(&step, 100 * i)).collect();
        // Nothing comes before the first burst of all. Once more and one is likely; the same twice and it
        // is expected before it begins.
        let (first, second) = ((false, false), (false, true));
        assert_eq!(runs[1], [first; 4]);
        assert_eq!(runs[2], [first, second, second, (true, false)]);
        let all = [(true, false), second, second, (true, false)];
        assert_eq!(runs[3], all);
        assert_eq!(runs[4], all);
        // Other results are read: what follows is guessed no more.
        let mut other = step.to_vec();
        other[3] = Call::Read(1);
        other[4] = Call::Read(2);
        other[5] = Call::Read(3);
        let seen = program.run(&other, 7);
        assert_eq!(seen, [first, first, first, (true, false)]);
        assert!(!program.run(&other, 9)[0].0, "it was another the last time");
    }

    #[test]
    fn what_goes_back_through_the_layers_is_foreseen() {
        let mut foresight = Foresight::default();
        let mut seen = Vec::new();
        for _ in 0..3 {
            // Forward: a result of each layer. Backward: it is read, then other work is done.
            let made: Vec<u64> = (0..10).map(|layer| foresight.wrote(100 + layer)).collect();
            for layer in (0..10).rev() {
                for _ in 0..5 {
                    foresight.wrote(1);
                }
                let own = foresight.wrote(2);
                let soon = foresight.soon(0).is_some_and(|c| c.wrote == made[layer]);
                foresight.read(made[layer], 0, None);
                let next = foresight
                    .coming(1)
                    .is_some_and(|c| c.wrote == own && c.slot == 2);
                foresight.read(own, 0, None);
                seen.push((soon, next));
            }
        }
        // The first two of a pass follow on other distances than the rest; then the age is another once.
        let (first, last) = seen.split_at(20);
        assert!(
            first[6..10].iter().all(|both| *both == (true, true)),
            "{seen:?}"
        );
        assert!(
            last.iter().filter(|(soon, _)| *soon).count() >= 6,
            "{seen:?}"
        );
        assert!(
            last.iter().filter(|(_, next)| *next).count() >= 9,
            "{seen:?}"
        );
    }

    #[test]
    fn what_was_never_written_or_long_ago_is_not_foreseen() {
        let mut foresight = Foresight::default();
        for _ in 0..5 {
            foresight.wrote(3);
            foresight.read(0, 0, None);
            assert_eq!(foresight.soon(0), None);
            assert_eq!(foresight.coming(0), None);
        }
        let mut foresight = Foresight::default();
        for round in 0..4 {
            let early = foresight.wrote(5);
            for _ in 0..LOG - 1 {
                foresight.wrote(6);
            }
            if round == 3 {
                assert_eq!(foresight.soon(0).map(|c| c.slot), Some(5));
                foresight.wrote(6);
                assert_eq!(foresight.soon(0), None, "another distance");
                return;
            }
            foresight.read(early, 0, Some(4));
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut foresight = Foresight::default();
        for distance in 1..3 * MOST_BURSTS as u64 {
            for _ in 0..distance.min(50) {
                foresight.wrote(1);
            }
            for _ in 0..distance / 50 {
                foresight.wrote(2);
            }
            foresight.read(foresight.writes(), 0, None);
            assert!(foresight.known.len() <= MOST_BURSTS);
        }
        for _ in 0..2 * MOST_READS {
            foresight.read(foresight.writes(), 0, None);
        }
        assert_eq!(foresight.guesses.len(), MOST_READS);
    }

    proptest! {
        /// A step that is the same each time is foreseen, under whatever handles, also after something else.
        #[test]
        fn steps_that_repeat_are_foreseen(other in step(), step in step()) {
            let mut program = Program::default();
            program.run(&other, 50);
            for round in 0..6u32 {
                let seen = program.run(&step, 100 * round);
                let missed = seen.iter().filter(|(soon, coming)| !soon && !coming).count();
                prop_assert!(missed == 0 || round < 4, "{missed} in round {round}: {seen:?}");
            }
        }
    }
}

//! The tracker against a quadratic happens-before oracle, on random programs.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed};
use std::collections::HashSet;

/// Few buffers, so that most commands use one that an earlier command used.
const BUFFERS: usize = 5;

#[derive(Clone, Debug)]
enum Command {
    /// Bindings; a buffer may be bound twice.
    Dispatch(Vec<(usize, Access)>),
    Fill(usize),
    Copy {
        from: usize,
        to: usize,
    },
    Read(usize),
    /// Through device addresses, or by a graph.
    Everything(Access, Stage),
    /// The host waits for everything.
    Wait,
}

/// What a command touches; no buffer means every buffer.
type Touch = (Option<usize>, Access);

impl Command {
    fn touches(&self) -> Vec<Touch> {
        match self {
            Self::Dispatch(bindings) => {
                let bound = bindings
                    .iter()
                    .map(|(buffer, access)| (Some(*buffer), *access));
                bound.collect()
            }
            Self::Fill(buffer) => vec![(Some(*buffer), Access::WRITE)],
            Self::Copy { from, to } => {
                vec![(Some(*from), Access::READ), (Some(*to), Access::WRITE)]
            }
            Self::Read(buffer) => vec![(Some(*buffer), Access::READ)],
            Self::Everything(access, _) => vec![(None, *access)],
            Self::Wait => Vec::new(),
        }
    }

    fn stage(&self) -> Stage {
        match self {
            Self::Dispatch(_) => Stage::Compute,
            Self::Everything(_, stage) => *stage,
            _ => Stage::Transfer,
        }
    }
}

/// Whether two commands must not run at the same time or in the other order.
fn hazard(first: &Command, second: &Command) -> bool {
    let second = second.touches();
    first.touches().iter().any(|(one, by)| {
        second.iter().any(|(other, then)| {
            let meet = one.is_none() || other.is_none() || one == other;
            let (reads, writes) = (then.read, then.write);
            let raw = by.write && reads;
            let waw = by.write && writes;
            let war = by.read && writes;
            meet && (raw || waw || war)
        })
    })
}

/// What the recorder does: the barrier before each command, if any.
fn plan(commands: &[Command], planner: &mut impl Planner) -> Vec<Option<Stages>> {
    let mut barriers = Vec::new();
    for command in commands {
        let touches = command.touches();
        if matches!(command, Command::Wait) {
            planner.retire();
        }
        let needed = touches.iter().any(|touch| planner.conflicts(*touch));
        barriers.push(needed.then(|| planner.barrier()));
        for touch in touches {
            planner.note(touch, command.stage());
        }
    }
    barriers
}

trait Planner {
    fn conflicts(&self, touch: Touch) -> bool;
    fn note(&mut self, touch: Touch, stage: Stage);
    fn barrier(&mut self) -> Stages;
    fn retire(&mut self);
}

#[derive(Default)]
struct Real {
    tracker: Tracker,
    marks: [Marks; BUFFERS],
}

impl Planner for Real {
    fn conflicts(&self, (buffer, access): Touch) -> bool {
        match buffer {
            Some(buffer) => self.tracker.conflicts(&self.marks[buffer], access),
            None => self.tracker.conflicts_everything(access),
        }
    }

    fn note(&mut self, (buffer, access): Touch, stage: Stage) {
        match buffer {
            Some(buffer) => self.tracker.note(&mut self.marks[buffer], access, stage),
            None => self.tracker.note_everything(access, stage),
        }
    }

    fn barrier(&mut self) -> Stages {
        self.tracker.barrier()
    }

    fn retire(&mut self) {
        self.tracker.retire();
    }
}

/// Flaws of a planner, to prove that the oracle detects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    NoReadAfterWrite,
    NoWriteAfterWrite,
    NoWriteAfterRead,
    /// An access to one buffer ignores earlier accesses to everything.
    BufferAfterEverything,
    /// An access to everything ignores earlier accesses to single buffers.
    EverythingAfterBuffer,
    /// Reads are not noted.
    ForgetsReads,
    /// Only the last access to a buffer is kept: a read hides the write before it.
    KeepsLastOnly,
    /// Barriers name dispatches only.
    ComputeOnly,
    /// Barriers name every stage, used or not.
    EveryStage,
    /// What a barrier ordered is not forgotten.
    NeverForgets,
    /// Waits of the host order nothing.
    IgnoresWaits,
    /// Reading after a read counts.
    ReadAfterRead,
}

/// A planner of sets, slow and plain, with one flaw.
struct Flawed {
    flaw: Flaw,
    read: HashSet<Option<usize>>,
    written: HashSet<Option<usize>>,
    pending: Stages,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self {
            flaw,
            read: HashSet::new(),
            written: HashSet::new(),
            pending: Stages::NONE,
        }
    }

    fn meets(&self, set: &HashSet<Option<usize>>, buffer: Option<usize>) -> bool {
        let by_everything = set.contains(&None) && self.flaw != Flaw::BufferAfterEverything;
        match buffer {
            Some(_) => set.contains(&buffer) || by_everything,
            None if self.flaw == Flaw::EverythingAfterBuffer => set.contains(&None),
            None => !set.is_empty(),
        }
    }

    fn forget(&mut self) {
        self.pending = Stages::NONE;
        if self.flaw != Flaw::NeverForgets {
            self.read.clear();
            self.written.clear();
        }
    }
}

impl Planner for Flawed {
    fn conflicts(&self, (buffer, access): Touch) -> bool {
        let read = self.meets(&self.read, buffer);
        let written = self.meets(&self.written, buffer);
        let is = |flaw| self.flaw == flaw;
        (access.read && written && !is(Flaw::NoReadAfterWrite))
            || (access.write && written && !is(Flaw::NoWriteAfterWrite))
            || (access.write && read && !is(Flaw::NoWriteAfterRead))
            || (access.read && read && is(Flaw::ReadAfterRead))
    }

    fn note(&mut self, (buffer, access): Touch, stage: Stage) {
        self.pending |= stage.into();
        if self.flaw == Flaw::KeepsLastOnly {
            self.read.remove(&buffer);
            self.written.remove(&buffer);
        }
        if access.read && self.flaw != Flaw::ForgetsReads {
            self.read.insert(buffer);
        }
        if access.write {
            self.written.insert(buffer);
        }
    }

    fn barrier(&mut self) -> Stages {
        let stages = self.pending;
        self.forget();
        match self.flaw {
            Flaw::ComputeOnly => Stages::COMPUTE,
            Flaw::EveryStage => Stages::COMPUTE | Stages::TRANSFER,
            _ => stages,
        }
    }

    fn retire(&mut self) {
        if self.flaw != Flaw::IgnoresWaits {
            self.forget();
        }
    }
}

/// Why a plan is wrong.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// Two commands that conflict are not ordered.
    Unordered(usize, usize),
    /// A barrier stands where nothing unordered conflicts.
    Needless(usize),
    /// A barrier waits for a stage that nothing since the last one used, or for none.
    WrongStages(usize),
}

/// Whether `first` is ordered against `second` by a barrier that stands before a command with an
/// index below `end`, or by a wait of the host.
fn ordered(
    commands: &[Command],
    plan: &[Option<Stages>],
    first: usize,
    second: usize,
    end: usize,
) -> bool {
    let stage = Stages::from(commands[first].stage());
    let fences = |at: usize| plan[at].is_some_and(|stages| stages.contains(stage));
    let waits = |at: usize| matches!(commands[at], Command::Wait);
    (first + 1..end).any(fences) || (first + 1..=second).any(waits)
}

/// Judges a plan by the definition: every pair of commands, every barrier.
fn judge(commands: &[Command], plan: &[Option<Stages>]) -> Result<(), Fault> {
    for second in 0..commands.len() {
        let conflicts = |first: &usize| hazard(&commands[*first], &commands[second]);
        let loose = |first: &usize, end| !ordered(commands, plan, *first, second, end);

        let mut pairs = (0..second).filter(conflicts);
        if let Some(first) = pairs.find(|first| loose(first, second + 1)) {
            return Err(Fault::Unordered(first, second));
        }
        let Some(stages) = plan[second] else { continue };
        let mut pairs = (0..second).filter(conflicts);
        if !pairs.any(|first| loose(&first, second)) {
            return Err(Fault::Needless(second));
        }
        let mut used = Stages::NONE;
        for at in (0..second).rev() {
            if matches!(commands[at], Command::Wait) {
                break;
            }
            used |= commands[at].stage().into();
            if plan[at].is_some() {
                break;
            }
        }
        if stages.is_empty() || !used.contains(stages) {
            return Err(Fault::WrongStages(second));
        }
    }
    Ok(())
}

fn any_access() -> impl Strategy<Value = Access> {
    prop_oneof![
        3 => Just(Access::READ),
        2 => Just(Access::WRITE),
        1 => Just(Access::READ_WRITE),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    let buffer = 0..BUFFERS;
    let stage = prop_oneof![Just(Stage::Compute), Just(Stage::Transfer)];
    prop_oneof![
        12 => prop::collection::vec((buffer.clone(), any_access()), 0..=6)
            .prop_map(Command::Dispatch),
        3 => buffer.clone().prop_map(Command::Fill),
        3 => (buffer.clone(), buffer.clone()).prop_map(|(from, to)| Command::Copy { from, to }),
        3 => buffer.prop_map(Command::Read),
        2 => (any_access(), stage).prop_map(|(access, stage)| Command::Everything(access, stage)),
        1 => Just(Command::Wait),
    ]
}

fn any_program() -> impl Strategy<Value = Vec<Command>> {
    prop::collection::vec(any_command(), 0..32)
}

/// The same programs in every run.
fn fixed(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(0x6865_6c69_6f73),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(fixed(5000))]

    #[test]
    fn the_oracle_accepts_every_plan_of_the_tracker(program in any_program()) {
        let barriers = plan(&program, &mut Real::default());
        prop_assert_eq!(judge(&program, &barriers), Ok(()));
        let by_sets = plan(&program, &mut Flawed::new(Flaw::None));
        prop_assert_eq!(barriers, by_sets);
    }
}

/// The faults that the oracle finds in a flawed planner's plans for 500 programs.
fn faults(flaw: Flaw) -> impl Iterator<Item = Fault> {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::new(fixed(0));
    let programs = any_program();
    (0..500).filter_map(move |_| {
        let program = programs.new_tree(&mut runner).expect("a program");
        let program = program.current();
        judge(&program, &plan(&program, &mut Flawed::new(flaw))).err()
    })
}

#[test]
fn the_oracle_accepts_the_planner_without_a_flaw() {
    assert_eq!(faults(Flaw::None).next(), None);
}

#[test]
fn the_oracle_rejects_planners_that_miss_hazards() {
    for flaw in [
        Flaw::NoReadAfterWrite,
        Flaw::NoWriteAfterWrite,
        Flaw::NoWriteAfterRead,
        Flaw::BufferAfterEverything,
        Flaw::EverythingAfterBuffer,
        Flaw::ForgetsReads,
        Flaw::KeepsLastOnly,
        Flaw::ComputeOnly,
    ] {
        let mut unordered = faults(flaw).filter(|fault| matches!(fault, Fault::Unordered(..)));
        assert!(unordered.next().is_some(), "{flaw:?}");
    }
}

#[test]
fn the_oracle_rejects_planners_that_order_too_much() {
    for flaw in [Flaw::NeverForgets, Flaw::IgnoresWaits, Flaw::ReadAfterRead] {
        let mut needless = faults(flaw).filter(|fault| matches!(fault, Fault::Needless(_)));
        assert!(needless.next().is_some(), "{flaw:?}");
    }
    let mut wrong = faults(Flaw::EveryStage).filter(|fault| matches!(fault, Fault::WrongStages(_)));
    assert!(wrong.next().is_some());
}

#[test]
fn reads_share_an_epoch_and_a_write_ends_it() {
    let mut tracker = Tracker::new();
    let mut marks = Marks::default();
    assert!(
        !tracker.conflicts(&marks, Access::READ_WRITE),
        "a new buffer is clean"
    );
    tracker.note(&mut marks, Access::READ, Stage::Compute);
    assert!(!tracker.conflicts(&marks, Access::READ));
    assert!(tracker.conflicts(&marks, Access::WRITE), "write after read");
    tracker.note(&mut marks, Access::READ, Stage::Transfer);
    assert_eq!(tracker.barrier(), Stages::COMPUTE | Stages::TRANSFER);
    assert!(!tracker.conflicts(&marks, Access::WRITE), "forgotten");
    tracker.note(&mut marks, Access::WRITE, Stage::Transfer);
    assert!(tracker.conflicts(&marks, Access::READ), "read after write");
    assert!(
        tracker.conflicts(&marks, Access::WRITE),
        "write after write"
    );
    assert!(
        !tracker.conflicts(&Marks::default(), Access::WRITE),
        "another buffer"
    );
    assert_eq!(tracker.barrier(), Stages::TRANSFER);
    assert!(tracker.barrier().is_empty(), "nothing since the last one");
}

#[test]
fn everything_meets_each_buffer_in_both_orders() {
    let mut tracker = Tracker::new();
    let (mut one, other) = (Marks::default(), Marks::default());
    tracker.note(&mut one, Access::READ, Stage::Compute);
    assert!(!tracker.conflicts_everything(Access::READ));
    assert!(tracker.conflicts_everything(Access::WRITE));
    tracker.note_everything(Access::READ, Stage::Transfer);
    assert!(!tracker.conflicts(&other, Access::READ));
    assert!(tracker.conflicts(&other, Access::WRITE));
    assert_eq!(tracker.pending(), Stages::COMPUTE | Stages::TRANSFER);
    tracker.retire();
    assert!(tracker.pending().is_empty());
    assert!(!tracker.conflicts(&other, Access::WRITE));
    // The remedy for a barrier that was never submitted.
    tracker.note_everything(Access::READ_WRITE, Stages::COMPUTE | Stages::TRANSFER);
    assert!(tracker.conflicts(&one, Access::READ));
    assert!(tracker.conflicts_everything(Access::READ));
}

//! The recorder: threads share it, as workers share the device; they write commands, hand them over,
//! record in the call, help and wait. Each command moves a word to the device and back, which only the
//! hand-over of commands from thread to thread makes visible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ash::vk::{self, Handle};
use parking_lot::Mutex;

use crate::device::{Buffer, Chance, Device, Op};
use crate::error::{Error, Result};
use crate::memory::staging::Pool;
use crate::observe::profile;
use crate::pipeline::Program;
use crate::plain::Block;
use crate::plan::hazard::Stages;
use crate::queue::completion;
use crate::queue::timeline::Timeline;
use crate::record::recorder::Recorder;

/// Threads that share the recorder.
const CALLERS: u64 = 3;
/// Calls of each.
const CALLS: u64 = 150;
/// Commands of one call at most, enough that it is handed over in pieces.
const MOST: u64 = 300;
/// Words of the upload ring.
const RING: u64 = 512;
/// Pieces that are handed over while the device stands still: more than the queue takes.
const FLOOD: u64 = 700;

/// What happens to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// All is executed.
    Fine,
    /// A submission loses it.
    Lost,
    /// A command cannot be recorded.
    Refused,
    /// It stands still until the queue is full.
    Stalled,
}

#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub fate: Fate,
    pub slots: usize,
    pub threaded: bool,
    /// Waits poll first, as they do for devices that are no processors.
    pub polling: bool,
}

/// What the lock of the addon's context protects.
struct Stream {
    recorder: Recorder,
    timeline: Arc<Timeline>,
    device: Arc<Device>,
    /// Commands so far.
    order: u64,
    submitted: u64,
    /// Runs of the kept command buffer.
    runs: u64,
    upload: Box<Block>,
    /// By word of the ring: the value after which it may be written again.
    used: Vec<u64>,
    /// Each command writes a word of its own here.
    history: Box<Block>,
    /// One for each pipeline.
    #[allow(clippy::vec_box)] // Handles are addresses.
    programs: Vec<Box<Block>>,
    /// Counts the runs of the kept command buffer.
    count: Box<Block>,
    kept: u64,
}

/// A word of the history, the word that belongs there, and the value after which it is there.
type Expected = (u64, u64, u64);

impl Stream {
    fn new(kind: Kind, device: &Arc<Device>) -> Self {
        let timeline = Timeline::new(Arc::clone(device), 0).expect("a timeline");
        let timeline = Arc::new(timeline);
        let recorder = Recorder::new(
            device,
            &Arc::default(),
            &timeline,
            kind.slots,
            kind.threaded,
        );
        let count = Block::new(1);
        Self {
            recorder: recorder.expect("a recorder"),
            timeline,
            device: Arc::clone(device),
            order: 0,
            submitted: 0,
            runs: 0,
            upload: Block::new(RING as usize),
            used: vec![0; RING as usize],
            history: Block::new((CALLERS * CALLS * MOST + 2 * FLOOD) as usize),
            programs: Vec::new(),
            kept: Buffer::kept(vec![Op::Count {
                target: count.handle(),
            }]),
            count,
        }
    }

    fn add_program(&mut self) {
        let slot = self.programs.len() as u64;
        let block = Block::new(1);
        block.set(0, 1000 * (slot + 1));
        let kernel = vk::Pipeline::from_raw(block.handle());
        self.recorder.add_program(slot as u32, Program { kernel });
        self.programs.push(block);
    }

    /// Writes one command.
    fn command(&mut self, chance: &mut Chance) -> Result<Expected> {
        let order = self.order;
        let ring = order % RING;
        if self.used[ring as usize] > self.timeline.seen() {
            if self.used[ring as usize] > self.submitted {
                self.submit(true, false)?;
            }
            self.recorder.help();
            self.timeline.wait(self.used[ring as usize])?;
        }
        let history = self.history.handle();
        self.recorder.ready()?;
        self.recorder
            .reserve(ash::vk::DescriptorSetLayout::null(), 1)?;
        let commands = &mut self.recorder.commands;
        let word = match chance.below(4) {
            0 if !self.programs.is_empty() => {
                let program = chance.below(self.programs.len() as u64);
                let order = order as u32;
                let order64 = u64::from(order);
                let (bindings, push) = ([history, order64, 8], order64.to_ne_bytes());
                commands.dispatch(
                    Stages::TRANSFER,
                    program as u32,
                    [order, 1, 1],
                    &bindings,
                    &push,
                );
                1000 * (program + 1) + u64::from(order)
            }
            1 => {
                let word = chance.below(1 << 30);
                commands.fill(history, order, order, word as u32);
                word
            }
            _ => {
                let word = chance.below(1 << 40);
                self.upload.set(ring, word);
                self.used[ring as usize] = self.submitted + 1;
                commands.copy(self.upload.handle(), ring, history, order, order);
                word
            }
        };
        if chance.one_in(4) {
            commands.barrier(Stages::TRANSFER);
        }
        self.order += 1;
        self.recorder.hand_over_if_long()?;
        Ok((order, word, self.submitted + 1))
    }

    fn submit(&mut self, here: bool, kept: bool) -> Result<()> {
        let value = self.submitted + 1;
        let more = if kept { self.kept } else { 0 };
        let wait = if value.is_multiple_of(5) {
            self.submitted
        } else {
            0
        };
        self.recorder.commands.submit(wait, value, more, true);
        self.timeline.submitted(value);
        self.submitted = value;
        self.runs += u64::from(kept);
        match here {
            true => self.recorder.record_here()?,
            false => self.recorder.hand_over()?,
        };
        self.device.check_alive()
    }
}

/// Checks what has come by `value`, and forgets it.
fn check(history: &Block, expected: &mut Vec<Expected>, value: u64) {
    expected.retain(|&(at, word, by)| {
        if by <= value {
            assert_eq!(history.get(at), word);
        }
        by > value
    });
}

/// One call: some commands, and what a call may do with them.
fn call(
    stream: &Mutex<Stream>,
    pool: &Arc<Pool>,
    answered: &Arc<AtomicU64>,
    chance: &mut Chance,
    expected: &mut Vec<Expected>,
) -> Result<()> {
    let mut locked = stream.lock();
    let s = &mut *locked;
    s.device.check_alive()?;
    if chance.one_in(20) {
        s.add_program();
    }
    let count = match chance.below(10) {
        0 => MOST,
        _ => 20,
    };
    for _ in 0..chance.below(count) {
        expected.push(s.command(chance)?);
    }
    match chance.below(7) {
        0 => {
            s.recorder.hand_over()?;
            s.recorder.help();
        }
        1 => s.submit(false, true)?,
        2 => s.submit(true, false)?,
        // A read whose promise the completion thread keeps.
        3 => {
            completion::start()?;
            let (value, order) = (s.submitted + 1, s.order);
            let lease = pool.lease(value);
            s.order += 1;
            let commands = &mut s.recorder.commands;
            commands.fill(lease.handle(), 0, order, value as u32);
            let timeline = Arc::clone(&s.timeline);
            let submitted = s.submit(true, false);
            let answered = Arc::clone(answered);
            let done = Box::new(move |outcome: Result<Option<_>>| {
                if let Ok(lease) = &outcome {
                    lease.iter().for_each(crate::memory::staging::Lease::check);
                }
                drop(outcome);
                answered.fetch_add(1, Ordering::Release);
            });
            completion::when(&timeline, value, Some(lease), done);
            submitted?;
        }
        // A wait with the lock held.
        4 => {
            s.submit(true, false)?;
            s.timeline.wait(s.submitted)?;
            check(&s.history, expected, s.submitted);
        }
        // A wait without.
        5 => {
            s.submit(false, false)?;
            if chance.one_in(2) {
                s.recorder.help();
            }
            let (value, timeline) = (s.submitted, Arc::clone(&s.timeline));
            let history = s.history.handle();
            drop(locked);
            timeline.wait(value)?;
            check(Block::of(history), expected, value);
        }
        _ => {}
    }
    Ok(())
}

pub fn life(kind: Kind, seed: u64) {
    let Kind { fate, slots, .. } = kind;
    let (device, gpu) = Device::new(!kind.polling);
    let front = Arc::clone(&device.raw.front);
    match fate {
        Fate::Lost => front.lose_at.store(40 + seed % 40, Ordering::Relaxed),
        Fate::Refused => front.refuse_at.store(2000 + seed, Ordering::Relaxed),
        Fate::Stalled => front.paused.store(true, Ordering::Relaxed),
        Fate::Fine => {}
    }
    let stream = Mutex::new(Stream::new(kind, &device));
    let pool = Arc::new(Pool::default());
    let answered = Arc::new(AtomicU64::new(0));
    if fate == Fate::Stalled {
        flood(&stream, &device);
    }
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (stream, pool, answered) = (&stream, &pool, &answered);
            scope.spawn(move || {
                let mut chance = Chance(seed * CALLERS + caller);
                let mut expected = Vec::new();
                for round in 0..CALLS {
                    let called = call(stream, pool, answered, &mut chance, &mut expected);
                    match called {
                        Ok(()) => {}
                        Err(Error::DeviceLost(_) | Error::OutOfMemory(_))
                            if matches!(fate, Fate::Lost | Fate::Refused) =>
                        {
                            return;
                        }
                        Err(error) => panic!("{kind:?}: {error}"),
                    }
                    if round % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let mut stream = stream.into_inner();
    let alive = stream.submit(seed.is_multiple_of(2), false).is_ok();
    // The thread ends behind what was handed over.
    stream.recorder.end();
    if matches!(fate, Fate::Lost | Fate::Refused) {
        assert!(device.lost(), "{kind:?}");
        assert!(stream.timeline.wait(stream.submitted).is_err());
    } else {
        assert!(alive);
        assert_eq!(device.raw.submitted(), stream.submitted);
        stream.timeline.wait(stream.submitted).expect("reached");
        assert_eq!(front.executed.load(Ordering::Relaxed), stream.order);
        assert_eq!(stream.count.get(0), stream.runs);
        assert!(slots > 1 || stream.recorder.stalls() > 0);
    }
    device.raw.stop();
    gpu.join().expect("a device");
    completion::finish();
    assert_eq!(answered.load(Ordering::Acquire), pool.asked());
    assert_eq!(pool.returned(), pool.asked());
    drop(stream);
    assert_eq!(front.objects.load(Ordering::Relaxed), 0, "{kind:?}");
}

/// Hands over until the queue is full, while the device stands still.
fn flood(stream: &Mutex<Stream>, device: &Device) {
    let handed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = stream.lock();
            let mut chance = Chance(1);
            for _ in 0..FLOOD {
                // Fills: the ring would wait.
                let (order, history) = (stream.order, stream.history.handle());
                stream.order += 1;
                let word = chance.below(1 << 30) as u32;
                stream.recorder.commands.fill(history, order, order, word);
                stream.submit(false, false).expect("alive");
                handed.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut before = 0;
            loop {
                std::thread::sleep(Duration::from_millis(5));
                let now = handed.load(Ordering::Relaxed);
                if now == before && now > 0 {
                    assert!(now < FLOOD, "a full queue makes the caller wait");
                    break;
                }
                before = now;
            }
            device.raw.front.paused.store(false, Ordering::Relaxed);
        });
    });
}

/// Every life, with a number that makes it different from the others.
pub fn lives(seed: u64) {
    for (fate, slots, threaded, polling) in [
        (Fate::Fine, 8, true, false),
        (Fate::Fine, 1, true, true),
        (Fate::Fine, 2, false, false),
        (Fate::Stalled, 2, true, false),
        (Fate::Lost, 2, true, true),
        (Fate::Lost, 4, false, false),
        (Fate::Refused, 3, true, false),
        (Fate::Refused, 8, true, true),
    ] {
        let kind = Kind {
            fate,
            slots,
            threaded,
            polling,
        };
        profile::ON.store(fate == Fate::Fine && seed % 4 == 3, Ordering::Relaxed);
        life(kind, seed);
    }
    profile::ON.store(false, Ordering::Relaxed);
}

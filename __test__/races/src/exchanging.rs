//! A member of a group of processes. Threads that share the device call collectives between other work, the group's thread runs
//! them, and another thread watches it, as `watch.mjs` does. The memory of a collective goes from the device to the engine and
//! back, ordered only by two timelines. An engine starts once in a process: one life is one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ash::vk::Handle;
use collectives::mpi::{FAILS_AT, HANGS_AT};
use collectives::{Call, Cause, Element, Failure, Kind, Options, Phase};
use parking_lot::Mutex;

use crate::collective::group::{Group, Host, Payload};
use crate::collective::thread;
use crate::device::{Chance, Device, WORDS};
use crate::error::{Error, Result};
use crate::leaving::end_driver;
use crate::memory::staging::{Lease, Pool};
use crate::memory::{self, Memory, Resource};
use crate::plain::Block;
use crate::queue::exit;
use crate::queue::timeline::Timeline;
use crate::record::recorder::Recorder;

/// Threads that share the device.
const CALLERS: u64 = 2;
/// Calls of each.
const CALLS: u64 = 120;
const BUFFERS: usize = 2;
/// Ranks of the stand-in's group.
const RANKS: u32 = 2;
/// A collective that takes longer hangs.
const LIMIT: Duration = Duration::from_millis(100);

/// How the group ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// All ranks leave.
    Left,
    /// Another rank is lost.
    PeerLost,
    /// The engine fails.
    Failed,
    /// A collective never ends, and the time is over.
    Hangs,
    /// `destroy` of the device, with calls under way.
    Destroyed,
    /// A submission loses the device.
    DeviceLost,
    /// The end of the process, with calls under way that may never end.
    Exit,
}

const ENDS: [End; 7] = [
    End::Left,
    End::PeerLost,
    End::Failed,
    End::Hangs,
    End::Destroyed,
    End::DeviceLost,
    End::Exit,
];

/// What the lock of the addon's context protects.
struct Stream {
    recorder: Recorder,
    timeline: Arc<Timeline>,
    device: Arc<Device>,
    group: Arc<Group>,
    memory: Arc<Memory>,
    pool: Arc<Pool>,
    buffers: [Arc<Resource>; BUFFERS],
    /// What the buffers hold behind everything called so far.
    expected: [[u64; WORDS as usize]; BUFFERS],
    order: u64,
    submitted: u64,
    /// Memory that the device copies from, by the value behind it.
    exchanged: Vec<(u64, Arc<Lease>)>,
    closed: bool,
}

impl Stream {
    fn submit(&mut self) -> Result<u64> {
        self.device.check_alive()?;
        let value = self.submitted + 1;
        self.recorder.commands.submit(0, value, 0, true);
        self.timeline.submitted(value);
        self.submitted = value;
        self.recorder.hand_over()?;
        Ok(value)
    }

    fn copy(&mut self, (source, from): (u64, u64), (target, to): (u64, u64)) {
        let order = self.order;
        self.order += 1;
        let commands = &mut self.recorder.commands;
        commands.copy(source, from, target, to, order);
    }

    fn fill(&mut self, buffer: usize, chance: &mut Chance) {
        for at in 0..WORDS {
            if chance.one_in(2) {
                let word = chance.below(1 << 30);
                let (target, order) = (self.buffers[buffer].raw.as_raw(), self.order);
                self.order += 1;
                let commands = &mut self.recorder.commands;
                commands.fill(target, at, order, word as u32);
                self.expected[buffer][at as usize] = word;
            }
        }
    }

    /// As `Context::on_host`: in the buffer's own memory, in a copy, or with the sums of the own shard elsewhere.
    fn collective(&mut self, buffer: usize, chance: &mut Chance) -> Result<()> {
        self.recorder.ready()?;
        let seen = self.timeline.seen();
        self.exchanged.retain(|&(value, _)| value > seen);
        let resource = Arc::clone(&self.buffers[buffer]);
        let raw = resource.raw.as_raw();
        let in_place = chance.one_in(2);
        let shards = in_place && chance.one_in(2);
        let words = if shards {
            WORDS / u64::from(RANKS)
        } else {
            WORDS
        };
        let lease = (shards || !in_place).then(|| Arc::new(self.pool.words(words)));
        if let (false, Some(copy)) = (in_place, &lease) {
            for at in 0..WORDS {
                self.copy((raw, at), (copy.handle(), at));
            }
        }
        let memory = Host {
            range: resource.mapped.filter(|_| in_place),
            lease: lease.clone(),
            kept: (resource, Arc::clone(&self.memory)),
        };
        let called = self.enqueue(memory, (raw, words), lease.as_ref(), shards);
        if called.is_ok() {
            let all = &mut self.expected[buffer][..words as usize];
            all.iter_mut().for_each(|word| *word += 1);
        }
        // Also where the group has failed meanwhile: the device may be at the copy to it.
        let value = *called.as_ref().unwrap_or(&(self.submitted + 1));
        self.exchanged.extend(lease.map(|lease| (value, lease)));
        called.map(drop)
    }

    fn enqueue(
        &mut self,
        memory: Host,
        (raw, words): (u64, u64),
        lease: Option<&Arc<Lease>>,
        shards: bool,
    ) -> Result<u64> {
        let after = self.submit()?;
        let call = Call {
            kind: if shards {
                Kind::ReduceScatter
            } else {
                Kind::AllReduce
            },
            element: Element::F32,
            elements: WORDS * 2,
            root: 0,
            number: 0,
        };
        let number = self
            .group
            .enqueue(call, after, Some(Payload::Host(memory)))?;
        self.recorder.ready()?;
        let commands = &mut self.recorder.commands;
        commands.wait(self.group.semaphore.as_raw(), number);
        commands.host_writes();
        for at in 0..words {
            if let Some(lease) = lease {
                self.copy((lease.handle(), at), (raw, at));
            }
        }
        self.submit()
    }

    /// Waits with the lock held, and looks at what has come.
    fn check(&mut self) -> Result<()> {
        let value = self.submit()?;
        self.recorder.help();
        self.timeline.wait(value)?;
        for (buffer, expected) in self.buffers.iter().zip(&self.expected) {
            for at in 0..WORDS {
                let word = Block::of(buffer.raw.as_raw()).get(at);
                // Where there is a race on purpose, the sanitizer is to say so, and not what comes of it.
                assert!(cfg!(feature = "seeded") || word == expected[at as usize]);
            }
        }
        Ok(())
    }

    fn call(&mut self, chance: &mut Chance) -> Result<()> {
        if self.closed {
            return Err(Error::Aborted("closed".to_owned()));
        }
        self.device.check_alive()?;
        self.group.check()?;
        let buffer = chance.below(BUFFERS as u64) as usize;
        self.recorder.ready()?;
        self.fill(buffer, chance);
        self.collective(buffer, chance)?;
        Ok(())
    }

    /// As `Context::close`.
    fn close(&mut self) {
        let failure = Failure::new(Cause::Aborted, "the device was destroyed", Some(0));
        self.group.fail(failure);
        self.recorder.end();
        assert!(self.timeline.drained(None));
        self.exchanged.clear();
        self.closed = true;
    }
}

fn new(end: End, seed: u64, chance: &mut Chance) -> (Stream, std::thread::JoinHandle<()>) {
    let (device, gpu) = Device::new(true);
    if end == End::DeviceLost {
        let value = 20 + chance.below(100);
        device.raw.front.lose_at.store(value, Ordering::Relaxed);
    }
    let timeline = Arc::new(Timeline::new(Arc::clone(&device), 0).expect("a timeline"));
    exit::at_exit(&timeline);
    let slots = match end {
        // Nobody waits for one either.
        End::Exit => 2 * (CALLS as usize + 1),
        _ => 2 + chance.below(6) as usize,
    };
    let threaded = seed % 2 == 1;
    let recorder = Recorder::new(&device, &Arc::default(), &timeline, slots, threaded);
    let group = Group::new(&device, &timeline, [0, RANKS], false).expect("a group");
    let options = Options {
        rank: 0,
        size: RANKS,
        libraries: vec!["a stand-in".to_owned()],
        text: String::new(),
        limit: Duration::from_secs(60),
    };
    thread::start(&group, options).expect("a thread");
    exit::at_exit(&group);
    let memory = Memory::new(&device);
    let buffer = || {
        Arc::new(
            memory
                .create(8 * WORDS, memory::kind::Kind::Readback)
                .expect("memory"),
        )
    };
    let stream = Stream {
        recorder: recorder.expect("a recorder"),
        timeline,
        group,
        buffers: [buffer(), buffer()],
        memory,
        device,
        pool: Arc::default(),
        expected: [[0; WORDS as usize]; BUFFERS],
        order: 0,
        submitted: 0,
        exchanged: Vec::new(),
        closed: false,
    };
    (stream, gpu)
}

/// As `collectiveStatus`: what of a call is under way, and for how long.
fn late(group: &Group) -> bool {
    let ledger = &group.state.lock().ledger;
    let begun = ledger.begun.filter(|(call, _)| call.number > ledger.ended);
    begun.is_some_and(|(_, since)| since.elapsed() > LIMIT)
}

/// Watches the group until `over`; loses another rank after a while if the life ends so.
fn watch(group: &Group, end: End, over: &AtomicBool, after: Duration) {
    let begun = Instant::now();
    while !over.load(Ordering::Acquire) {
        if end == End::PeerLost && begun.elapsed() > after {
            let failure = Failure::new(Cause::PeerLost, "rank 1 has gone", Some(1));
            group.fail(failure);
        }
        if end == End::Hangs && late(group) {
            group.fail(Failure::new(Cause::Timeout, "too late", Some(1)));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn life(seed: u64) {
    let end = ENDS[(seed % ENDS.len() as u64) as usize];
    let mut chance = Chance(seed);
    // Of each call the ranks compare it first; the start comes before all.
    let collective = 1 + 2 * (1 + chance.below(CALLS));
    match end {
        End::Failed => FAILS_AT.store(collective, Ordering::Relaxed),
        End::Hangs | End::Exit => HANGS_AT.store(collective, Ordering::Relaxed),
        _ => {}
    }
    if end == End::Exit {
        // SAFETY: it may run at any time. The driver registers its handler as it is loaded: it runs last.
        unsafe { libc::atexit(end_driver) };
    }
    let (stream, gpu) = new(end, seed, &mut chance);
    let (group, device) = (Arc::clone(&stream.group), Arc::clone(&stream.device));
    let timeline = Arc::clone(&stream.timeline);
    while group.check().is_err() {
        assert!(!group.failed(), "it starts");
        std::thread::yield_now();
    }
    let stream = Mutex::new(stream);
    let over = AtomicBool::new(false);
    let moment = Duration::from_micros(chance.below(30_000));
    let callers = if end == End::Exit { 1 } else { CALLERS };
    std::thread::scope(|scope| {
        let (stream, over, group) = (&stream, &over, &group);
        let timeline = &timeline;
        scope.spawn(move || watch(group, end, over, moment));
        if end == End::Destroyed {
            scope.spawn(move || {
                std::thread::sleep(moment);
                stream.lock().close();
            });
        }
        let running: Vec<_> = (0..callers)
            .map(|caller| {
                scope.spawn(move || {
                    let mut chance = Chance(seed * CALLERS + caller);
                    for _ in 0..CALLS {
                        let called = stream.lock().call(&mut chance);
                        let waited = called.and_then(|()| match chance.below(6) {
                            // Who waits is stopped before a process of Node's ends.
                            _ if end == End::Exit => Ok(()),
                            0 | 1 => stream.lock().check(),
                            2 => {
                                // Others go on meanwhile.
                                let value = stream.lock().submitted;
                                timeline.wait(value)
                            }
                            _ => Ok(()),
                        });
                        let Err(error) = waited else { continue };
                        let expected = match (end, &error) {
                            (End::Destroyed, Error::Group(f)) => f.cause == Cause::Aborted,
                            (End::Destroyed, Error::Aborted(_)) => true,
                            (End::PeerLost, Error::Group(f)) => f.cause == Cause::PeerLost,
                            (End::Failed, Error::Group(f)) => f.cause == Cause::Engine,
                            (End::Hangs, Error::Group(f)) => f.cause == Cause::Timeout,
                            (End::DeviceLost, Error::DeviceLost(_)) => true,
                            // The group's thread may have met the loss first.
                            (End::DeviceLost, Error::Group(f)) => f.cause == Cause::Engine,
                            (End::Exit, Error::Group(f)) => f.cause == Cause::Aborted,
                            // The recorder's own word.
                            (End::Exit, Error::Aborted(_)) => true,
                            _ => false,
                        };
                        assert!(expected, "{end:?}: {error}");
                        break;
                    }
                    if end == End::Exit {
                        loop {
                            std::thread::park();
                        }
                    }
                })
            })
            .collect();
        if end == End::Exit {
            std::thread::sleep(moment);
            // As Node stops its threads before a process ends.
            let _stopped = stream.lock();
            std::process::exit(0);
        }
        for caller in running {
            caller.join().expect("a caller");
        }
        over.store(true, Ordering::Release);
    });
    let mut stream = stream.into_inner();
    if end == End::Left {
        let after = stream.submit().expect("alive");
        let number = group.enqueue(Call::leave(), after, None).expect("a call");
        let semaphore = group.semaphore.as_raw();
        stream.recorder.commands.wait(semaphore, number);
        stream.check().expect("all has come");
        assert_eq!(group.state.lock().ledger.phase, Phase::Left);
    } else if end != End::Destroyed && end != End::DeviceLost && end != End::PeerLost {
        assert!(group.failed(), "{end:?}");
    }
    if end != End::Destroyed {
        group.fail(Failure::new(Cause::Aborted, "over", None));
        stream.recorder.end();
        assert!(stream.timeline.drained(None));
    }
    device.raw.stop();
    gpu.join().expect("a device");
    // The group's thread lets go of it last.
    drop(group);
    while Arc::strong_count(&stream.group) > 1 {
        std::thread::yield_now();
    }
    if end == End::Left {
        stream.exchanged.clear();
        let Stream {
            memory, buffers, ..
        } = &mut stream;
        for buffer in buffers.each_ref() {
            assert_eq!(Arc::strong_count(buffer), 1, "the engine has let go of it");
            let Resource {
                raw,
                offset,
                capacity,
                mapped,
            } = **buffer;
            memory.destroy(Resource {
                raw,
                offset,
                capacity,
                mapped,
            });
        }
        assert_eq!(stream.pool.asked(), stream.pool.returned());
        let front = Arc::clone(&device.raw.front);
        drop((stream, timeline));
        assert_eq!(front.objects.load(Ordering::Relaxed), 0);
    }
}

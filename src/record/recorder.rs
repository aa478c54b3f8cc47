//! The recorder: turns the stream's commands into command buffers and submits them, in order. It runs on a thread of
//! its own, so that the calling thread pays only for validation and hazards. Without a thread it runs in the call that
//! hands over.
//!
//! Whoever holds the [`Worker`] records: the thread, or a caller that is about to wait for what it has just handed over
//! and would otherwise wait for the thread to wake up. Only the holder takes commands from the queue, so they are
//! recorded in the order in which they came.
//!
//! A failure here is final ([`Device::fail`]): the commands that were handed over are lost, so nothing later may claim
//! to have run after them. Calls that record by themselves prepare first ([`Recorder::ready`], [`Recorder::reserve`]);
//! a failure there has lost nothing.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ash::vk::{self, Handle};
use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::error::{Error, Result, panicked};
use crate::observe::blackbox::BlackBox;
use crate::observe::profile;
use crate::pipeline::Program;
use crate::queue::exit::{self, OnExit};
use crate::queue::submit;
use crate::queue::timeline::{Patience, Timeline};
use crate::record::commands::{Command, Commands};
use crate::record::ring::Ring;

/// Commands are handed over after this many words, about 50 dispatches, so that the recorder starts on a long list
/// while the rest of it is validated.
const HAND_OVER: usize = 1024;
/// Capacity of one piece in words: its last dispatch may take it past [`HAND_OVER`].
const PIECE: usize = HAND_OVER + 256;
/// Largest number of pieces that wait for the recorder; beyond it the caller waits.
const MAX_WAITING: usize = 512;
/// How long the thread polls for more before it sleeps: waking it costs the caller some microseconds.
const SPIN: Duration = Duration::from_micros(50);
/// Length of one wait for a command slot; after it the end of the process is noticed.
const SLICE: Duration = Duration::from_millis(20);

/// Pieces on their way to the recorder.
#[derive(Default)]
struct Queue {
    full: VecDeque<Commands>,
    /// Empty pieces, kept to reuse their memory.
    spare: Vec<Commands>,
    sleeping: bool,
    ending: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Notified when a full queue has room again.
    room: Condvar,
    /// Number of pieces in the queue, readable without its lock.
    waiting: AtomicUsize,
    worker: Mutex<Worker>,
    stalls: AtomicU64,
    /// The process is ending: drivers are being torn down.
    exiting: AtomicBool,
    device: Arc<Device>,
    blackbox: Arc<BlackBox>,
}

/// What recording needs, owned by whoever records.
struct Worker {
    ring: Ring,
    timeline: Arc<Timeline>,
    /// Whether the current slot is recording.
    open: bool,
    /// Whether the current slot is ready to record, but nothing was recorded yet.
    prepared: bool,
    /// Another timeline's value that the next submission must wait for.
    wait: Option<(vk::Semaphore, u64)>,
    /// By pipeline slot, as of the present piece.
    programs: Vec<Program>,
    /// Time spent waiting for slots.
    waited: Duration,
}

/// The caller's side: the piece being written, and the way to the recorder.
pub struct Recorder {
    pub commands: Commands,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// `threaded`: records on a thread of its own; otherwise in the call that hands over.
    pub fn new(
        device: &Arc<Device>,
        blackbox: &Arc<BlackBox>,
        timeline: &Arc<Timeline>,
        slots: usize,
        threaded: bool,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            wake: Condvar::new(),
            room: Condvar::new(),
            waiting: AtomicUsize::new(0),
            worker: Mutex::new(Worker {
                ring: Ring::new(device, blackbox, slots)?,
                timeline: Arc::clone(timeline),
                open: false,
                prepared: false,
                wait: None,
                programs: Vec::new(),
                waited: Duration::ZERO,
            }),
            stalls: AtomicU64::new(0),
            exiting: AtomicBool::new(false),
            device: Arc::clone(device),
            blackbox: Arc::clone(blackbox),
        });
        let mut thread = None;
        if threaded {
            exit::at_exit(&shared);
            let shared = Arc::clone(&shared);
            thread = std::thread::Builder::new()
                .name("helios recorder".to_owned())
                .spawn(move || shared.run())
                // Without a thread each call records by itself.
                .ok();
        }
        Ok(Self {
            commands: Commands::with_capacity(PIECE),
            shared,
            thread,
        })
    }

    pub fn threaded(&self) -> bool {
        self.thread.is_some()
    }

    /// Registers a pipeline under its slot, before the first dispatch that names it. If another pipeline held the slot,
    /// commands handed over before still find that one.
    pub fn add_program(&mut self, slot: u32, program: Program) {
        if !self.commands.is_empty() {
            // Commands already in this piece mean the other pipeline. A failure is noted on the device.
            let _ = self.hand_over();
        }
        self.commands.programs.push((slot, program));
    }

    /// Number of waits for command slots so far.
    pub fn stalls(&self) -> u64 {
        self.shared.stalls.load(Ordering::Relaxed)
    }

    /// Prepares a command buffer for its first command, unless a thread does. Call it before anything is written, so
    /// that a failed call can be repeated. Returns the time spent waiting for a slot.
    pub fn ready(&mut self) -> Result<Duration> {
        if self.thread.is_some() {
            return Ok(Duration::ZERO);
        }
        let mut worker = self.shared.worker.lock();
        worker.ready(&self.shared)?;
        Ok(std::mem::take(&mut worker.waited))
    }

    /// Whether [`Self::ready`] would return without waiting.
    pub fn is_ready(&self) -> bool {
        let ready =
            |worker: &Worker| worker.is_ready() || worker.ring.has_free(worker.timeline.seen());
        self.thread.is_some() || ready(&self.shared.worker.lock())
    }

    /// Preallocates descriptor sets of the layout for the next `count` dispatches, unless a thread does. The command
    /// buffer must be ready.
    pub fn reserve(&self, layout: vk::DescriptorSetLayout, count: usize) -> Result<()> {
        if self.thread.is_some() {
            return Ok(());
        }
        let mut worker = self.shared.worker.lock();
        worker.ring.slot().descriptors.reserve(layout, count)
    }

    /// Hands over if enough was written. Call it between commands.
    #[inline]
    pub fn hand_over_if_long(&mut self) -> Result<Duration> {
        if self.commands.words() < HAND_OVER {
            return Ok(Duration::ZERO);
        }
        self.hand_over()
    }

    /// Records here everything written so far, unless the thread is recording: then hands it over. For callers that are
    /// about to wait for it. Returns the time spent waiting for slots.
    pub fn record_here(&mut self) -> Result<Duration> {
        let shared = &self.shared;
        let worker = match self.thread {
            Some(_) => shared.worker.try_lock(),
            None => Some(shared.worker.lock()),
        };
        let Some(mut worker) = worker else {
            shared.enqueue(&mut self.commands);
            return Ok(Duration::ZERO);
        };
        shared.drain(&mut worker);
        let done = worker.execute(shared, &self.commands);
        self.commands.clear();
        done.map(|()| std::mem::take(&mut worker.waited))
    }

    /// Hands over what was written; without a thread, records it here. Returns the time then spent waiting for slots.
    pub fn hand_over(&mut self) -> Result<Duration> {
        if self.commands.is_empty() {
            return Ok(Duration::ZERO);
        }
        // A profile needs the work of each call recorded within that call.
        if self.thread.is_none() || profile::on() {
            return self.record_here();
        }
        self.shared.enqueue(&mut self.commands);
        Ok(Duration::ZERO)
    }

    /// Records here what is still queued, unless the thread is recording. For callers that wait for it.
    pub fn help(&self) {
        if self.shared.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(mut worker) = self.shared.worker.try_lock() {
            self.shared.drain(&mut worker);
        }
    }

    /// Ends the thread after everything handed over.
    pub fn end(&mut self) {
        self.shared.queue.lock().ending = true;
        self.shared.wake.notify_one();
        // The thread ends by returning.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Puts the piece into the queue, replaces it with an empty one, and wakes the thread.
    fn enqueue(&self, commands: &mut Commands) {
        let mut queue = self.queue.lock();
        if queue.full.len() >= MAX_WAITING {
            self.stalls.fetch_add(1, Ordering::Relaxed);
            while queue.full.len() >= MAX_WAITING {
                self.wake.notify_one();
                self.room.wait(&mut queue);
            }
        }
        let empty = queue.spare.pop();
        let empty = empty.unwrap_or_else(|| Commands::with_capacity(PIECE));
        queue.full.push_back(std::mem::replace(commands, empty));
        self.waiting.store(queue.full.len(), Ordering::Release);
        let asleep = std::mem::take(&mut queue.sleeping);
        drop(queue);
        if asleep {
            self.wake.notify_one();
        }
    }

    fn run(&self) {
        loop {
            let end = Instant::now() + SPIN;
            while self.waiting.load(Ordering::Acquire) == 0 && Instant::now() < end {
                std::hint::spin_loop();
            }
            {
                let mut queue = self.queue.lock();
                while queue.full.is_empty() {
                    if queue.ending {
                        return;
                    }
                    queue.sleeping = true;
                    self.wake.wait(&mut queue);
                    queue.sleeping = false;
                }
            }
            let mut worker = self.worker.lock();
            self.drain(&mut worker);
        }
    }

    /// Records everything queued. After a failure the rest of the queue is dropped.
    fn drain(&self, worker: &mut Worker) {
        loop {
            let mut queue = self.queue.lock();
            let Some(mut piece) = queue.full.pop_front() else {
                return;
            };
            self.waiting.store(queue.full.len(), Ordering::Release);
            if queue.full.len() + 1 == MAX_WAITING {
                self.room.notify_one();
            }
            drop(queue);
            // The device keeps the failure: every later call and every wait reports it.
            let _ = worker.execute(self, &piece);
            piece.clear();
            self.queue.lock().spare.push(piece);
        }
    }
}

impl Worker {
    /// Records one piece. A failure or a panic is final, on any thread.
    fn execute(&mut self, shared: &Shared, commands: &Commands) -> Result<()> {
        let device = &shared.device;
        device.check_alive()?;
        let record = AssertUnwindSafe(|| self.try_execute(shared, commands));
        let recorded = match catch_unwind(record) {
            Ok(recorded) => recorded,
            Err(panic) => Err(Error::DeviceLost(panicked(&*panic))),
        };
        recorded.inspect_err(|error| device.fail(error))
    }

    fn try_execute(&mut self, shared: &Shared, commands: &Commands) -> Result<()> {
        for &(slot, program) in &commands.programs {
            let slot = slot as usize;
            if self.programs.len() <= slot {
                self.programs.resize(slot + 1, Program::default());
            }
            self.programs[slot] = program;
        }
        for (command, words) in commands.iter() {
            if let Command::Submit {
                wait,
                value,
                more,
                host_barrier,
            } = command
            {
                self.submit(shared, wait, value, more, host_barrier)?;
                continue;
            }
            if let Command::Wait { semaphore, value } = command {
                self.wait = Some((vk::Semaphore::from_raw(semaphore), value));
                continue;
            }
            self.ready(shared)?;
            self.prepared = false;
            self.open = true;
            let slot = self.ring.slot();
            slot.record(&self.programs, &command, words)?;
        }
        Ok(())
    }

    /// Whether the current slot is ready to record.
    #[inline]
    fn is_ready(&self) -> bool {
        self.open || self.prepared
    }

    /// Makes the current slot ready to record.
    #[inline]
    fn ready(&mut self, shared: &Shared) -> Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        self.wait_for_slot(shared)
    }

    fn choose_slot(&mut self) {
        let Self { ring, timeline, .. } = self;
        ring.release(timeline.seen());
        // If asking the device fails, the next submission reports it.
        ring.choose(timeline.seen(), || {
            timeline.completed().unwrap_or(timeline.seen())
        });
    }

    /// Waits until the device has finished with a slot, then makes that slot current and ready.
    fn wait_for_slot(&mut self, shared: &Shared) -> Result<()> {
        self.choose_slot();
        let owner = self.ring.slot().owner;
        if owner > self.timeline.seen() && owner > self.timeline.completed()? {
            shared.stalls.fetch_add(1, Ordering::Relaxed);
            let start = Instant::now();
            let mut patience = Patience::default();
            while !self.timeline.wait_for(owner, SLICE)? {
                patience.after(&self.timeline, SLICE)?;
                if shared.exiting.load(Ordering::Acquire) {
                    return Err(Error::Aborted("the process is ending".to_owned()));
                }
            }
            self.waited += start.elapsed();
        }
        self.prepare()
    }

    fn prepare(&mut self) -> Result<()> {
        let slot = self.ring.slot();
        slot.reset()?;
        slot.encoder.begin(true)?;
        self.prepared = true;
        Ok(())
    }

    /// Submits the open commands, then `more`, under `value`.
    fn submit(
        &mut self,
        shared: &Shared,
        wait: u64,
        value: u64,
        more: u64,
        host_barrier: bool,
    ) -> Result<()> {
        let mut commands = [vk::CommandBuffer::null(); 2];
        let mut count = 0;
        let opened = std::mem::take(&mut self.open);
        if opened {
            let encoder = &mut self.ring.slot().encoder;
            if host_barrier {
                encoder.host_barrier();
            }
            encoder.end()?;
            commands[0] = encoder.raw;
            count = 1;
        }
        if more != 0 {
            commands[count] = vk::CommandBuffer::from_raw(more);
            count += 1;
        }
        let wait = (wait != 0).then_some(wait);
        let commands = &commands[..count];
        shared.blackbox.submitted(commands, value);
        let start = profile::begin();
        let other = self.wait.take();
        submit::submit(&shared.device, &self.timeline, wait, other, commands, value)?;
        if let Some(start) = start {
            profile::submitted(&shared.device, commands, value, start, self.timeline.seen());
        }
        if opened {
            self.ring.slot().owner = value;
        }
        // After copies alone, the next command chooses the slot: by then the copies are probably done, and a long list
        // goes to a slot that has the memory for it.
        if opened && self.ring.slot().dispatches > 0 {
            self.choose_slot();
            // While the device starts, prepare the next slot if it is free, so that the next command need not wait. If
            // this fails, that command tries again.
            if self.ring.slot().owner <= self.timeline.seen() {
                let _ = self.prepare();
            }
        }
        Ok(())
    }
}

impl OnExit for Shared {
    fn on_exit(&self) -> bool {
        self.exiting.store(true, Ordering::Release);
        // Queued commands are not recorded any more: the thread waits for this lock until the process ends.
        let worker = self.worker.try_lock_for(exit::LIMIT);
        worker.map(std::mem::forget).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::memory::{Kind, Memory, Resource};
    use crate::plan::hazard::Stages;

    struct Bench {
        device: Arc<Device>,
        timeline: Arc<Timeline>,
        memory: Memory,
        recorder: Recorder,
    }

    impl Bench {
        fn new(slots: usize, threaded: bool) -> Self {
            let device =
                Device::new(&Config::from_env(true).unwrap()).expect("tests need a Vulkan device");
            let device = Arc::new(device);
            let timeline = Timeline::new(Arc::clone(&device), 0).expect("a timeline");
            let timeline = Arc::new(timeline);
            let memory = Memory::new(Arc::clone(&device), false);
            let recorder = Recorder::new(
                &device,
                &Arc::new(BlackBox::new(false)),
                &timeline,
                slots,
                threaded,
            );
            Self {
                recorder: recorder.expect("a recorder"),
                memory,
                device,
                timeline,
            }
        }

        fn words(&self, count: u64) -> Resource {
            self.memory
                .create(count * 4, Kind::Readback)
                .expect("memory")
        }

        fn submit(&mut self, value: u64, here: bool) -> Result<Duration> {
            self.recorder.commands.submit(0, value, 0, true);
            self.timeline.submitted(value);
            if here {
                return self.recorder.record_here();
            }
            self.recorder.hand_over()
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            self.recorder.end();
            // SAFETY: nothing else uses the device.
            let _ = unsafe { self.device.raw.device_wait_idle() };
        }
    }

    /// Overwrites one word again and again, and copies each of its values to a place of its own:
    /// any command out of order shows.
    fn in_order(slots: usize, threaded: bool) {
        const STEPS: u32 = 3000;
        let mut bench = Bench::new(slots, threaded);
        let [word, history] = [bench.words(1), bench.words(u64::from(STEPS))];
        let mut value = 0;
        let mut seed = 7u32;
        for step in 0..STEPS {
            let commands = &mut bench.recorder.commands;
            commands.fill(word.raw.as_raw(), word.offset, 4, step);
            commands.barrier(Stages::TRANSFER);
            let target = history.offset + u64::from(step) * 4;
            commands.copy(
                word.raw.as_raw(),
                word.offset,
                history.raw.as_raw(),
                target,
                4,
            );
            commands.barrier(Stages::TRANSFER);
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match seed >> 28 {
                0 => {
                    value += 1;
                    bench.submit(value, false).expect("a submission");
                }
                1 => {
                    value += 1;
                    bench.submit(value, true).expect("a submission");
                }
                2 => {
                    bench.recorder.hand_over().expect("recorded");
                    bench.recorder.help();
                }
                3 if value > 0 => bench.timeline.wait(value).expect("reached"),
                _ => {
                    bench.recorder.hand_over_if_long().expect("recorded");
                }
            }
        }
        bench.submit(value + 1, false).expect("a submission");
        bench.timeline.wait(value + 1).expect("reached");
        let mapped = history.mapped.expect("mapped").cast::<u32>();
        // SAFETY: the device has written every word, and has finished.
        let seen = unsafe { std::slice::from_raw_parts(mapped.as_ptr(), STEPS as usize) };
        assert!(seen.iter().copied().eq(0..STEPS));
        bench.memory.destroy(word);
        bench.memory.destroy(history);
    }

    #[test]
    fn commands_are_recorded_in_order_on_the_thread() {
        in_order(8, true);
        // Every submission waits for the slot of the one before.
        in_order(1, true);
    }

    #[test]
    fn commands_are_recorded_in_order_in_the_call() {
        in_order(8, false);
    }

    #[test]
    fn as_many_slots_are_used_as_lists_are_in_flight() {
        let mut bench = Bench::new(8, false);
        let word = bench.words(1);
        let mut used = std::collections::BTreeSet::new();
        for value in 1..=100 {
            let commands = &mut bench.recorder.commands;
            commands.fill(word.raw.as_raw(), word.offset, 4, value as u32);
            bench.submit(value, true).expect("a submission");
            let in_flight = value % 10 == 0;
            if !in_flight {
                bench.timeline.wait(value).expect("reached");
            }
            used.insert(bench.recorder.shared.worker.lock().ring.current);
        }
        assert!(used.len() <= 3, "{used:?}");
        assert!(bench.recorder.shared.worker.lock().ring.slots.len() <= 3);
        bench.timeline.wait(100).expect("reached");
        bench.memory.destroy(word);
    }

    #[test]
    fn copies_behind_a_list_leave_the_next_list_its_slot() {
        let mut bench = Bench::new(8, false);
        let word = bench.words(1);
        let mut used = std::collections::BTreeSet::new();
        for value in (1..=100).step_by(2) {
            let fill = |recorder: &mut Recorder| {
                let commands = &mut recorder.commands;
                commands.fill(word.raw.as_raw(), word.offset, 4, value as u32);
            };
            fill(&mut bench.recorder);
            bench.recorder.record_here().expect("recorded");
            {
                // As if there were a dispatch in it.
                let mut worker = bench.recorder.shared.worker.lock();
                worker.ring.slot().dispatches = 1;
                used.insert(worker.ring.current);
            }
            bench.submit(value, true).expect("a list");
            fill(&mut bench.recorder);
            bench.submit(value + 1, true).expect("what comes behind it");
            bench.timeline.wait(value + 1).expect("reached");
        }
        assert_eq!(used.len(), 1, "{used:?}");
        bench.memory.destroy(word);
    }

    #[test]
    fn a_full_queue_makes_the_caller_wait_and_loses_nothing() {
        let mut bench = Bench::new(1, true);
        let word = bench.words(1);
        for value in 1..=4 * MAX_WAITING as u64 {
            let commands = &mut bench.recorder.commands;
            commands.fill(word.raw.as_raw(), word.offset, 4, value as u32);
            bench.submit(value, false).expect("a submission");
        }
        let last = 4 * MAX_WAITING as u64;
        bench.timeline.wait(last).expect("reached");
        assert_eq!(bench.timeline.completed().expect("alive"), last);
        bench.memory.destroy(word);
    }

    #[test]
    fn after_a_failure_nothing_hangs() {
        let mut bench = Bench::new(2, true);
        let word = bench.words(1);
        bench.device.fail(&Error::Internal("a test".to_owned()));
        for value in 1..2 * MAX_WAITING as u64 {
            let commands = &mut bench.recorder.commands;
            commands.fill(word.raw.as_raw(), word.offset, 4, 1);
            bench.submit(value, false).expect("handed over");
        }
        let waited = bench.timeline.wait(1);
        assert!(matches!(waited, Err(Error::DeviceLost(_))));
        bench.recorder.end();
        bench.memory.destroy(word);
    }

    #[test]
    fn in_the_call_a_failure_is_the_calls() {
        let mut bench = Bench::new(2, false);
        bench.device.fail(&Error::Internal("a test".to_owned()));
        bench.recorder.commands.host_barrier();
        let handed = bench.submit(1, false);
        assert!(matches!(handed, Err(Error::DeviceLost(_))));
    }
}

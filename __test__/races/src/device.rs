//! A device and its driver. The driver has the calls of `ash::Device` that the addon's files make, and
//! guarantees no more than Vulkan does: pools, command buffers and the queue are used without a lock,
//! and only a submission and the timeline order host and device.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ash::vk::{self, Handle};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::plain::{Block, Plain};

/// Set when the process has ended the driver: no thread may be in it any more.
pub static GONE: Plain<bool> = Plain::new(false);
/// The first semaphore of a device: its timeline.
const TIMELINE: u64 = 1;
/// Longest wait that the driver makes of one call.
const LONGEST: Duration = Duration::from_millis(20);
/// Descriptor sets of a pool: few, so that several are needed.
const SETS: u32 = 5;

/// Every call begins with it.
fn enter() {
    assert!(!GONE.get(), "a thread is in a driver that has ended");
}

/// What the device does. `order` counts the commands of the stream.
#[derive(Clone, Copy)]
pub enum Op {
    Fill {
        order: u64,
        target: u64,
        at: u64,
        word: u64,
    },
    Copy {
        order: u64,
        source: u64,
        source_at: u64,
        target: u64,
        target_at: u64,
    },
    /// Writes the sum of the pipeline's word and `word`.
    Dispatch {
        order: u64,
        program: u64,
        target: u64,
        at: u64,
        word: u64,
    },
    /// Of a kept command buffer: counts its runs.
    Count { target: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Initial,
    Recording,
    Executable,
    Pending,
}

pub struct Buffer {
    pub state: Plain<State>,
    pub ops: Plain<Vec<Op>>,
    /// Submitted again and again, also while it runs.
    kept: bool,
}

impl Buffer {
    fn new(state: State, ops: Vec<Op>, kept: bool) -> Box<Self> {
        Box::new(Self {
            state: Plain::new(state),
            ops: Plain::new(ops),
            kept,
        })
    }

    /// A kept one, as of a recorded graph. It lives as long as the process.
    pub fn kept(ops: Vec<Op>) -> u64 {
        let buffer = Box::leak(Self::new(State::Executable, ops, true));
        std::ptr::from_mut(buffer).expose_provenance() as u64
    }

    /// The command buffer of a handle.
    pub fn of<'a>(handle: vk::CommandBuffer) -> &'a Self {
        // SAFETY: a pool keeps it, or it was leaked; `ash` keeps the number.
        unsafe { &*std::ptr::with_exposed_provenance(handle.as_raw() as usize) }
    }
}

#[derive(Default)]
struct Submission {
    wait: u64,
    /// A value of the host's timeline.
    host_wait: u64,
    /// 0 ends the device.
    value: u64,
    buffers: Vec<vk::CommandBuffer>,
}

/// What the host sees of the device without asking the driver.
#[derive(Default)]
pub struct Front {
    /// The timeline.
    reached: AtomicU64,
    /// The other one, which the host signals: that of a group.
    host_reached: AtomicU64,
    /// Semaphores so far.
    semaphores: AtomicU64,
    /// The device goes past what the host has yet to signal: set as it is stopped.
    stopping: AtomicBool,
    lost: AtomicBool,
    /// The device does not begin another submission.
    pub paused: AtomicBool,
    /// Commands of the stream that it has executed.
    pub executed: AtomicU64,
    /// Objects that were made and not destroyed.
    pub objects: AtomicI64,
    /// Set with a failure: nothing may follow it.
    failed: Plain<bool>,
    /// Value whose submission loses the device; 0 for none.
    pub lose_at: AtomicU64,
    /// The first dispatch from this place of the stream on cannot be recorded; 0 for none.
    pub refuse_at: AtomicU64,
    /// One in so many buffers cannot be had; 0 for all can.
    pub scarce: AtomicU64,
    /// Buffers that were asked for.
    asked: AtomicU64,
}

#[derive(Clone)]
pub struct Raw {
    pub front: Arc<Front>,
    queue: Sender<Submission>,
    /// Highest value submitted.
    submitted: Arc<Plain<u64>>,
}

/// A value of an extension structure's list.
///
/// # Safety
/// `list` holds a value or is null.
unsafe fn first(list: *const u64) -> u64 {
    // SAFETY: as above.
    unsafe { list.as_ref() }.copied().unwrap_or(0)
}

fn number<T>(object: T) -> u64 {
    std::ptr::from_mut(Box::leak(Box::new(object))).expose_provenance() as u64
}

/// # Safety
/// `handle` came from [`number`] with this type, and is used no more.
unsafe fn destroy<T>(handle: u64) {
    let object: *mut T = std::ptr::with_exposed_provenance_mut(handle as usize);
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(object) });
}

fn at<'a, T>(handle: u64) -> &'a T {
    // SAFETY: handles come from `number` and are destroyed last.
    unsafe { &*std::ptr::with_exposed_provenance(handle as usize) }
}

type Call<T> = std::result::Result<T, vk::Result>;
type Unused<'a> = Option<&'a vk::AllocationCallbacks<'a>>;

/// The calls. They are `unsafe` as those of `ash` are; none relies on it.
#[allow(clippy::missing_safety_doc)]
impl Raw {
    fn made(&self, count: i64) {
        enter();
        self.front.objects.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes a failure, once: it is the last thing that the recorder comes to.
    pub fn fail(&self) {
        self.still_works();
        self.front.failed.set(true);
    }

    /// Called with each command and each submission.
    pub fn still_works(&self) {
        enter();
        assert!(!self.front.failed.get(), "something follows a failure");
    }

    /// Reaches a value without work. To be called by one thread.
    pub fn signal(&self, value: u64) {
        self.front.reached.store(value, Ordering::Release);
    }

    pub fn lose(&self) {
        self.front.lost.store(true, Ordering::Release);
    }

    pub fn submitted(&self) -> u64 {
        self.submitted.get()
    }

    /// Ends the device, behind what was submitted.
    pub fn stop(&self) {
        self.front.paused.store(false, Ordering::Relaxed);
        self.front.stopping.store(true, Ordering::Relaxed);
        let _ = self.queue.send(Submission::default());
    }

    pub unsafe fn create_semaphore(
        &self,
        _: &vk::SemaphoreCreateInfo<'_>,
        _: Unused<'_>,
    ) -> Call<vk::Semaphore> {
        self.made(1);
        let number = self.front.semaphores.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(vk::Semaphore::from_raw(number))
    }

    /// The host signals the other timeline alone.
    pub unsafe fn signal_semaphore(&self, info: &vk::SemaphoreSignalInfo<'_>) -> Call<()> {
        enter();
        assert_ne!(info.semaphore.as_raw(), TIMELINE);
        let before = self.front.host_reached.load(Ordering::Relaxed);
        assert!(info.value > before, "{} after {before}", info.value);
        self.front.host_reached.store(info.value, Ordering::Release);
        Ok(())
    }

    pub unsafe fn destroy_semaphore(&self, _: vk::Semaphore, _: Unused<'_>) {
        self.made(-1);
    }

    pub unsafe fn get_semaphore_counter_value(&self, semaphore: vk::Semaphore) -> Call<u64> {
        enter();
        assert_eq!(semaphore.as_raw(), TIMELINE);
        if self.front.lost.load(Ordering::Acquire) {
            return Err(vk::Result::ERROR_DEVICE_LOST);
        }
        Ok(self.front.reached.load(Ordering::Acquire))
    }

    /// Only a CPU device's exit asks for it, and this device is never registered for that.
    pub unsafe fn device_wait_idle(&self) -> std::result::Result<(), vk::Result> {
        enter();
        Ok(())
    }

    /// Looks again and again, since a lock would order those who wait among themselves.
    pub unsafe fn wait_semaphores(
        &self,
        info: &vk::SemaphoreWaitInfo<'_>,
        nanoseconds: u64,
    ) -> Call<()> {
        // SAFETY: the addon waits for one value.
        let value = unsafe { first(info.p_values) };
        let end = Instant::now() + Duration::from_nanos(nanoseconds).min(LONGEST);
        loop {
            enter();
            if self.front.lost.load(Ordering::Acquire) {
                return Err(vk::Result::ERROR_DEVICE_LOST);
            }
            if self.front.reached.load(Ordering::Acquire) >= value {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(vk::Result::TIMEOUT);
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    pub unsafe fn queue_submit(
        &self,
        _: vk::Queue,
        infos: &[vk::SubmitInfo<'_>],
        _: vk::Fence,
    ) -> Call<()> {
        self.still_works();
        for info in infos {
            let times = info.p_next.cast::<vk::TimelineSemaphoreSubmitInfo<'_>>();
            // SAFETY: the addon chains this one structure, and its lists are as long as they say.
            let (waits, value, buffers) = unsafe {
                let count = info.wait_semaphore_count as usize;
                (
                    (0..count)
                        .map(|at| {
                            let semaphore = *info.p_wait_semaphores.add(at);
                            (semaphore, *(*times).p_wait_semaphore_values.add(at))
                        })
                        .collect::<Vec<_>>(),
                    first((*times).p_signal_semaphore_values),
                    std::slice::from_raw_parts(
                        info.p_command_buffers,
                        info.command_buffer_count as usize,
                    ),
                )
            };
            let value_of = |own: bool| {
                let found = waits
                    .iter()
                    .find(|(of, _)| (of.as_raw() == TIMELINE) == own);
                found.map_or(0, |&(_, value)| value)
            };
            let (wait, host_wait) = (value_of(true), value_of(false));
            let before = self.submitted.get();
            assert!(value > before, "{value} is submitted after {before}");
            assert!(wait <= before, "{value} waits for {wait}, which is to come");
            if value == self.front.lose_at.load(Ordering::Relaxed) {
                self.lose();
                self.fail();
                return Err(vk::Result::ERROR_DEVICE_LOST);
            }
            self.submitted.set(value);
            for buffer in buffers.iter().map(|&raw| Buffer::of(raw)) {
                if !buffer.kept {
                    assert_eq!(buffer.state.get(), State::Executable);
                    buffer.state.set(State::Pending);
                }
            }
            // The device may have ended, lost.
            let _ = self.queue.send(Submission {
                wait,
                host_wait,
                value,
                buffers: buffers.to_vec(),
            });
        }
        Ok(())
    }

    pub unsafe fn create_command_pool(
        &self,
        _: &vk::CommandPoolCreateInfo<'_>,
        _: Unused<'_>,
    ) -> Call<vk::CommandPool> {
        self.made(1);
        let buffer = Buffer::new(State::Initial, Vec::new(), false);
        Ok(vk::CommandPool::from_raw(number(*buffer)))
    }

    /// The pool is its one command buffer.
    pub unsafe fn allocate_command_buffers(
        &self,
        info: &vk::CommandBufferAllocateInfo<'_>,
    ) -> Call<Vec<vk::CommandBuffer>> {
        enter();
        assert_eq!(info.command_buffer_count, 1);
        let raw = info.command_pool.as_raw();
        Ok(vec![vk::CommandBuffer::from_raw(raw)])
    }

    pub unsafe fn reset_command_pool(
        &self,
        pool: vk::CommandPool,
        _: vk::CommandPoolResetFlags,
    ) -> Call<()> {
        enter();
        let buffer: &Buffer = at(pool.as_raw());
        assert_ne!(buffer.state.get(), State::Pending, "the device is at it");
        buffer.state.set(State::Initial);
        buffer.ops.with(Vec::clear);
        Ok(())
    }

    pub unsafe fn destroy_command_pool(&self, pool: vk::CommandPool, _: Unused<'_>) {
        self.made(-1);
        // SAFETY: it came from `create_command_pool`.
        unsafe { destroy::<Buffer>(pool.as_raw()) };
    }

    pub unsafe fn create_descriptor_pool(
        &self,
        _: &vk::DescriptorPoolCreateInfo<'_>,
        _: Unused<'_>,
    ) -> Call<vk::DescriptorPool> {
        self.made(1);
        Ok(vk::DescriptorPool::from_raw(number(Plain::new(0u32))))
    }

    pub unsafe fn allocate_descriptor_sets(
        &self,
        info: &vk::DescriptorSetAllocateInfo<'_>,
    ) -> Call<Vec<vk::DescriptorSet>> {
        enter();
        let count = info.descriptor_set_count;
        let taken: &Plain<u32> = at(info.descriptor_pool.as_raw());
        if taken.get() + count > SETS {
            return Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY);
        }
        taken.set(taken.get() + count);
        Ok(vec![vk::DescriptorSet::from_raw(1); count as usize])
    }

    pub unsafe fn reset_descriptor_pool(
        &self,
        pool: vk::DescriptorPool,
        _: vk::DescriptorPoolResetFlags,
    ) -> Call<()> {
        enter();
        at::<Plain<u32>>(pool.as_raw()).set(0);
        Ok(())
    }

    pub unsafe fn destroy_descriptor_pool(&self, pool: vk::DescriptorPool, _: Unused<'_>) {
        self.made(-1);
        // SAFETY: it came from `create_descriptor_pool`.
        unsafe { destroy::<Plain<u32>>(pool.as_raw()) };
    }

    /// A buffer with its memory, of a few words. It takes a while, as the driver does.
    pub unsafe fn create_buffer(
        &self,
        _: &vk::BufferCreateInfo<'_>,
        _: Unused<'_>,
    ) -> Call<vk::Buffer> {
        enter();
        let number = self.front.asked.fetch_add(1, Ordering::Relaxed) + 1;
        std::thread::sleep(Duration::from_micros(300));
        let scarce = self.front.scarce.load(Ordering::Relaxed);
        if scarce != 0 && number.is_multiple_of(scarce) {
            return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        }
        self.made(1);
        let block = Box::leak(Block::new(WORDS as usize));
        Ok(vk::Buffer::from_raw(block.handle()))
    }

    pub unsafe fn destroy_buffer(&self, buffer: vk::Buffer, _: Unused<'_>) {
        self.made(-1);
        // SAFETY: it came from `create_buffer`.
        unsafe { destroy::<Block>(buffer.as_raw()) };
    }
}

/// Words of a buffer, whatever its size.
pub const WORDS: u64 = 4;

/// The device at work, until it is stopped or lost.
fn work(front: &Front, queue: &Receiver<Submission>) {
    let executed = Cell::new(0);
    let next = |order: u64| {
        assert_eq!(order, executed.get(), "commands come in order, once each");
        executed.set(order + 1);
    };
    let mut chance = Chance(1);
    for submission in queue {
        while front.paused.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(100));
        }
        if submission.value == 0 || front.lost.load(Ordering::Acquire) {
            return;
        }
        assert!(submission.wait <= front.reached.load(Ordering::Relaxed));
        while front.host_reached.load(Ordering::Acquire) < submission.host_wait {
            if front.lost.load(Ordering::Acquire) || front.stopping.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        if chance.one_in(8) {
            std::thread::sleep(Duration::from_micros(chance.below(200)));
        }
        for buffer in submission.buffers.iter().map(|&raw| Buffer::of(raw)) {
            for op in buffer.ops.with(|ops| ops.clone()) {
                match op {
                    Op::Fill {
                        order,
                        target,
                        at,
                        word,
                    } => {
                        next(order);
                        Block::of(target).set(at, word);
                    }
                    Op::Copy {
                        order,
                        source,
                        source_at,
                        target,
                        target_at,
                    } => {
                        next(order);
                        let word = Block::of(source).get(source_at);
                        Block::of(target).set(target_at, word);
                    }
                    Op::Dispatch {
                        order,
                        program,
                        target,
                        at,
                        word,
                    } => {
                        next(order);
                        Block::of(target).set(at, Block::of(program).get(0) + word);
                    }
                    Op::Count { target } => {
                        let target = Block::of(target);
                        target.set(0, target.get(0) + 1);
                    }
                }
            }
            if !buffer.kept {
                buffer.state.set(State::Initial);
            }
        }
        front.executed.store(executed.get(), Ordering::Relaxed);
        front.reached.store(submission.value, Ordering::Release);
    }
}

/// Numbers that are the same in every run.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[derive(Default)]
pub struct Plan {
    pub queue_family: u32,
}

pub struct Snapshot {
    pub device_type: vk::PhysicalDeviceType,
    pub name: &'static str,
}

/// What a device shares with others: nothing here.
pub mod sharing {
    use ash::vk;

    pub const TIMELINE_HANDLE: vk::ExternalSemaphoreHandleTypeFlags =
        vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;

    pub struct Sharing {
        pub timelines: Option<Timelines>,
    }

    pub struct Timelines;

    impl Timelines {
        /// As that of `ash`; nothing relies on it.
        #[allow(clippy::missing_safety_doc)]
        pub unsafe fn get_semaphore_fd(
            &self,
            _: &vk::SemaphoreGetFdInfoKHR<'_>,
        ) -> super::Call<i32> {
            Err(vk::Result::ERROR_FEATURE_NOT_PRESENT)
        }
    }
}

pub struct Device {
    pub raw: Raw,
    pub queue: vk::Queue,
    pub snapshot: Snapshot,
    pub plan: Plan,
    pub sharing: Option<sharing::Sharing>,
    lost: AtomicBool,
    pub config: Config,
}

impl Device {
    /// With the device at work on a thread of its own, which [`Raw::stop`] ends.
    /// `software`: whether waits begin without polling.
    pub fn new(software: bool) -> (Arc<Self>, JoinHandle<()>) {
        let front = Arc::new(Front::default());
        let (queue, submissions) = channel();
        let of_device = Arc::clone(&front);
        let device = Self {
            raw: Raw {
                front,
                queue,
                submitted: Arc::default(),
            },
            queue: vk::Queue::null(),
            snapshot: Snapshot {
                device_type: match software {
                    true => vk::PhysicalDeviceType::CPU,
                    false => vk::PhysicalDeviceType::DISCRETE_GPU,
                },
                name: "a stand-in",
            },
            plan: Plan::default(),
            sharing: None,
            lost: AtomicBool::new(false),
            config: Config::default(),
        };
        let thread = std::thread::spawn(move || work(&of_device, &submissions));
        (Arc::new(device), thread)
    }

    pub fn largest_buffer(&self) -> u64 {
        u64::MAX
    }

    pub fn lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub fn observe(&self, error: Error) -> Error {
        if matches!(error, Error::DeviceLost(_)) {
            self.lost.store(true, Ordering::Release);
        }
        error
    }

    pub fn fail(&self, _cause: &Error) {
        self.lost.store(true, Ordering::Release);
    }

    pub fn check_alive(&self) -> Result<()> {
        if self.lost() {
            return Err(Error::DeviceLost("in an earlier call".to_owned()));
        }
        Ok(())
    }

    pub fn lose_if_told(&self) -> Result<()> {
        Ok(())
    }

    pub fn name<T: Handle>(&self, _: T, _: &str) {}
}

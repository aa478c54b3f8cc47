//! The device, everything that lives on it, and the one stream of work that JS calls append to.
//!
//! Every call that touches a buffer appends to the stream in call order: decode and validate, find hazards, record.
//! [`Context::flush`] submits what was recorded; the timeline's value says when it is done. When to flush never changes
//! a result, only the speed, and so do batches.

mod buffers;
mod collective;
mod dgc;
mod execute;
mod graph;
mod insight;
mod nan;
mod pipelines;
mod share;
mod stream;
mod transfer;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub use collective::{Engine, Range};
pub use execute::{List, Profile, Push, Single};
pub use graph::Graph;
pub use nan::Floats;
use stream::Stream;
pub use transfer::Read;

use crate::collective::group::Group;
use crate::config::Config;
use crate::device::Device;
use crate::device::choice::Isolation;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::memory::staging::{Readback, Upload};
use crate::memory::{Memory, Resource};
use crate::observe::blackbox::BlackBox;
use crate::observe::profile;
use crate::pipeline::{Compiled, Factory, Kernel, Pipeline};
use crate::plan::decode::{Batch, BindingLimits, DgcOp, PipelineShape, Tables};
use crate::plan::hazard::{Stages, Tracker};
use crate::queue::exit;
use crate::queue::timeline::Timeline;
use crate::record::recorder::Recorder;
use crate::record::ring::SLOTS;
use crate::table::{Kind, Owner, Table};
use crate::test_faults;
use crate::timing::{Phase, Timing};

/// An open command buffer is submitted after this many dispatches, so that the device starts on a long batch while the
/// rest of it is recorded.
const FLUSH_DISPATCHES: u32 = 1024;
/// The same for a software device, whose work competes with recording for the cores. Lavapipe of Mesa 26.1.6 crashes on
/// a command buffer with 65,536 dispatches, and runs one with 16,384.
const FLUSH_ON_CPU: u32 = 8192;
/// Largest number of submissions in flight. Graph launches take no command slot, so the ring does not bound them.
const MAX_IN_FLIGHT: usize = 256;

/// Counters since the device was created.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    pub dispatches: u64,
    pub barriers: u64,
    pub submits: u64,
    pub uploads: u64,
    pub upload_bytes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub direct_uploads: u64,
    pub direct_reads: u64,
    pub graph_launches: u64,
    /// Waits for a command slot, for staging space, or because too many submissions were in flight.
    pub stalls: u64,
    pub temporary_requests: u64,
    pub buffers_created: u64,
    pub peak_buffer_bytes: u64,
    pub peak_buffers: u64,
    pub peak_block_bytes: u64,
}

/// The fixed pipeline of the `dgc*` calls.
pub struct Dgc {
    pub pipeline: i32,
    pub push_bytes: u32,
    pub max_sequences: u32,
    /// The command buffer of the `dgc*` calls. Any JS thread may write it; JS holds a reference of its own.
    pub commands: Arc<[AtomicU32]>,
    /// Distinguishes one set-up from the next.
    pub id: u64,
}

impl Dgc {
    /// Bytes of one sequence: the push constants, then three group counts.
    pub fn stride(&self) -> u32 {
        self.push_bytes + 12
    }
}

/// Fields are in drop order; [`Context::close`] empties them while the device is still alive.
pub struct Context {
    pub buffers: Table<Buffer>,
    pub pipelines: Table<Pipeline>,
    pub graphs: Table<Graph>,
    /// Largest number of submissions in flight.
    pub command_buffers: usize,
    factory: Option<Factory>,
    /// Graphs of environments that have ended, which the device may still be running.
    retired_graphs: Vec<Graph>,
    /// Destroyed pipelines, each with the timeline value after which it is freed.
    retired_pipelines: VecDeque<(u64, Arc<Compiled>)>,
    /// Destroyed resources, each with the timeline value after which it is freed, in order of that value.
    retired: VecDeque<(u64, Arc<Resource>)>,
    retired_bytes: u64,
    /// Bytes of live buffers, as requested.
    pub live_bytes: u64,
    /// Commands not yet handed over, and the way to the command buffers.
    pub recorder: Recorder,
    upload: Option<Upload>,
    pub readback: Arc<Readback>,
    /// Hazards inside the graph being recorded. Its epochs never repeat.
    graph_tracker: Tracker,
    recording: Option<graph::Recording>,
    /// Queries of failed waits, kept until the context goes.
    abandoned: Vec<execute::Queries>,
    /// The group of processes that this one is in.
    group: Option<Arc<Group>>,
    /// Exportable memory for collectives on the device, used for buffers that are not exportable themselves.
    exchange: Option<i32>,
    /// Memory of collectives, and a group that was left, each with the timeline value after which it is freed.
    exchanged: VecDeque<(u64, Arc<dyn Any + Send + Sync>)>,
    pub timeline: Arc<Timeline>,
    pub memory: Arc<Memory>,
    /// What the last command buffers contained.
    pub blackbox: Arc<BlackBox>,
    pub device: Arc<Device>,

    /// What was called, and how far it has come.
    stream: Stream,
    /// Whether the host reads buffers directly, so that every submission must end visible to the host.
    direct_reads: bool,
    /// Whether any buffer has been larger than one binding can cover.
    oversized: bool,
    /// Whether any pipeline binds its buffers through descriptor sets.
    binds_sets: bool,
    /// Whether any memory has been shared with others: submissions then begin with a barrier.
    shares: bool,
    flush_dispatches: u32,
    /// Test switch: no buffer is mapped, so that a CPU device takes the path of a graphics card.
    staged_only: bool,
    /// Test switch: records no barriers, so that the validation layer has something to report.
    no_barriers: bool,
    /// Ablation switch: uploads wait until they have arrived.
    blocking_uploads: bool,

    batch: Batch,
    dgc_ops: Vec<DgcOp>,
    pub dgc: Option<Dgc>,
    pub stats: Stats,
    pub timing: Timing,
    profile: Option<insight::ProfileState>,
    /// Buffers watched for NaNs.
    watches: nan::Watches,
}

/// Carried from one device of the process to the next, so that no handle and no timeline value is ever issued twice.
#[derive(Default)]
pub struct Legacy {
    buffers: Table<Buffer>,
    pipelines: Table<Pipeline>,
    graphs: Table<Graph>,
    last: u64,
}

impl Kind for Buffer {
    const FIRST: u32 = 1;
    const LAST: u32 = 1023;
}

impl Kind for Pipeline {
    const FIRST: u32 = 1024;
    const LAST: u32 = 1535;
}

impl Kind for Graph {
    const FIRST: u32 = 1536;
    const LAST: u32 = 2047;
}

/// The handle tables as the decoder sees them.
struct View<'a> {
    buffers: &'a Table<Buffer>,
    pipelines: &'a Table<Pipeline>,
    max_groups: [u32; 3],
    oversized: bool,
    binding_limits: BindingLimits,
}

impl Tables for View<'_> {
    #[inline]
    fn pipeline(&self, handle: i32) -> Option<PipelineShape> {
        let slot = self.pipelines.slot(handle)?;
        let pipeline = self.pipelines.at(slot)?;
        Some(PipelineShape {
            slot,
            bindings: pipeline.bindings,
            push_bytes: pipeline.push_bytes,
        })
    }

    #[inline]
    fn buffer(&self, handle: i32) -> Option<u32> {
        self.buffers.slot(handle)
    }

    fn max_groups(&self) -> [u32; 3] {
        self.max_groups
    }

    fn oversized(&self) -> bool {
        self.oversized
    }

    fn binding_limits(&self) -> BindingLimits {
        self.binding_limits
    }

    fn buffer_bytes(&self, slot: u32) -> u64 {
        self.buffers.at(slot).map_or(0, |buffer| buffer.bytes)
    }

    fn buffer_name(&self, slot: u32) -> Option<String> {
        self.buffers.at(slot)?.name.clone()
    }

    fn used_bindings(&self, pipeline: u32) -> u32 {
        self.pipelines.at(pipeline).map_or(u32::MAX, |p| p.used)
    }
}

impl Context {
    /// `legacy`: from the previous device; unchanged if this fails.
    pub fn new(config: &Config, legacy: &mut Legacy) -> Result<Self> {
        if let Some(place) = config.test_panic {
            test_faults::panic_at(place);
        }
        let device = Arc::new(Device::new(config)?);
        let start = config.test_timeline_start.max(legacy.last);
        let timeline = Arc::new(Timeline::new(Arc::clone(&device), start)?);
        let blackbox = Arc::new(BlackBox::new(config.report_dir.is_some()));
        // A buffer gets memory of its own where messages name the buffer, and where the device bounds accesses only by
        // the whole `VkBuffer`.
        let alone = config.validation || device.plan.safe == Some(Isolation::Buffer);
        let memory = Arc::new(Memory::new(Arc::clone(&device), alone));
        let command_buffers = config.command_buffers.unwrap_or(SLOTS);
        // A software device computes on the cores that a recording thread would use. Under validation, recording
        // happens in the call, so that messages become errors of the call they are about.
        let software = device.is_cpu();
        // Under validation only if our exit handler is sure to run first: the layer creates some of its state at first
        // use.
        let first = cfg!(all(target_os = "linux", target_env = "gnu"));
        if software && (first || !config.validation) {
            exit::at_exit(&timeline);
        }
        let threaded = match config.record_thread {
            Some(on) => on,
            None => {
                !software && std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 2)
            }
        } && !config.validation;
        let flush_dispatches = if software {
            FLUSH_ON_CPU
        } else {
            FLUSH_DISPATCHES
        };
        let plan = &device.plan;
        let types = &device.snapshot.memory_types;
        let cached = |i: u32| {
            types[i as usize].flags.contains(
                ash::vk::MemoryPropertyFlags::HOST_CACHED
                    | ash::vk::MemoryPropertyFlags::HOST_COHERENT,
            )
        };
        let direct_reads = cached(plan.device_memory) || cached(plan.visible_memory);
        let factory = Factory::new(Arc::clone(&device))?;
        let recorder = Recorder::new(&device, &blackbox, &timeline, command_buffers, threaded)?;
        Ok(Self {
            command_buffers,
            buffers: std::mem::take(&mut legacy.buffers),
            pipelines: std::mem::take(&mut legacy.pipelines),
            graphs: std::mem::take(&mut legacy.graphs),
            factory: Some(factory),
            retired_graphs: Vec::new(),
            retired_pipelines: VecDeque::new(),
            retired: VecDeque::new(),
            retired_bytes: 0,
            live_bytes: 0,
            recorder,
            upload: None,
            readback: Readback::new(Arc::clone(&memory)),
            stream: Stream::new(start),
            graph_tracker: Tracker::new(),
            recording: None,
            abandoned: Vec::new(),
            group: None,
            exchange: None,
            exchanged: VecDeque::new(),
            timeline,
            memory,
            blackbox,
            device,
            direct_reads,
            oversized: false,
            binds_sets: false,
            shares: false,
            flush_dispatches: config.flush_dispatches.unwrap_or(flush_dispatches),
            staged_only: config.test_staged,
            no_barriers: config.test_no_barriers,
            blocking_uploads: config.blocking_uploads,
            batch: Batch::default(),
            dgc_ops: Vec::new(),
            dgc: None,
            stats: Stats::default(),
            timing: Timing::new(config.host_timing),
            profile: None,
            watches: nan::Watches::default(),
        })
    }

    /// Sets the JavaScript environment whose calls follow. It owns what they make until another environment names it.
    pub fn enter(&mut self, caller: Owner) {
        self.buffers.caller = caller;
        self.pipelines.caller = caller;
        self.graphs.caller = caller;
    }

    /// Frees what an environment made and no other has named. Does not wait.
    pub fn free_owned(&mut self, owner: Owner) {
        for handle in self.graphs.owned(owner) {
            self.retired_graphs.extend(self.graphs.remove(handle));
        }
        // These fail only on a lost device, with which everything goes.
        for handle in self.buffers.owned(owner) {
            let _ = self.destroy_buffer(handle);
        }
        for handle in self.pipelines.owned(owner) {
            let _ = self.destroy_pipeline(handle);
        }
    }

    /// Prepares for a command. If it fails, nothing has changed.
    fn open(&mut self) -> Result<()> {
        if self.stream.open {
            return Ok(());
        }
        let waited = self.recorder.ready()?;
        self.timing.shift(Phase::RingWait, waited);
        if !self.stream.tracker.pending().is_empty()
            && self.timeline.seen() >= self.stream.submitted
        {
            // The device is idle. The next submission waits for the last value, which orders everything before it
            // without a barrier.
            self.stream.tracker.retire();
            self.stream.wait_first = true;
        }
        self.stream.open = true;
        if self.shares {
            // Others may have written to shared memory since, and the tracker cannot know.
            let _ = self.stream.tracker.barrier();
            self.stats.barriers += 1;
            let both = Stages::COMPUTE | Stages::TRANSFER;
            self.recorder.commands.barrier(both);
        }
        Ok(())
    }

    /// Records everything called so far within this call, unless a thread records.
    pub fn record_pending(&mut self) {
        if !self.recorder.threaded() || profile::on() {
            // The device keeps the failure.
            let _ = self.recorder.hand_over();
        }
    }

    /// Submits what was recorded, if anything. Returns the value at which it is done, or that of the last submission.
    pub fn flush(&mut self) -> Result<u64> {
        self.device.check_alive()?;
        if self.stream.unsubmitted() {
            self.submit(None, false)?;
        }
        Ok(self.stream.submitted)
    }

    /// [`Self::flush`] for a caller that is about to wait: records here instead of waiting for the recorder's thread to
    /// wake.
    fn flush_here(&mut self) -> Result<u64> {
        self.device.check_alive()?;
        if self.stream.unsubmitted() {
            self.submit(None, true)?;
        }
        self.recorder.help();
        Ok(self.stream.submitted)
    }

    /// Submits what was recorded under a value of its own, even if nothing was.
    pub fn commit(&mut self) -> Result<u64> {
        self.device.check_alive()?;
        self.timing.batches += u64::from(self.timing.enabled);
        self.submit(None, false)?;
        Ok(self.stream.submitted)
    }

    /// Submits the open commands, then `more`. `here`: see [`Recorder::record_here`].
    fn submit(&mut self, more: Option<ash::vk::CommandBuffer>, here: bool) -> Result<()> {
        if !self.watches.is_empty() {
            // The call's own work is in the stream already.
            let checked = self.check_watched();
            self.poison_if_partial(false, checked)?;
        }
        if let Some(value) = self.timeline.beyond(MAX_IN_FLIGHT) {
            let start = self.timing.start(Phase::RingWait);
            self.stats.stalls += 1;
            // If this fails, the submission reports the lost device.
            let _ = self.wait(value);
            self.timing.end(start);
        }
        let start = self.timing.start(Phase::Submit);
        let value = self.stream.assign();
        test_faults::panic_if_asked("stream");
        let wait = std::mem::take(&mut self.stream.wait_first).then_some(self.stream.submitted);
        let more = more.map_or(0, ash::vk::Handle::as_raw);
        let host_barrier = self.stream.open && self.direct_reads;
        let commands = &mut self.recorder.commands;
        commands.submit(wait.unwrap_or(0), value, more, host_barrier);
        self.timeline.submitted(value);
        self.stream.submit(value);
        self.stats.submits += 1;
        let waited = match here {
            true => self.recorder.record_here()?,
            false => self.recorder.hand_over()?,
        };
        self.timing.shift(Phase::RingWait, waited);
        self.timing.end(start);
        Ok(())
    }

    /// Waits for a value that was submitted, with the lock held.
    fn wait(&self, value: u64) -> Result<()> {
        self.recorder.help();
        self.timeline.wait(value)
    }

    /// Fails if nothing will signal `value`.
    pub fn check_value(&self, value: u64) -> Result<()> {
        self.device.check_alive()?;
        if value > self.stream.last {
            return Err(Error::range(
                "value",
                format!(
                    "is a timeline value that nothing will signal (the last one given out is {})",
                    self.stream.last
                ),
                value,
            ));
        }
        Ok(())
    }

    /// Ensures that `value`, which was given out, will be reached without another call: submits its work if necessary.
    pub fn prepare_wait(&mut self, value: u64) -> Result<()> {
        self.device.check_alive()?;
        if value > self.stream.submitted {
            self.flush_here()?;
        } else if value > self.timeline.seen() {
            self.recorder.help();
        }
        if value > self.timeline.seen() {
            // The device is busy and the caller is about to wait: time to reclaim.
            self.reclaim(usize::MAX);
        }
        Ok(())
    }

    /// The highest completed value. Submits what was recorded, so that a caller that polls gets there.
    pub fn completed(&mut self) -> Result<u64> {
        self.flush()?;
        self.timeline.completed()
    }

    /// Waits for everything, with the lock held.
    fn drain(&mut self) -> Result<()> {
        let value = self.flush_here()?;
        self.wait(value)
    }

    /// Accounts for a wait that was made without the lock.
    pub fn waited(&mut self, since: std::time::Instant) {
        self.timing.waited(since);
        self.reclaim_exchanged();
        self.reclaim(usize::MAX);
    }

    /// Mapped staging memory: number of blocks, and their bytes.
    pub fn staging(&self) -> (u64, u64) {
        let (count, bytes) = self.readback.blocks();
        match &self.upload {
            Some(upload) => (count + 1, bytes + upload.capacity()),
            None => (count, bytes),
        }
    }

    /// Live buffers with memory of their own: their number and bytes.
    pub fn individual_buffers(&self) -> (u64, u64) {
        self.buffers
            .iter()
            .filter(|(_, buffer)| buffer.resource.alone)
            .fold((0, 0), |(count, bytes), (_, buffer)| {
                (count + 1, bytes + buffer.bytes)
            })
    }

    fn view(&self) -> View<'_> {
        View {
            buffers: &self.buffers,
            pipelines: &self.pipelines,
            max_groups: self.device.snapshot.limits.max_compute_work_group_count,
            oversized: self.oversized,
            binding_limits: self.device.binding_limits(),
        }
    }

    pub fn buffer_slot(&self, argument: &str, handle: i32) -> Result<u32> {
        self.buffers
            .slot(handle)
            .ok_or_else(|| Error::handle(argument, "buffer", handle))
    }

    /// The size of a buffer in bytes, as it was created.
    pub fn buffer_bytes(&self, argument: &str, handle: i32) -> Result<u64> {
        let slot = self.buffer_slot(argument, handle)?;
        Ok(self.buffers.at(slot).map_or(0, |buffer| buffer.bytes))
    }

    pub fn set_name(&mut self, handle: i32, kind: NameKind, name: String) -> Result<()> {
        self.device.check_alive()?;
        match kind {
            NameKind::Buffer => {
                let slot = self.buffer_slot("handle", handle)?;
                if let Some(buffer) = self.buffers.at_mut(slot) {
                    if buffer.resource.owns_buffer() {
                        self.device.name(buffer.raw, &name);
                    }
                    buffer.name = Some(name);
                }
            }
            NameKind::Pipeline => {
                let slot = self
                    .pipelines
                    .slot(handle)
                    .ok_or_else(|| Error::handle("handle", "pipeline", handle))?;
                if let Some(pipeline) = self.pipelines.at_mut(slot) {
                    let kernel = pipeline.program.kernel;
                    if let Kernel::Pipeline(raw) = kernel {
                        self.device.name(raw, &name);
                    }
                    if profile::on() {
                        profile::named(kernel, handle, Some(&name));
                    }
                    pipeline.name = Some(name);
                }
            }
        }
        Ok(())
    }

    /// State for the next device of the process.
    pub fn legacy(&self) -> Legacy {
        Legacy {
            buffers: self.buffers.successor(),
            pipelines: self.pipelines.successor(),
            graphs: self.graphs.successor(),
            last: self.stream.last,
        }
    }

    /// Waits for the queue for at most `limit` (not at all on a lost device), destroys everything and drops the device.
    /// The `VkDevice` itself is destroyed when JS has released the last result in its memory.
    pub fn close(mut self, limit: Option<Duration>) {
        // The device may be waiting for other processes.
        self.abandon_group();
        let drain = |context: &mut Self| match limit {
            None => context.drain(),
            Some(_) => context.flush_here().map(drop),
        };
        if !self.device.lost()
            && let Err(error) = drain(&mut self)
            && !matches!(error, Error::Group(_))
        {
            // The device keeps the failure; the calls below are legal on a lost device.
            self.report("destroy", &error, "");
        }
        self.recorder.end();
        if !self.timeline.drained(limit) {
            // The device may still be using everything, so all of it is leaked.
            self.timeline.give_up();
            std::mem::forget(self);
            return;
        }
        profile::abandon(&self.device);
        self.exchanged.clear();
        let mut resources = self.drain_graphs();
        resources.extend(self.retired.drain(..).map(|(_, resource)| resource));
        resources.extend(self.buffers.drain().map(|b| b.resource));
        for resource in resources {
            if let Some(resource) = Arc::into_inner(resource) {
                self.memory.destroy(resource);
            }
        }
        if let Some(upload) = self.upload.take() {
            self.memory.destroy(upload.into_parts().0);
        }
        // A result that JS still holds keeps the allocator alive, but not its idle blocks.
        self.memory.trim();
        self.readback.close();
        if let Some(factory) = self.factory.take() {
            self.pipelines.drain().for_each(drop);
            self.retired_pipelines.clear();
            factory.close();
        }
    }

    /// Reflects a shader without a device, for the table of built-in shaders.
    pub fn reflect(spirv: &[u32]) -> Result<spirv_check::Reflection> {
        Ok(spirv_check::reflect(spirv)?)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Buffer,
    Pipeline,
}

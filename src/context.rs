//! The device with everything that lives on it, and the one stream of work that JS calls feed.
//!
//! Every call that touches a buffer appends to the stream in call order: decode and validate, find
//! hazards, record. [`Context::flush`] submits what was recorded; the timeline's value says when it is
//! done. Flushing early or late changes no result, so batches are a matter of speed alone.

mod ahead;
mod buffers;
mod execute;
mod graph;
mod insight;
mod nan;
mod share;
mod transfer;

use std::collections::VecDeque;
use std::sync::Arc;

pub use execute::{List, Profile};
pub use graph::Graph;
pub use nan::Floats;
pub use transfer::Read;

use crate::buffer::Buffer;
use crate::decode::{Batch, DgcOp, PipelineShape, Tables};
use crate::device::{Device, Settings, flag};
use crate::error::{Error, Result};
use crate::hazard::{Stages, Tracker};
use crate::leave;
use crate::memory::{Memory, Recycler, Resource};
use crate::pipeline::{Factory, Options, Pipeline};
use crate::profile;
use crate::recorder::Recorder;
use crate::reflect;
use crate::ring::SLOTS;
use crate::staging::{Readback, Upload};
use crate::table::Table;
use crate::timeline::Timeline;
use crate::timing::{Phase, Timing};

/// Dispatches after which an open command buffer is submitted, so that the device starts on a long
/// batch while the rest of it is recorded.
const FLUSH_DISPATCHES: u32 = 1024;
/// The same on a software device, which would start on the cores that record the rest. Lavapipe of Mesa
/// 26.1.6 crashes where one command buffer holds 65,536 dispatches; 16,384 it runs.
const FLUSH_ON_CPU: u32 = 8192;

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
    /// Waits for a command slot or for staging space.
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
    /// Sequences as JS writes them; JS holds a reference of its own.
    pub commands: Arc<[std::cell::UnsafeCell<u8>]>,
    /// Tells one set-up from the next.
    pub id: u64,
}

// SAFETY: the bytes are written by JS and read by `dgcExecute`, both on the calling thread.
unsafe impl Send for Dgc {}

impl Dgc {
    /// Bytes of one sequence: the push constants, then three group counts.
    pub fn stride(&self) -> u32 {
        self.push_bytes + 12
    }
}

/// Fields are in drop order; [`Context::close`] empties them while the device still lives.
pub struct Context {
    pub buffers: Table<Buffer>,
    pub pipelines: Table<Pipeline>,
    pub graphs: Table<Graph>,
    factory: Option<Factory>,
    recycler: Recycler,
    /// Destroyed resources with the timeline value that frees them, in order of that value.
    retired: VecDeque<(u64, Arc<Resource>)>,
    retired_bytes: u64,
    /// Resources of destroyed buffers that the device has finished with and that the recycler has not
    /// got yet: it gets them while the device is waited for, or a few at a time as buffers are created.
    freed: VecDeque<Arc<Resource>>,
    /// Bytes of live buffers, as asked for.
    pub live_bytes: u64,
    /// Buffers that get their places with the next call that may use them, oldest first, and their bytes.
    unplaced: VecDeque<i32>,
    unplaced_bytes: u64,
    /// What they have until then.
    nowhere: Arc<Resource>,
    /// What was called and not yet handed over, and the way to the command buffers.
    pub recorder: Recorder,
    upload: Option<Upload>,
    pub readback: Arc<Readback>,
    ahead: ahead::Ahead,
    tracker: Tracker,
    /// Hazards inside the graph being recorded; its epochs never repeat.
    graph_tracker: Tracker,
    recording: Option<graph::Recording>,
    /// Queries of failed waits, kept until the context goes.
    abandoned: Vec<execute::Queries>,
    pub timeline: Arc<Timeline>,
    pub memory: Arc<Memory>,
    pub device: Arc<Device>,

    /// Last timeline value given to anything.
    last: u64,
    /// The last of them that a caller may wait for: those of reads made ahead mean nothing to anybody.
    told: u64,
    /// Last value handed over for submission.
    submitted: u64,
    /// Whether there are commands behind the last submission.
    open: bool,
    open_dispatches: u32,
    /// Bytes of uploads recorded since the last submission.
    open_uploads: u64,
    /// Whether the next submission waits on the last one's value (long reached, but for reads made
    /// ahead), as the memory dependency that lets the planner forget all before it.
    wait_first: bool,
    /// Value of the last work that may have touched every buffer.
    everything_use: u64,
    /// Whether host reads go straight to buffers, so that every submission ends visible to the host.
    direct_reads: bool,
    /// Whether there is a pipeline whose buffers are bound by descriptor sets.
    binds_sets: bool,
    /// Whether there has been memory that others see too: submissions then begin with a barrier.
    shares: bool,
    flush_dispatches: u32,
    /// Test switch: no buffer is mapped, so that a device without a graphics card takes a card's way.
    staged_only: bool,
    /// Test switch: records no barriers, so that the validation layer has something to say.
    no_barriers: bool,
    /// Ladder switch: uploads wait until they have landed.
    blocking_uploads: bool,

    batch: Batch,
    dgc_ops: Vec<DgcOp>,
    pub dgc: Option<Dgc>,
    next_dgc: u64,
    pub stats: Stats,
    pub timing: Timing,
    profile: Option<insight::ProfileState>,
    /// Buffers that are looked through for NaNs.
    watches: nan::Watches,
}

/// The handle tables as the decoder sees them.
struct View<'a> {
    buffers: &'a Table<Buffer>,
    pipelines: &'a Table<Pipeline>,
    max_groups: [u32; 3],
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
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

impl Context {
    pub fn new(settings: &Settings) -> Result<Self> {
        let device = Arc::new(Device::new(settings)?);
        // A test may start the clock high, to cross 2^32 in its lifetime.
        let start = number("HELIOS_TEST_TIMELINE_START").unwrap_or(0);
        let timeline = Arc::new(Timeline::new(Arc::clone(&device), start)?);
        let memory = Arc::new(Memory::new(Arc::clone(&device), !settings.validation)?);
        let slots = number("HELIOS_RING_SLOTS").map_or(SLOTS, |n| (n as usize).clamp(1, 64));
        // A software device computes on the cores that a thread would take. Validation messages are
        // errors of the call that they are about.
        let software = device.is_cpu();
        // Not under validation: the layer makes some of its state at first use, so that it is gone
        // before our handler runs.
        if software && !settings.validation {
            leave::at_exit(&device);
        }
        let threaded = match number("HELIOS_RECORD_THREAD") {
            Some(on) => on != 0,
            None => {
                !software && std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 2)
            }
        } && !settings.validation;
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
        Ok(Self {
            buffers: Table::default(),
            pipelines: Table::default(),
            graphs: Table::default(),
            factory: Some(Factory::new(Arc::clone(&device))?),
            // What lies idle is given back before anything fails, so the bound may be generous.
            recycler: Recycler::new(device.device_local_bytes() / 4),
            retired: VecDeque::new(),
            retired_bytes: 0,
            freed: VecDeque::new(),
            live_bytes: 0,
            unplaced: VecDeque::new(),
            unplaced_bytes: 0,
            nowhere: Arc::new(Resource::nowhere()),
            recorder: Recorder::new(&device, &timeline, memory.backing(), slots, threaded)?,
            upload: None,
            readback: Readback::new(Arc::clone(&memory)),
            ahead: ahead::Ahead::new(number("HELIOS_READ_AHEAD") != Some(0)),
            tracker: Tracker::new(),
            graph_tracker: Tracker::new(),
            recording: None,
            abandoned: Vec::new(),
            timeline,
            memory,
            device,
            last: start,
            told: start,
            submitted: start,
            open: false,
            open_dispatches: 0,
            open_uploads: 0,
            wait_first: false,
            everything_use: start,
            direct_reads,
            binds_sets: false,
            shares: false,
            flush_dispatches: number("HELIOS_FLUSH_DISPATCHES")
                .map_or(flush_dispatches, |n| n.clamp(1, u64::from(u32::MAX)) as u32),
            staged_only: flag("HELIOS_TEST_STAGED"),
            no_barriers: flag("HELIOS_TEST_NO_BARRIERS"),
            blocking_uploads: flag("HELIOS_BLOCKING_UPLOADS"),
            batch: Batch::default(),
            dgc_ops: Vec::new(),
            dgc: None,
            next_dgc: 1,
            stats: Stats::default(),
            timing: Timing::new(flag("HELIOS_HOST_TIMING")),
            profile: None,
            watches: nan::Watches::default(),
        })
    }

    /// The value that work recorded now will have been finished at.
    #[inline]
    fn pending_value(&self) -> u64 {
        self.last + 1
    }

    /// A timeline value of its own for a call that returns one before it is submitted.
    fn assign(&mut self) -> u64 {
        self.last += 1;
        self.told = self.last;
        self.last
    }

    /// Notes that a command follows, and makes ready for it. A failure has changed nothing.
    fn open(&mut self) -> Result<()> {
        if self.open {
            return Ok(());
        }
        let waited = self.recorder.ready()?;
        self.timing.shift(Phase::RingWait, waited);
        if !self.tracker.pending().is_empty() && self.timeline.seen() >= self.submitted {
            // The device has finished everything: the next submission waits on the value that says
            // so, which orders all of it at once, without a barrier.
            self.tracker.retire();
            self.wait_first = true;
        }
        self.open = true;
        if self.shares {
            // Others may have written since, of which the tracker knows nothing.
            let _ = self.tracker.barrier();
            self.stats.barriers += 1;
            let both = Stages::COMPUTE | Stages::TRANSFER;
            self.recorder.commands.barrier(both);
        }
        Ok(())
    }

    /// Hands over what was written so far if it is much, so that recording goes on beside the call.
    #[inline]
    fn hand_over_if_long(&mut self) -> Result<()> {
        let waited = self.recorder.hand_over_if_long()?;
        self.timing.shift(Phase::RingWait, waited);
        Ok(())
    }

    /// Records everything called so far in this call, unless a thread does so.
    pub fn settle(&mut self) {
        if !self.recorder.threaded() || profile::on() {
            // A failure is noted on the device.
            let _ = self.recorder.hand_over();
        }
    }

    /// Submits what was recorded, if anything was; the value that it is done at, or that of the last
    /// submission.
    pub fn flush(&mut self) -> Result<u64> {
        self.device.check_alive()?;
        if self.open || self.submitted < self.last {
            self.submit(None, false)?;
        }
        Ok(self.submitted)
    }

    /// [`Self::flush`] for a caller that is about to wait: it need not wait for the recorder's thread
    /// to wake up.
    fn flush_here(&mut self) -> Result<u64> {
        self.device.check_alive()?;
        if self.open || self.submitted < self.last {
            self.submit(None, true)?;
        }
        self.recorder.help();
        Ok(self.submitted)
    }

    /// Submits what was recorded under a value of its own, even if nothing was.
    pub fn commit(&mut self) -> Result<u64> {
        self.device.check_alive()?;
        self.timing.batches += u64::from(self.timing.enabled);
        self.submit(None, false)?;
        let value = self.submitted;
        self.look_behind();
        Ok(value)
    }

    /// Submits the open commands and then `more`. `here`: see [`Recorder::record_here`].
    fn submit(&mut self, more: Option<ash::vk::CommandBuffer>, here: bool) -> Result<()> {
        if !self.watches.is_empty() {
            // The call's own work is in the stream by now.
            let checked = self.check_watched();
            self.whole(false, checked)?;
        }
        let start = self.timing.start(Phase::Submit);
        let value = self.assign();
        let wait = std::mem::take(&mut self.wait_first).then_some(self.submitted);
        let more = more.map_or(0, ash::vk::Handle::as_raw);
        let host_barrier = self.open && self.direct_reads;
        let commands = &mut self.recorder.commands;
        commands.submit(wait.unwrap_or(0), value, more, host_barrier);
        self.timeline.submitted(value);
        self.open = false;
        self.submitted = value;
        self.open_dispatches = 0;
        self.open_uploads = 0;
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

    /// Whether a caller may wait for `value`.
    pub fn check_value(&self, value: u64) -> Result<()> {
        self.device.check_alive()?;
        if value > self.told {
            return Err(Error::range(
                "value",
                format!(
                    "is a timeline value that nothing will signal (the last one given out is {})",
                    self.told
                ),
                value,
            ));
        }
        Ok(())
    }

    /// Makes sure that `value`, which was given out, will be reached without any further call: submits it
    /// if need be.
    pub fn prepare_wait(&mut self, value: u64) -> Result<()> {
        self.device.check_alive()?;
        if value > self.submitted {
            self.flush_here()?;
        } else if value > self.timeline.seen() {
            self.recorder.help();
        }
        if value > self.timeline.seen() {
            // The device is busy, and the caller has time.
            self.reclaim(usize::MAX);
        }
        Ok(())
    }

    /// Highest completed value. Submits what was recorded, so that polling comes to an end.
    pub fn completed(&mut self) -> Result<u64> {
        self.flush()?;
        Ok(self.timeline.completed()?.min(self.told))
    }

    /// Waits for everything, with the lock held.
    fn drain(&mut self) -> Result<()> {
        let value = self.flush_here()?;
        self.wait(value)
    }

    /// Accounts a wait that was made without the lock.
    pub fn waited(&mut self, since: std::time::Instant) {
        self.timing.waited(since);
        self.reclaim(usize::MAX);
    }

    /// Mapped staging memory: how many blocks, and their bytes.
    pub fn staging(&self) -> (u64, u64) {
        let (count, bytes) = self.readback.blocks();
        match &self.upload {
            Some(upload) => (count + 1, bytes + upload.capacity()),
            None => (count, bytes),
        }
    }

    /// Live buffers that have memory of their own, and their bytes.
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
        }
    }

    pub fn buffer_slot(&self, argument: &str, handle: i32) -> Result<u32> {
        self.buffers
            .slot(handle)
            .ok_or_else(|| Error::handle(argument, "buffer", handle))
    }

    pub fn create_pipeline(
        &mut self,
        spirv: &[u32],
        bindings: u32,
        push_bytes: u32,
        options: &Options,
    ) -> Result<i32> {
        self.device.check_alive()?;
        let limits = &self.device.snapshot.limits;
        let most = self.device.max_bindings();
        if bindings > most {
            return Err(Error::range(
                "numBindings",
                format!("must be at most {most}"),
                bindings,
            ));
        }
        if push_bytes > limits.max_push_constants_size || !push_bytes.is_multiple_of(4) {
            return Err(Error::range(
                "pushBytes",
                format!(
                    "must be a multiple of 4, at most {}",
                    limits.max_push_constants_size
                ),
                push_bytes,
            ));
        }
        let start = self.timing.start(Phase::CreatePipeline);
        let factory = self
            .factory
            .as_mut()
            .ok_or_else(|| Error::Internal("the device is closing".to_owned()))?;
        let pipeline = factory.create(spirv, bindings, push_bytes, options)?;
        let program = pipeline.program;
        let made = self.pipelines.insert(pipeline);
        if let Ok(handle) = made {
            self.binds_sets |= program.layout.binds_sets();
            if let Some(slot) = self.pipelines.slot(handle) {
                self.recorder.add_program(slot, program);
            }
            if profile::on() {
                profile::named(program.raw, handle, options.name.as_deref());
            }
        }
        self.timing.end(start);
        made.map_err(|pipeline| {
            if let Some(factory) = &self.factory {
                factory.destroy_pipeline(pipeline);
            }
            Error::OutOfMemory {
                what: "pipeline handle",
                bytes: 0,
                space: "handle",
                hint: ": 2^20 pipelines are live".to_owned(),
            }
        })
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
                    self.device.name(pipeline.program.raw, &name);
                    if profile::on() {
                        profile::named(pipeline.program.raw, handle, Some(&name));
                    }
                    pipeline.name = Some(name);
                }
            }
        }
        Ok(())
    }

    /// Waits for the queue (unless the device is lost), destroys everything and lets go of the device;
    /// it goes when JS lets go of the last result that still lies in its memory.
    pub fn close(mut self) {
        if !self.device.lost() && self.drain().is_err() {
            // The failure is noted on the device; what follows is legal on a lost one.
        }
        self.recorder.end();
        // SAFETY: no other call is in progress: `self` is owned. An error means a lost device.
        let _ = unsafe { self.device.raw.device_wait_idle() };
        profile::abandon(&self.device);
        let mut resources = self.drain_graphs();
        resources.extend(self.retired.drain(..).map(|(_, resource)| resource));
        resources.extend(self.freed.drain(..));
        resources.extend(self.buffers.drain().map(|b| b.resource));
        for resource in resources {
            if let Some(resource) = Arc::into_inner(resource) {
                self.memory.destroy(resource);
            }
        }
        self.recycler.clear(&self.memory);
        if let Some(upload) = self.upload.take() {
            upload.release(&self.memory);
        }
        self.ahead = ahead::Ahead::new(false);
        // A result that JS still holds keeps the memory's books, not what lies idle.
        self.memory.trim();
        self.readback.close();
        if let Some(factory) = self.factory.take() {
            for pipeline in self.pipelines.drain() {
                factory.destroy_pipeline(pipeline);
            }
            factory.close();
        }
    }

    /// Reflection without a device, for the table of built-in shaders.
    pub fn reflect(spirv: &[u32]) -> Result<reflect::Reflection> {
        Ok(reflect::reflect(spirv)?)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Buffer,
    Pipeline,
}

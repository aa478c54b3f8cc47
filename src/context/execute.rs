//! Dispatches: one, a packed list, the `dgc*` family, and the timed forms.

use std::sync::Arc;

use ash::vk::{self, Handle};

use super::Context;
use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::memory::buffer::{GRAPH, STREAM};
use crate::memory::bulk::Source;
use crate::plan::decode::{self, Batch, BindingRange, Tables};
use crate::plan::hazard::{Access, Stage, Stages};
use crate::record::commands::{self, BINDING_WORDS};
use crate::record::encoder::{Bindings, MAX_PUSH};
use crate::timing::Phase;

/// Largest number of dispatches in a command buffer that must hold a whole call: a timed list or a graph. Lavapipe of
/// Mesa 26.1.6 crashes at 65,536.
const MAX_DISPATCHES: u32 = 16_384;

/// GPU times of a profiled list.
pub struct Profile {
    pub timeline: u64,
    pub batch_us: f64,
    pub dispatch_us: Vec<f64>,
}

/// A query pool that is destroyed on every exit path.
pub(super) struct Queries {
    device: Arc<Device>,
    pub pool: vk::QueryPool,
    count: u32,
}

impl Queries {
    pub fn new(device: &Arc<Device>, count: u32) -> Result<Self> {
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(count);
        // SAFETY: the device is live and the description valid.
        let pool = unsafe { device.raw.create_query_pool(&info, None) }.map_err(error::create(
            "vkCreateQueryPool",
            "query pool",
            0,
        ))?;
        Ok(Self {
            device: Arc::clone(device),
            pool,
            count,
        })
    }

    /// The ticks of all queries, whose commands must have finished.
    pub fn ticks(&self) -> Result<Vec<u64>> {
        let mut ticks = vec![0u64; self.count as usize];
        // SAFETY: the pool is live and its queries were written.
        unsafe {
            self.device.raw.get_query_pool_results(
                self.pool,
                0,
                &mut ticks,
                vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT,
            )
        }
        .map_err(|e| {
            self.device
                .observe(error::vulkan("vkGetQueryPoolResults")(e))
        })?;
        Ok(ticks)
    }
}

impl Drop for Queries {
    fn drop(&mut self) {
        // SAFETY: the queries' commands were waited for, or never submitted.
        unsafe { self.device.raw.destroy_query_pool(self.pool, None) };
    }
}

/// One dispatch as a caller gives it, by handles.
pub struct Single<'a> {
    pub pipeline: i32,
    pub buffers: &'a [i32],
    /// The range of each buffer to bind; empty to bind whole buffers.
    pub ranges: Vec<BindingRange>,
    pub groups: [u32; 3],
    pub push: &'a Push,
}

/// Push constants of one dispatch, copied out of JavaScript's memory.
pub struct Push {
    few: [u8; MAX_PUSH],
    /// All of them, if they do not fit.
    many: Vec<u8>,
    /// Bytes given; no pipeline takes more than 64 KiB.
    len: usize,
}

impl Push {
    pub fn new(source: Source<'_>) -> Self {
        let mut push = Self {
            few: [0; MAX_PUSH],
            many: Vec::new(),
            len: source.len(),
        };
        if source.len() > MAX_PUSH {
            push.many.resize(source.len().min(1 << 16), 0);
        }
        source.read(match push.many.is_empty() {
            true => &mut push.few,
            false => &mut push.many,
        });
        push
    }

    /// The first `bytes` bytes, which must exist.
    fn first(&self, bytes: usize) -> &[u8] {
        match self.many.is_empty() {
            true => &self.few[..bytes],
            false => &self.many[..bytes],
        }
    }
}

/// A packed list, in either form of the contract's section 5.
#[derive(Clone, Copy)]
pub enum List<'a> {
    Packed { bytes: &'a [u8], count: usize },
    Words(&'a [u8]),
}

impl<'a> List<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Packed { bytes, .. } | Self::Words(bytes) => bytes,
        }
    }
}

fn gone() -> Error {
    Error::Internal("a checked handle is gone".to_owned())
}

impl Context {
    /// Finds the hazards of one checked dispatch and adds it to the stream, or to the graph that this thread is
    /// recording. `ranges`: the bound part of each buffer; empty for whole buffers. Hazards are tracked by buffer,
    /// whatever part of it is bound.
    #[inline]
    pub(super) fn record(
        &mut self,
        pipeline: u32,
        slots: &[u32],
        ranges: &[BindingRange],
        groups: [u32; 3],
        push: &[u8],
    ) -> Result<()> {
        let in_graph = self.recording.is_some() && self.recording_here();
        let value = self.stream.pending_value();
        let number = pipeline;
        let pipeline = self.pipelines.at(pipeline).ok_or_else(gone)?;
        let everything = pipeline.everything;
        let addresses = pipeline.takes_addresses();
        let touches_everything = everything.read | everything.write;
        let (tracker, place) = match in_graph {
            true => (&mut self.graph_tracker, GRAPH),
            false => (&mut self.stream.tracker, STREAM),
        };
        let mut conflict = touches_everything && tracker.conflicts_everything(everything);
        // Everything is looked up before anything changes, so a command is added completely or not at all.
        let mut bindings: Bindings = [0; _];
        let (bindings, _) = bindings.split_at_mut(slots.len() * BINDING_WORDS);
        let words = bindings.chunks_exact_mut(BINDING_WORDS);
        for ((&slot, &access), words) in slots.iter().zip(&pipeline.access).zip(words) {
            let buffer = self.buffers.at(slot).ok_or_else(gone)?;
            conflict |= tracker.conflicts(&buffer.marks[place], access);
            let third = if addresses {
                buffer.address
            } else {
                buffer.range
            };
            words.copy_from_slice(&[buffer.raw.as_raw(), buffer.offset, third]);
        }
        commands::narrow(bindings, ranges, !addresses);
        let mut stages = Stages::NONE;
        if conflict {
            stages = tracker.barrier();
            if self.no_barriers {
                stages = Stages::NONE;
            }
        }
        for (&slot, &access) in slots.iter().zip(&pipeline.access) {
            if let Some(buffer) = self.buffers.at_mut(slot) {
                tracker.note(&mut buffer.marks[place], access, Stage::Compute);
                match &mut self.recording {
                    Some(recording) if in_graph => recording.uses(slot, &buffer.resource),
                    _ => buffer.last_use = value,
                }
            }
        }
        if touches_everything {
            tracker.note_everything(everything, Stage::Compute);
        }
        self.timing.dispatches += u64::from(self.timing.enabled);
        match &mut self.recording {
            Some(recording) if in_graph => {
                recording.dispatches += 1;
                recording.barriers += u64::from(conflict);
                let number = recording.program(pipeline);
                let commands = &mut recording.commands;
                commands.dispatch(stages, number, groups, bindings, push);
            }
            _ => {
                self.stream.open_dispatches += 1;
                self.stats.dispatches += 1;
                self.stats.barriers += u64::from(conflict);
                if touches_everything {
                    self.stream.everything_use = value;
                }
                let commands = &mut self.recorder.commands;
                commands.dispatch(stages, number, groups, bindings, push);
            }
        }
        self.written()
    }

    /// Checks one dispatch given by handles. Writes the slots to `slots`, and what to bind to `ranges`.
    fn check(
        &self,
        dispatch: &Single<'_>,
        slots: &mut [u32],
        ranges: &mut [BindingRange],
    ) -> Result<u32> {
        let &Single {
            pipeline,
            buffers,
            groups,
            push,
            ..
        } = dispatch;
        let slot = self
            .pipelines
            .slot(pipeline)
            .ok_or_else(|| Error::handle("pipeline", "pipeline", pipeline))?;
        let (bindings, push_bytes) = self
            .pipelines
            .at(slot)
            .map_or((0, 0), |p| (p.bindings as usize, p.push_bytes as usize));
        if buffers.len() != bindings {
            return Err(Error::range(
                "buffers",
                format!("must hold the pipeline's {bindings} buffers"),
                buffers.len(),
            ));
        }
        for (i, (&handle, slot)) in buffers.iter().zip(slots.iter_mut()).enumerate() {
            let known = self.buffers.slot(handle);
            *slot =
                known.ok_or_else(|| Error::handle(format!("buffers[{i}]"), "buffer", handle))?;
        }
        if self.oversized || !ranges.is_empty() {
            self.check_ranges(slot, buffers, slots, ranges)?;
        }
        let limits = self.device.snapshot.limits.max_compute_work_group_count;
        for axis in 0..3 {
            if groups[axis] > limits[axis] {
                return Err(Error::range(
                    ["gX", "gY", "gZ"][axis],
                    format!("must be at most {} on this device", limits[axis]),
                    groups[axis],
                ));
            }
        }
        if push.len < push_bytes {
            return Err(Error::range(
                "push",
                format!("must hold the pipeline's {push_bytes} bytes"),
                format!("{} bytes", push.len),
            ));
        }
        Ok(slot)
    }

    /// Checks what a dispatch binds of its buffers: `ranges`, or all of them.
    #[cold]
    fn check_ranges(
        &self,
        pipeline: u32,
        handles: &[i32],
        slots: &[u32],
        ranges: &mut [BindingRange],
    ) -> Result<()> {
        let view = self.view();
        let used = view.used_bindings(pipeline);
        for (i, (&handle, &slot)) in handles.iter().zip(slots).enumerate() {
            let asked = ranges.get(i).copied().unwrap_or_default();
            let bytes = view.buffer_bytes(slot);
            let bound = asked
                .resolve(bytes, view.binding_limits(), used >> i & 1 != 0)
                .map_err(|fault| Error::Binding {
                    argument: format!("buffers[{i}]"),
                    handle,
                    name: view.buffer_name(slot),
                    fault,
                })?;
            if let Some(range) = ranges.get_mut(i) {
                *range = bound;
            }
        }
        Ok(())
    }

    /// Adds one dispatch to the stream. Push constants beyond the pipeline's size are ignored.
    pub fn dispatch(&mut self, mut dispatch: Single<'_>) -> Result<()> {
        self.device.check_alive()?;
        let mut slots = [0; decode::MAX_BINDINGS];
        let count = dispatch.buffers.len().min(slots.len());
        let mut ranges = std::mem::take(&mut dispatch.ranges);
        let slot = self.check(&dispatch, &mut slots[..count], &mut ranges)?;
        let Single { groups, push, .. } = dispatch;
        let push_bytes = self.pipelines.at(slot).map_or(0, |p| p.push_bytes as usize);
        let start = self.timing.start(Phase::Record);
        self.ready(std::iter::once(slot))?;
        self.record(
            slot,
            &slots[..count],
            &ranges,
            groups,
            push.first(push_bytes),
        )?;
        self.timing.end(start);
        self.flush_if_long()
    }

    /// Prepares for one dispatch of each pipeline, in the stream or in the graph that this thread is recording. If it
    /// fails, nothing has changed.
    pub(super) fn ready(&mut self, pipelines: impl ExactSizeIterator<Item = u32>) -> Result<()> {
        let in_graph = self.recording_here();
        match &self.recording {
            Some(recording) if in_graph => {
                let total = recording.dispatches + pipelines.len() as u64;
                if self.device.is_cpu() && total > u64::from(MAX_DISPATCHES) {
                    return Err(Error::Batch(format!(
                        "a graph holds at most {MAX_DISPATCHES} dispatches on a CPU device, not {total}"
                    )));
                }
            }
            _ => self.open()?,
        }
        if !self.binds_sets || (self.recorder.threaded() && !in_graph) {
            return Ok(());
        }
        // There are few layouts; each is stored with its number of sets.
        let mut sets: Vec<(vk::DescriptorSetLayout, usize)> = Vec::new();
        for pipeline in pipelines {
            let layout = &self.pipelines.at(pipeline).ok_or_else(gone)?.program.layout;
            if !layout.binds_sets() {
                continue;
            }
            match sets.iter_mut().find(|(set, _)| *set == layout.set) {
                Some((_, count)) => *count += 1,
                None => sets.push((layout.set, 1)),
            }
        }
        for (layout, count) in sets {
            match &mut self.recording {
                Some(recording) if in_graph => recording.slot.descriptors.reserve(layout, count)?,
                _ => self.recorder.reserve(layout, count)?,
            }
        }
        Ok(())
    }

    /// Within a call: submits the open command buffer and continues in the next one, if it holds `most` dispatches.
    pub(super) fn next_if_long(&mut self, most: u32) -> Result<()> {
        if self.stream.open_dispatches < most || self.recording_here() {
            return Ok(());
        }
        let next = self.flush().and_then(|_| self.open());
        self.poison_if_partial(false, next)
    }

    fn flush_if_long(&mut self) -> Result<()> {
        if self.stream.open_dispatches >= self.flush_dispatches {
            self.flush()?;
        }
        Ok(())
    }

    /// Checks a whole list, then adds its dispatches to the stream. Returns how many there are.
    pub fn dispatch_list(&mut self, list: List<'_>) -> Result<usize> {
        self.device.check_alive()?;
        let mut batch = std::mem::take(&mut self.batch);
        let result = self
            .decode(list, &mut batch)
            .and_then(|()| self.record_batch(&batch, list.bytes(), None));
        let count = batch.dispatches.len();
        batch.clear();
        self.batch = batch;
        result.map(|()| count)
    }

    fn decode(&mut self, list: List<'_>, batch: &mut Batch) -> Result<()> {
        let start = self.timing.start(Phase::Decode);
        let view = self.view();
        match list {
            List::Packed { bytes, count } => decode::decode_packed(bytes, count, &view, batch),
            List::Words(bytes) => decode::decode_words(bytes, &view, batch),
        }?;
        self.timing.end(start);
        Ok(())
    }

    fn record_batch(
        &mut self,
        batch: &Batch,
        bytes: &[u8],
        timestamps: Option<vk::QueryPool>,
    ) -> Result<()> {
        let start = self.timing.start(Phase::Record);
        // The dispatches that fit the open command buffer.
        let most = match self.recording_here() || timestamps.is_some() {
            true => usize::MAX,
            false => self
                .flush_dispatches
                .saturating_sub(self.stream.open_dispatches) as usize,
        };
        let pipelines = batch.dispatches.iter().map(|dispatch| dispatch.pipeline);
        self.ready(pipelines.clone().take(most))?;
        for (i, dispatch) in batch.dispatches.iter().enumerate() {
            let recorded = self.record(
                dispatch.pipeline,
                batch.buffers_of(dispatch),
                batch.ranges_of(dispatch),
                dispatch.groups,
                dispatch.push(bytes),
            );
            self.poison_if_partial(i == 0, recorded)?;
            match timestamps {
                Some(pool) => {
                    self.recorder
                        .commands
                        .timestamp(pool.as_raw(), i as u32 + 1);
                    self.next_if_long(MAX_DISPATCHES)?;
                }
                None if self.stream.open_dispatches >= self.flush_dispatches => {
                    self.flush()?;
                    let rest = pipelines.clone().skip(i + 1);
                    if rest.len() > 0 {
                        let made = self.ready(rest.take(self.flush_dispatches as usize));
                        self.poison_if_partial(false, made)?;
                    }
                }
                None => {}
            }
        }
        self.timing.end(start);
        Ok(())
    }

    /// Makes a failure in the middle of a call final, like a lost device: half of the call's work is in the stream and
    /// cannot be undone. `untouched`: nothing of the call is in the stream yet.
    pub(super) fn poison_if_partial<T>(&self, untouched: bool, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if !untouched {
                self.device.fail(error);
            }
        })
    }

    pub(super) fn timestamps_supported(&self) -> Result<()> {
        if self.device.plan.timestamp_valid_bits == 0 {
            return Err(Error::Unsupported(format!(
                "the compute queue of {} has no timestamps",
                self.device.snapshot.name
            )));
        }
        if self.recording_here() {
            return Err(Error::Batch(
                "a graph is being recorded: nothing can be timed now".to_owned(),
            ));
        }
        Ok(())
    }

    /// Submits what was recorded with the queries and waits for it. Returns its timeline value, and the ticks if
    /// everything was `recorded`: a query whose command is missing would never become available.
    pub(super) fn finish_timing(
        &mut self,
        queries: Queries,
        recorded: Result<()>,
    ) -> Result<(u64, Vec<u64>)> {
        let ticks = recorded.and_then(|()| {
            let value = self.commit()?;
            self.wait(value)?;
            Ok((value, queries.ticks()?))
        });
        if ticks.is_err() {
            // Queued commands may still refer to the queries, or the device may still write to them.
            self.abandoned.push(queries);
        }
        ticks
    }

    /// Microseconds between two timestamps, whose upper bits may be invalid.
    fn microseconds(&self, from: u64, to: u64) -> f64 {
        let bits = self.device.plan.timestamp_valid_bits;
        let mask = if bits >= 64 {
            u64::MAX
        } else {
            (1 << bits) - 1
        };
        let ticks = to.wrapping_sub(from) & mask;
        ticks as f64 * f64::from(self.device.snapshot.limits.timestamp_period) / 1e3
    }

    /// Submits a whole list and waits for it. Returns GPU times for it and for each dispatch.
    pub fn profile_list(&mut self, list: List<'_>) -> Result<Profile> {
        self.device.check_alive()?;
        self.timestamps_supported()?;
        let mut batch = Batch::default();
        self.decode(list, &mut batch)?;
        let count = batch.dispatches.len();
        if count == 0 {
            return Ok(Profile {
                timeline: 0,
                batch_us: 0.0,
                dispatch_us: Vec::new(),
            });
        }
        // So that earlier work does not count as this list's time.
        self.flush()?;
        let queries = Queries::new(&self.device, count as u32 + 1)?;
        self.open()?;
        let commands = &mut self.recorder.commands;
        commands.reset_queries(queries.pool.as_raw(), queries.count);
        commands.timestamp(queries.pool.as_raw(), 0);
        let recorded = self.record_batch(&batch, list.bytes(), Some(queries.pool));
        let (timeline, ticks) = self.finish_timing(queries, recorded)?;
        Ok(Profile {
            timeline,
            batch_us: self.microseconds(ticks[0], ticks[count]),
            dispatch_us: ticks
                .windows(2)
                .map(|w| self.microseconds(w[0], w[1]))
                .collect(),
        })
    }

    /// Mean GPU time in microseconds of `iterations` runs of one dispatch, each ordered as if alone.
    pub fn gpu_time(
        &mut self,
        mut dispatch: Single<'_>,
        iterations: u32,
        warmup: u32,
    ) -> Result<f64> {
        self.device.check_alive()?;
        self.timestamps_supported()?;
        let mut slots = [0; decode::MAX_BINDINGS];
        let count = dispatch.buffers.len().min(slots.len());
        let mut ranges = std::mem::take(&mut dispatch.ranges);
        let slot = self.check(&dispatch, &mut slots[..count], &mut ranges)?;
        let Single { groups, push, .. } = dispatch;
        let push_bytes = self.pipelines.at(slot).map_or(0, |p| p.push_bytes as usize);
        let push = push.first(push_bytes);
        let queries = Queries::new(&self.device, 2)?;
        self.flush()?;
        self.ready(std::iter::once(slot))?;
        let pool = queries.pool.as_raw();
        self.recorder.commands.reset_queries(pool, queries.count);
        let mut recorded = Ok(());
        for run in 0..u64::from(warmup) + u64::from(iterations) {
            if run == u64::from(warmup) {
                self.recorder.commands.timestamp(pool, 0);
            }
            let one = self.record(slot, &slots[..count], &ranges, groups, push);
            recorded = self
                .poison_if_partial(run == 0, one)
                .and_then(|()| self.next_if_long(MAX_DISPATCHES));
            if recorded.is_err() {
                break;
            }
        }
        self.recorder.commands.timestamp(pool, 1);
        let (_, ticks) = self.finish_timing(queries, recorded)?;
        Ok(self.microseconds(ticks[0], ticks[1]) / f64::from(iterations.max(1)))
    }

    /// Notes that work which may touch every buffer was submitted under `value`.
    pub(super) fn touched_everything(&mut self, value: u64) {
        self.stream.everything_use = value;
        let both = Stages::COMPUTE | Stages::TRANSFER;
        self.stream
            .tracker
            .note_everything(Access::READ_WRITE, both);
    }
}

//! Dispatches: one, a packed list, the `dgc*` family, and the timed forms.

use std::sync::Arc;

use ash::vk::{self, Handle};

use super::{Context, Dgc};
use crate::commands::BINDING_WORDS;
use crate::decode::{self, Batch};
use crate::device::Device;
use crate::error::{self, Error, Result};
use crate::hazard::{Access, Stage, Stages};
use crate::record::Bindings;
use crate::timing::Phase;

/// Dispatches that one command buffer may hold where a call asks for all of them in one, timed or in a
/// graph. Lavapipe of Mesa 26.1.6 crashes at 65,536.
const MOST_DISPATCHES: u32 = 16_384;

/// GPU times of a profiled list.
pub struct Profile {
    pub timeline: u64,
    pub batch_us: f64,
    pub dispatch_us: Vec<f64>,
}

/// A query pool that is destroyed on every way out.
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

    /// Ticks of all queries; their commands must have finished.
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

/// A list in either form of the contract's section 5.
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
    /// Finds the hazards of one checked dispatch and adds it to the stream, or to the graph that this
    /// thread is recording.
    #[inline]
    pub(super) fn record(
        &mut self,
        pipeline: u32,
        slots: &[u32],
        groups: [u32; 3],
        push: &[u8],
    ) -> Result<()> {
        if self.recording.is_some() && self.recording_here() {
            return self.record_in_graph(pipeline, slots, groups, push);
        }
        let value = self.last + 1;
        let program = pipeline;
        let pipeline = self.pipelines.at(program).ok_or_else(gone)?;
        let everything = pipeline.everything;
        let touches_everything = everything.read | everything.write;
        let tracker = &mut self.tracker;
        let mut conflict = touches_everything && tracker.conflicts_everything(everything);
        for (&slot, &access) in slots.iter().zip(&pipeline.access) {
            let buffer = self.buffers.at(slot).ok_or_else(gone)?;
            conflict |= tracker.conflicts(&buffer.marks, access);
        }
        let mut stages = Stages::NONE;
        if conflict {
            stages = tracker.barrier();
            self.stats.barriers += 1;
            if self.no_barriers {
                stages = Stages::NONE;
            }
        }
        let commands = &mut self.recorder.commands;
        commands.dispatch(stages, program, groups, slots.len(), push.len());
        for (&slot, &access) in slots.iter().zip(&pipeline.access) {
            let buffer = self.buffers.at_mut(slot).ok_or_else(gone)?;
            buffer.last_use = value;
            if access.write {
                buffer.wrote = self.ahead.foresight.wrote(slot);
            }
            tracker.note(&mut buffer.marks, access, Stage::Compute);
            commands.binding(buffer.raw.as_raw(), buffer.offset, buffer.range);
        }
        commands.push(push);
        if touches_everything {
            tracker.note_everything(everything, Stage::Compute);
            self.everything_use = value;
            if everything.write {
                self.ahead.foresight.wrote(0);
            }
        }
        self.open_dispatches += 1;
        self.stats.dispatches += 1;
        self.timing.dispatches += u64::from(self.timing.enabled);
        self.hand_over_if_long()
    }

    fn record_in_graph(
        &mut self,
        pipeline: u32,
        slots: &[u32],
        groups: [u32; 3],
        push: &[u8],
    ) -> Result<()> {
        self.memory.settle()?;
        let pipeline = self.pipelines.at(pipeline).ok_or_else(gone)?;
        let recording = self.recording.as_mut().ok_or_else(gone)?;
        let everything = pipeline.everything;
        let touches_everything = everything.read | everything.write;
        let tracker = &mut self.graph_tracker;
        let mut conflict = touches_everything && tracker.conflicts_everything(everything);
        for (&slot, &access) in slots.iter().zip(&pipeline.access) {
            let buffer = self.buffers.at(slot).ok_or_else(gone)?;
            conflict |= tracker.conflicts(&buffer.graph_marks, access);
        }
        let encoder = &mut recording.slot.encoder;
        if conflict {
            let stages = tracker.barrier();
            recording.barriers += 1;
            if !stages.is_empty() && !self.no_barriers {
                encoder.barrier(stages);
            }
        }
        let mut bindings: Bindings = [0; _];
        let (bindings, _) = bindings.split_at_mut(slots.len() * BINDING_WORDS);
        let words = bindings.chunks_exact_mut(BINDING_WORDS);
        for ((&slot, &access), words) in slots.iter().zip(&pipeline.access).zip(words) {
            let buffer = self.buffers.at_mut(slot).ok_or_else(gone)?;
            tracker.note(&mut buffer.graph_marks, access, Stage::Compute);
            words.copy_from_slice(&[buffer.raw.as_raw(), buffer.offset, buffer.range]);
            recording.uses(slot, &buffer.resource);
        }
        if touches_everything {
            tracker.note_everything(everything, Stage::Compute);
        }
        recording.dispatches += 1;
        self.timing.dispatches += u64::from(self.timing.enabled);
        let slot = &mut recording.slot;
        slot.encoder.dispatch(
            &mut slot.descriptors,
            &pipeline.program,
            bindings,
            push,
            groups,
        )
    }

    /// Checks one dispatch given by handles; slots go into `slots`.
    fn check(
        &self,
        pipeline: i32,
        buffers: &[i32],
        groups: [u32; 3],
        push: &[u8],
        slots: &mut [u32],
    ) -> Result<u32> {
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
        for (i, (&handle, slot)) in buffers.iter().zip(slots).enumerate() {
            let known = self.buffers.slot(handle);
            *slot =
                known.ok_or_else(|| Error::handle(format!("buffers[{i}]"), "buffer", handle))?;
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
        if push.len() < push_bytes {
            return Err(Error::range(
                "push",
                format!("must hold the pipeline's {push_bytes} bytes"),
                format!("{} bytes", push.len()),
            ));
        }
        Ok(slot)
    }

    /// Adds one dispatch to the stream. Push constants beyond the pipeline's are ignored.
    pub fn dispatch(
        &mut self,
        pipeline: i32,
        buffers: &[i32],
        groups: [u32; 3],
        push: &[u8],
    ) -> Result<()> {
        self.device.check_alive()?;
        let mut slots = [0; decode::MAX_BINDINGS];
        let count = buffers.len().min(slots.len());
        let slot = self.check(pipeline, buffers, groups, push, &mut slots[..count])?;
        let push_bytes = self.pipelines.at(slot).map_or(0, |p| p.push_bytes as usize);
        let start = self.timing.start(Phase::Record);
        self.ready(std::iter::once(slot))?;
        self.record(slot, &slots[..count], groups, &push[..push_bytes])?;
        self.timing.end(start);
        self.flush_if_long()
    }

    /// Makes ready for a dispatch of each of the pipelines, in the stream or in the graph that this
    /// thread is recording. A failure has changed nothing.
    pub(super) fn ready(&mut self, pipelines: impl ExactSizeIterator<Item = u32>) -> Result<()> {
        let in_graph = self.recording_here();
        match &self.recording {
            Some(recording) if in_graph => {
                let total = recording.dispatches + pipelines.len() as u64;
                if self.device.is_cpu() && total > u64::from(MOST_DISPATCHES) {
                    return Err(Error::Batch(format!(
                        "a graph holds at most {MOST_DISPATCHES} dispatches on a CPU device, not {total}"
                    )));
                }
            }
            _ => self.open()?,
        }
        if !self.binds_sets || (self.recorder.threaded() && !in_graph) {
            return Ok(());
        }
        // Few layouts, each with the number of its sets.
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

    /// In the middle of a call: submits the open command buffer and goes on in the next, if it holds so
    /// many dispatches.
    fn next_if_long(&mut self, most: u32) -> Result<()> {
        if self.open_dispatches < most || self.recording_here() {
            return Ok(());
        }
        let next = self.flush().and_then(|_| self.open());
        self.whole(false, next)
    }

    fn flush_if_long(&mut self) -> Result<()> {
        if self.open_dispatches >= self.flush_dispatches {
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
        // Those that go into the command buffer at hand.
        let most = match self.recording_here() || timestamps.is_some() {
            true => usize::MAX,
            false => self.flush_dispatches.saturating_sub(self.open_dispatches) as usize,
        };
        let pipelines = batch.dispatches.iter().map(|dispatch| dispatch.pipeline);
        self.ready(pipelines.clone().take(most))?;
        for (i, dispatch) in batch.dispatches.iter().enumerate() {
            let recorded = self.record(
                dispatch.pipeline,
                batch.buffers_of(dispatch),
                dispatch.groups,
                dispatch.push(bytes),
            );
            self.whole(i == 0, recorded)?;
            match timestamps {
                Some(pool) => {
                    self.recorder
                        .commands
                        .timestamp(pool.as_raw(), i as u32 + 1);
                    self.next_if_long(MOST_DISPATCHES)?;
                }
                None if self.open_dispatches >= self.flush_dispatches => {
                    self.flush()?;
                    let rest = pipelines.clone().skip(i + 1);
                    if rest.len() > 0 {
                        let made = self.ready(rest.take(self.flush_dispatches as usize));
                        self.whole(false, made)?;
                    }
                }
                None => {}
            }
        }
        self.timing.end(start);
        Ok(())
    }

    /// A failure in the middle of a call would leave half of its work in the stream, which nobody can
    /// take back: it is final, like a lost device. `whole`: nothing of the call is there, or all.
    pub(super) fn whole<T>(&self, whole: bool, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if !whole {
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

    /// Submits what was recorded with the queries and waits for it: its timeline value, and the ticks
    /// if all was `recorded`: a query without its command would never be there.
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
            // Commands on their way may name them still, or the device write them.
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

    /// A whole list, submitted and waited for, with GPU times for it and for each dispatch.
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
        // What was recorded before is not this list's time.
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

    /// Mean GPU time in microseconds of `iterations` runs of one dispatch, each as if alone.
    pub fn gpu_time(
        &mut self,
        pipeline: i32,
        buffers: &[i32],
        groups: [u32; 3],
        push: &[u8],
        iterations: u32,
        warmup: u32,
    ) -> Result<f64> {
        self.device.check_alive()?;
        self.timestamps_supported()?;
        let mut slots = [0; decode::MAX_BINDINGS];
        let count = buffers.len().min(slots.len());
        let slot = self.check(pipeline, buffers, groups, push, &mut slots[..count])?;
        let push_bytes = self.pipelines.at(slot).map_or(0, |p| p.push_bytes as usize);
        let push = &push[..push_bytes];
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
            let one = self.record(slot, &slots[..count], groups, push);
            recorded = self
                .whole(run == 0, one)
                .and_then(|()| self.next_if_long(MOST_DISPATCHES));
            if recorded.is_err() {
                break;
            }
        }
        self.recorder.commands.timestamp(pool, 1);
        let (_, ticks) = self.finish_timing(queries, recorded)?;
        Ok(self.microseconds(ticks[0], ticks[1]) / f64::from(iterations.max(1)))
    }

    /// Sets the pipeline of the `dgc*` calls: one without bindings that takes device addresses.
    pub fn dgc_setup(&mut self, pipeline: i32, push_bytes: u32, max: u32) -> Result<bool> {
        self.device.check_alive()?;
        if !self.device.plan.device_address {
            return Ok(false);
        }
        let slot = self
            .pipelines
            .slot(pipeline)
            .ok_or_else(|| Error::handle("pipeline", "pipeline", pipeline))?;
        let (bindings, needed) = self
            .pipelines
            .at(slot)
            .map_or((0, 0), |p| (p.bindings, p.push_bytes));
        if bindings != 0 {
            return Err(Error::range(
                "pipeline",
                "must have no bindings (it takes device addresses)",
                format!("{bindings} bindings"),
            ));
        }
        let rounded = push_bytes.next_multiple_of(4);
        if rounded != needed {
            return Err(Error::range(
                "pushBytes",
                format!("must be the pipeline's {needed}"),
                push_bytes,
            ));
        }
        let stride = rounded as usize + 12;
        if max == 0
            || (max as usize)
                .checked_mul(stride)
                .is_none_or(|b| b > 1 << 30)
        {
            return Err(Error::range(
                "maxSequences",
                "must be positive and need at most 1 GiB",
                max,
            ));
        }
        let id = self.next_dgc;
        self.next_dgc += 1;
        self.dgc = Some(Dgc {
            pipeline,
            push_bytes: rounded,
            max_sequences: max,
            commands: (0..max as usize * stride)
                .map(|_| std::cell::UnsafeCell::new(0))
                .collect(),
            id,
        });
        Ok(true)
    }

    fn dgc_pipeline(&self) -> Result<(u32, i32)> {
        let dgc = self
            .dgc
            .as_ref()
            .ok_or_else(|| Error::Batch("dgcSetup was not called".to_owned()))?;
        let slot = self
            .pipelines
            .slot(dgc.pipeline)
            .ok_or_else(|| Error::handle("pipeline", "pipeline", dgc.pipeline))?;
        Ok((slot, dgc.pipeline))
    }

    /// Runs the first `count` sequences that JS wrote into the command buffer.
    pub fn dgc_execute(&mut self, count: u32) -> Result<()> {
        self.device.check_alive()?;
        let (slot, _) = self.dgc_pipeline()?;
        let Some(dgc) = &self.dgc else {
            return Ok(());
        };
        if count > dgc.max_sequences {
            return Err(Error::range(
                "count",
                format!("must be at most the {} of dgcSetup", dgc.max_sequences),
                count,
            ));
        }
        let stride = dgc.stride() as usize;
        let push_bytes = dgc.push_bytes as usize;
        // What is checked is what is recorded: another worker may write there meanwhile.
        let mut bytes = vec![0u8; count as usize * stride];
        // SAFETY: the sequences are as long as that at least. Bytes that another worker writes during
        // the copy come out as anything, which is checked below.
        unsafe {
            std::ptr::copy_nonoverlapping(
                dgc.commands.as_ptr().cast::<u8>(),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
        let limits = self.device.snapshot.limits.max_compute_work_group_count;
        let groups = |sequence: &[u8]| {
            let word = |i: usize| {
                let at = push_bytes + i * 4;
                u32::from_le_bytes([
                    sequence[at],
                    sequence[at + 1],
                    sequence[at + 2],
                    sequence[at + 3],
                ])
            };
            [word(0), word(1), word(2)]
        };
        for (i, sequence) in bytes.chunks_exact(stride).enumerate() {
            let groups = groups(sequence);
            for axis in 0..3 {
                if groups[axis] > limits[axis] {
                    return Err(Error::range(
                        format!("sequence {i}'s {}", ["gX", "gY", "gZ"][axis]),
                        format!("must be at most {} on this device", limits[axis]),
                        groups[axis],
                    ));
                }
            }
        }
        self.ready(std::iter::repeat_n(slot, count as usize))?;
        for sequence in bytes.chunks_exact(stride) {
            self.record(slot, &[], groups(sequence), &sequence[..push_bytes])?;
            self.next_if_long(self.flush_dispatches)?;
        }
        Ok(())
    }

    /// Runs a list of 28-byte operations through the pipeline of `dgcSetup`.
    pub fn dgc_list(&mut self, bytes: &[u8], count: usize) -> Result<usize> {
        self.device.check_alive()?;
        let (slot, handle) = self.dgc_pipeline()?;
        let needed = self.pipelines.at(slot).map_or(0, |p| p.push_bytes);
        if needed != 32 {
            return Err(Error::range(
                "pipeline",
                format!(
                    "of dgcSetup (handle {handle}) must take the 32 bytes that batchExecuteAllDGC pushes"
                ),
                needed,
            ));
        }
        let mut ops = std::mem::take(&mut self.dgc_ops);
        let decoded = decode::decode_dgc(bytes, count, &self.view(), &mut ops);
        let result = decoded.map_err(Error::from).and_then(|()| {
            self.ready(std::iter::repeat_n(slot, ops.len()))?;
            for op in &ops {
                let mut push = [0u8; 32];
                for (at, slot) in [(0, op.a), (8, op.b), (16, op.c)] {
                    let handle = self.buffers.handle(slot).unwrap_or(-1);
                    let address = self.buffer_address(handle)?;
                    push[at..at + 8].copy_from_slice(&address.to_le_bytes());
                }
                push[24..28].copy_from_slice(&op.elements.to_le_bytes());
                self.record(slot, &[], op.groups, &push)?;
                // The addresses name these buffers, whatever else they may reach.
                let value = self.pending_value();
                let in_graph = self.recording_here();
                for slot in [op.a, op.b, op.c] {
                    let Some(buffer) = self.buffers.at_mut(slot) else {
                        continue;
                    };
                    match &mut self.recording {
                        Some(recording) if in_graph => recording.uses(slot, &buffer.resource),
                        _ => buffer.last_use = value,
                    }
                }
                self.next_if_long(self.flush_dispatches)?;
            }
            Ok(())
        });
        ops.clear();
        self.dgc_ops = ops;
        result.map(|()| count)
    }

    /// Notes that work which may touch every buffer was submitted under `value`.
    pub(super) fn touched_everything(&mut self, value: u64) {
        self.everything_use = value;
        self.ahead.foresight.wrote(0);
        let both = Stages::COMPUTE | Stages::TRANSFER;
        self.tracker.note_everything(Access::READ_WRITE, both);
    }
}

//! Graphs: command lists recorded once, with their barriers, and submitted many times.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;

use super::Context;
use crate::error::{Error, Result};
use crate::memory::Resource;
use crate::observe::profile;
use crate::pipeline::{Compiled, Kernel, Pipeline, Program};
use crate::plan::hazard::Stages;
use crate::record::commands::Commands;
use crate::record::ring::Slot;
use crate::timing::Phase;

/// A graph that one thread is recording; other threads' calls go to the stream as usual.
pub struct Recording {
    thread: ThreadId,
    pub slot: Slot,
    /// Commands not yet in the slot; they are encoded at the end.
    pub commands: Commands,
    /// The pipelines that its dispatches refer to by number.
    programs: Vec<Program>,
    /// The resources that the graph uses and keeps alive, by buffer slot.
    used: HashMap<u32, Arc<Resource>>,
    /// Fixed upload data.
    kept: Vec<Arc<Resource>>,
    pipelines: HashMap<Kernel, (u32, Arc<Compiled>)>,
    pub dispatches: u64,
    pub barriers: u64,
}

impl Recording {
    /// Whether the calling thread is recording it.
    #[inline]
    pub fn here(&self) -> bool {
        self.thread == std::thread::current().id()
    }

    pub fn uses(&mut self, slot: u32, resource: &Arc<Resource>) {
        let known = self.used.get(&slot);
        if known.is_some_and(|known| Arc::ptr_eq(known, resource)) {
            return;
        }
        // The slot was reused during the recording: the graph still needs the older buffer.
        if let Some(older) = self.used.insert(slot, Arc::clone(resource)) {
            self.kept.push(older);
        }
    }

    /// The number of a pipeline that the graph uses.
    pub fn program(&mut self, pipeline: &Pipeline) -> u32 {
        let next = self.programs.len() as u32;
        let entry = self.pipelines.entry(pipeline.program.kernel);
        let (number, _) = entry.or_insert_with(|| (next, Arc::clone(&pipeline.compiled)));
        if *number == next {
            self.programs.push(pipeline.program);
        }
        *number
    }

    /// Encodes the commands so far into the slot.
    pub fn encode(&mut self) -> Result<()> {
        for (command, words) in self.commands.iter() {
            self.slot.record(&self.programs, &command, words)?;
        }
        self.commands.clear();
        Ok(())
    }

    pub fn keep(&mut self, resource: Arc<Resource>) {
        self.kept.push(resource);
    }

    /// The recorded slot, and the resources that it keeps alive.
    fn into_parts(self) -> (Slot, Vec<Arc<Resource>>) {
        let mut resources = self.kept;
        resources.extend(self.used.into_values());
        (self.slot, resources)
    }
}

/// A recorded command list with everything that it uses.
pub struct Graph {
    slot: Slot,
    resources: Vec<Arc<Resource>>,
    /// Kept alive.
    _pipelines: Vec<Arc<Compiled>>,
    last_launch: u64,
    pub dispatches: u64,
    pub barriers: u64,
}

impl Graph {
    /// What the graph kept alive. The device must have finished with the graph.
    pub fn into_resources(self) -> Vec<Arc<Resource>> {
        self.resources
    }
}

impl Context {
    /// Whether the calling thread is recording a graph.
    #[inline]
    pub fn recording_here(&self) -> bool {
        self.recording.as_ref().is_some_and(Recording::here)
    }

    /// Where the calling thread's commands go: the graph it is recording, or the stream.
    pub(super) fn commands(&mut self) -> &mut Commands {
        match &mut self.recording {
            Some(recording) if recording.here() => &mut recording.commands,
            _ => &mut self.recorder.commands,
        }
    }

    /// Call this after each command: hands over the commands so far if there are many, so that the recorder encodes
    /// them while the call continues. A profile needs the work of each call recorded within that call, and validation
    /// needs its errors there, in graphs too.
    #[inline]
    pub(super) fn written(&mut self) -> Result<()> {
        match &mut self.recording {
            Some(recording) if recording.here() => {
                match profile::on() || self.device.config.validation {
                    true => recording.encode(),
                    false => Ok(()),
                }
            }
            _ => {
                let waited = self.recorder.hand_over_if_long()?;
                self.timing.shift(Phase::RingWait, waited);
                Ok(())
            }
        }
    }

    /// From now on this thread's calls are recorded, not executed, until [`Context::graph_end`].
    pub fn graph_begin(&mut self) -> Result<()> {
        self.device.check_alive()?;
        if self.recording.is_some() {
            return Err(Error::Batch("a graph is already being recorded".to_owned()));
        }
        let mut slot = Slot::new(&self.device, &self.blackbox)?;
        slot.encoder.begin(false)?;
        let mut commands = Commands::default();
        // Orders the graph after everything submitted before each of its launches.
        commands.barrier(Stages::COMPUTE | Stages::TRANSFER);
        self.graph_tracker.retire();
        self.recording = Some(Recording {
            thread: std::thread::current().id(),
            slot,
            commands,
            programs: Vec::new(),
            used: HashMap::new(),
            kept: Vec::new(),
            pipelines: HashMap::new(),
            dispatches: 0,
            barriers: 1,
        });
        Ok(())
    }

    pub fn graph_end(&mut self) -> Result<i32> {
        self.device.check_alive()?;
        let Some(mut recording) = self.recording.take_if(|recording| recording.here()) else {
            return Err(Error::Batch("no graph is being recorded".to_owned()));
        };
        if self.direct_reads {
            recording.commands.host_barrier();
        }
        let ended = recording
            .encode()
            .and_then(|()| recording.slot.encoder.end());
        let pipelines = std::mem::take(&mut recording.pipelines);
        let (dispatches, barriers) = (recording.dispatches, recording.barriers);
        let (slot, resources) = recording.into_parts();
        if let Err(error) = ended {
            self.release(resources, 0);
            return Err(error);
        }
        let graph = Graph {
            slot,
            resources,
            _pipelines: pipelines.into_values().map(|(_, p)| p).collect(),
            last_launch: 0,
            dispatches,
            barriers,
        };
        self.graphs.insert(graph).map_err(|graph| {
            self.release(graph.into_resources(), 0);
            Error::OutOfMemory {
                what: "graph handle",
                bytes: 0,
                space: "handle",
                hint: ": 2^20 graphs are live".to_owned(),
            }
        })
    }

    /// Drops an unfinished recording, for instance when its worker ends.
    pub fn graph_abandon(&mut self) {
        if let Some(recording) = self.recording.take_if(|recording| recording.here()) {
            let (_, resources) = recording.into_parts();
            self.release(resources, 0);
        }
    }

    /// Releases what a graph kept alive once `value` is reached: upload data and destroyed buffers are freed, live
    /// buffers stay.
    fn release(&mut self, resources: Vec<Arc<Resource>>, value: u64) {
        for resource in resources {
            if Arc::strong_count(&resource) == 1 {
                self.retire(resource, value);
            }
        }
    }

    /// Drops retired graphs that the device has finished with.
    pub(super) fn reclaim_graphs(&mut self) {
        let seen = self.timeline.seen();
        let done = self
            .retired_graphs
            .extract_if(.., |graph| graph.last_launch <= seen);
        for graph in done.collect::<Vec<_>>() {
            let value = graph.last_launch;
            self.release(graph.into_resources(), value);
        }
    }

    /// Everything that graphs, finished or not, keep alive. The device must have finished with them.
    pub(super) fn drain_graphs(&mut self) -> Vec<Arc<Resource>> {
        let recorded = self.recording.take().map(|r| r.into_parts().1);
        let retired = self.retired_graphs.drain(..);
        let graphs = (self.graphs.drain().chain(retired)).map(Graph::into_resources);
        recorded.into_iter().chain(graphs).flatten().collect()
    }

    /// Submits the graph after everything called so far. Returns its timeline value.
    pub fn graph_launch(&mut self, handle: i32) -> Result<u64> {
        self.device.check_alive()?;
        if self.recording_here() {
            return Err(Error::Batch(
                "a graph is being recorded: a graph cannot hold a launch".to_owned(),
            ));
        }
        let slot = self
            .graphs
            .slot(handle)
            .ok_or_else(|| Error::handle("graph", "graph", handle))?;
        let Some(graph) = self.graphs.at(slot) else {
            return Err(Error::handle("graph", "graph", handle));
        };
        let commands = graph.slot.encoder.raw;
        let (dispatches, barriers) = (graph.dispatches, graph.barriers);
        let measured = if profile::on() {
            self.measure_graph(commands)?
        } else {
            None
        };
        self.submit(Some(commands), false)?;
        let mut value = self.stream.submitted;
        self.touched_everything(value);
        if let Some(graph) = self.graphs.at_mut(slot) {
            graph.last_launch = value;
        }
        if let Some(measured) = measured {
            self.measured_graph(handle, measured)?;
        }
        if !self.watches.is_empty() {
            // Watched buffers that the graph wrote are checked for NaNs before its value counts as reached.
            self.watches.touched();
            let opened = self.open();
            self.poison_if_partial(false, opened)?;
            let flushed = self.flush();
            value = self.poison_if_partial(false, flushed)?;
        }
        self.stats.graph_launches += 1;
        self.stats.dispatches += dispatches;
        self.stats.barriers += barriers;
        Ok(value)
    }

    /// The handle is invalid now; commands and buffers are freed when the device has finished with them.
    pub fn graph_destroy(&mut self, handle: i32) -> Result<()> {
        self.device.check_alive()?;
        let value = self
            .graphs
            .get(handle)
            .ok_or_else(|| Error::handle("graph", "graph", handle))?
            .last_launch;
        if value > self.timeline.seen() {
            // Command buffers in flight cannot be freed. This is rare, so wait for them.
            self.wait(value)?;
        }
        if let Some(graph) = self.graphs.remove(handle) {
            self.release(graph.into_resources(), value);
        }
        Ok(())
    }
}

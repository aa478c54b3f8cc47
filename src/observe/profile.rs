//! Profiles: GPU time by pipeline from a timestamp after every command, host calls and submissions.
//!
//! An [`Encoder`](crate::record::encoder::Encoder) asks [`on`] at each command, which costs one load and one branch.
//! While a profile runs, it keeps a [`Probe`] with growing query pools for its command buffer. The submission takes the
//! probe. What the device has finished is added up at the next submission, so that nothing is lost and memory stays
//! bounded in a long run.
//!
//! The timestamps of a command buffer follow each other without gaps, so times add up: a command's time runs from the
//! end of the one before it to its own end, its barrier included.

mod clock;
mod probe;
mod trace;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ash::vk;
use parking_lot::Mutex;

pub use clock::{Calibrated, Clock, Source, now};
pub use probe::{Mark, Probe, Span, What};
use trace::Trace;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::staging::Lease;
use crate::pipeline::Kernel;

/// Timestamps of one query pool.
pub const POOL: u32 = 2048;
/// Nanoseconds between two calibrations of the clocks.
const CALIBRATE: u64 = 500_000_000;
/// Number of host calls buffered before they are written to the trace.
const CALLS: usize = 4096;

static ON: AtomicBool = AtomicBool::new(false);
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Whether a profile runs.
#[inline(always)]
pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Where the timestamps of finished work are.
enum Ticks {
    Probe(Probe),
    /// A graph's timestamps, copied into a block after this launch.
    Graph(Arc<Probe>, Lease),
}

struct Pending {
    /// Timeline value at which the timestamps are available, and that of the work itself.
    value: u64,
    work: u64,
    ticks: Ticks,
}

/// Time, count and work of one row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Row {
    pub count: u64,
    pub nanoseconds: f64,
    pub shortest: f64,
    pub longest: f64,
    /// Work that the caller announced, and the time of the dispatches it was announced for.
    pub bytes: f64,
    pub bytes_nanoseconds: f64,
    pub operations: f64,
    pub operations_nanoseconds: f64,
}

impl Row {
    fn add(&mut self, nanoseconds: f64, span: &Span) {
        self.shortest = if self.count == 0 {
            nanoseconds
        } else {
            self.shortest.min(nanoseconds)
        };
        self.longest = self.longest.max(nanoseconds);
        self.count += 1;
        self.nanoseconds += nanoseconds;
        if span.bytes > 0.0 {
            self.bytes += span.bytes;
            self.bytes_nanoseconds += nanoseconds;
        }
        if span.operations > 0.0 {
            self.operations += span.operations;
            self.operations_nanoseconds += nanoseconds;
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Calls {
    pub nanoseconds: u64,
    pub count: u64,
}

struct Call {
    name: &'static str,
    thread: u64,
    start: u64,
    end: u64,
}

/// What a profile has found.
pub struct Report {
    pub nanoseconds: u64,
    pub rows: Vec<(What, Row)>,
    pub names: HashMap<Kernel, (i32, Option<String>)>,
    pub calls: Vec<(&'static str, Calls)>,
    pub submits: u64,
    pub source: Source,
    pub deviation: u64,
    /// The trace's file and its number of events.
    pub trace: Option<(PathBuf, u64)>,
}

struct Session {
    device: Arc<Device>,
    calibrated: Option<Calibrated>,
    clock: Clock,
    /// Host time at the start.
    origin: u64,
    /// Query pools of finished probes, for reuse.
    spare: Vec<vk::QueryPool>,
    /// Probes of command buffers that are complete but not submitted.
    ready: HashMap<vk::CommandBuffer, Probe>,
    graphs: HashMap<vk::CommandBuffer, Arc<Probe>>,
    /// Launches whose timestamps must be copied before the graph runs again, with their values.
    launched: Vec<(Arc<Probe>, u64)>,
    pending: VecDeque<Pending>,
    rows: HashMap<What, Row>,
    names: HashMap<Kernel, (i32, Option<String>)>,
    /// Bytes and operations of the next dispatches.
    work: VecDeque<[f64; 2]>,
    calls: HashMap<&'static str, Calls>,
    recent: Vec<Call>,
    submits: u64,
    /// Submissions not yet connected to their work in the trace: thread and host time by value.
    sent: BTreeMap<u64, (u64, f64)>,
    trace: Option<Trace>,
    failure: Option<Error>,
}

impl Drop for Session {
    fn drop(&mut self) {
        for &pool in &self.spare {
            // SAFETY: only finished probes give their pools.
            unsafe { self.device.raw.destroy_query_pool(pool, None) };
        }
    }
}

impl Session {
    fn label(&self, what: What) -> String {
        match what {
            What::Pipeline(raw) => match self.names.get(&raw) {
                Some((_, Some(name))) => name.clone(),
                Some((handle, None)) => format!("pipeline {handle}"),
                None => "pipeline".to_owned(),
            },
            What::Graph(handle) => format!("graph {handle}"),
            What::Upload => "upload".to_owned(),
            What::Read => "read".to_owned(),
            What::Copy => "copy".to_owned(),
            What::Fill => "fill".to_owned(),
        }
    }

    /// Adds up what the device has finished.
    fn harvest(&mut self, seen: u64) {
        while self.pending.front().is_some_and(|p| p.value <= seen) {
            let Some(pending) = self.pending.pop_front() else {
                break;
            };
            if let Err(failure) = self.add(pending) {
                self.failure.get_or_insert(failure);
            }
        }
        let now = now();
        if self.clock.age(now) > CALIBRATE
            && let Some(moment) = self.calibrated.as_ref().and_then(Calibrated::read)
        {
            self.clock.calibrate(moment);
        }
    }

    fn add(&mut self, Pending { work, ticks, .. }: Pending) -> Result<()> {
        match ticks {
            Ticks::Probe(mut probe) => {
                self.spans(&probe.spans, &probe.ticks()?, work);
                self.spare.append(&mut probe.pools);
            }
            Ticks::Graph(probe, lease) => {
                let count = lease.len() / 8;
                // SAFETY: the block is mapped and aligned, and the device has written as many
                // timestamps there.
                let ticks =
                    unsafe { std::slice::from_raw_parts(lease.pointer().cast::<u64>(), count) };
                self.spans(&probe.spans, ticks, work);
            }
        }
        Ok(())
    }

    fn spans(&mut self, spans: &[Span], ticks: &[u64], work: u64) {
        let ticks: Vec<i128> = ticks.iter().map(|&t| self.clock.unwrap(t)).collect();
        let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) else {
            return;
        };
        let at = |session: &Self, ticks| session.clock.since(ticks, session.origin);
        if self.trace.is_some() {
            let (start, long) = (at(self, first), self.clock.nanoseconds(last - first));
            let args = format!("\"value\":{work},\"commands\":{}", spans.len());
            let sent = self.sent.remove(&work);
            if let Some(trace) = &mut self.trace {
                trace.device(true, &format!("value {work}"), start, long, &args);
                if let Some((thread, at)) = sent {
                    trace.flow(work, thread, at, start);
                }
            }
        }
        for (span, pair) in spans.iter().zip(ticks.windows(2)) {
            let nanoseconds = self.clock.nanoseconds(pair[1] - pair[0]);
            self.rows
                .entry(span.what)
                .or_default()
                .add(nanoseconds, span);
            if self.trace.is_none() {
                continue;
            }
            let (label, start) = (self.label(span.what), at(self, pair[0]));
            let mut args = String::new();
            if let What::Pipeline(_) = span.what {
                let [x, y, z] = span.groups;
                args = format!("\"groups\":\"{x}×{y}×{z}\"");
            }
            for (name, number) in [("bytes", span.bytes), ("operations", span.operations)] {
                if number > 0.0 {
                    let comma = if args.is_empty() { "" } else { "," };
                    args += &format!("{comma}\"{name}\":{number}");
                }
            }
            if let Some(trace) = &mut self.trace {
                trace.device(false, &label, start, nanoseconds, &args);
            }
        }
    }

    fn write_calls(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        if let Some(trace) = &mut self.trace {
            for call in recent {
                let start = call.start.saturating_sub(self.origin) as f64;
                trace.host(
                    call.thread,
                    call.name,
                    start,
                    (call.end - call.start) as f64,
                    "",
                );
            }
        }
    }
}

/// A small number for the calling thread.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static THREAD: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    THREAD.with(|t| *t)
}

/// Starts a profile. `names`: the existing pipelines; later ones are added through [`named`].
pub fn start(
    device: &Arc<Device>,
    calibrated: Option<Calibrated>,
    clock: Clock,
    names: HashMap<Kernel, (i32, Option<String>)>,
    trace: Option<&Path>,
) -> Result<()> {
    let mut session = SESSION.lock();
    if session.is_some() {
        return Err(Error::Batch(
            "a profile is already running: call profileStop() first".to_owned(),
        ));
    }
    let trace = trace
        .map(|path| {
            Trace::create(path, &device.snapshot.name).map_err(|e| {
                Error::range(
                    "options.trace",
                    format!("is a file that cannot be written ({e})"),
                    path.display(),
                )
            })
        })
        .transpose()?;
    *session = Some(Session {
        device: Arc::clone(device),
        calibrated,
        clock,
        origin: now(),
        spare: Vec::new(),
        ready: HashMap::new(),
        graphs: HashMap::new(),
        launched: Vec::new(),
        pending: VecDeque::new(),
        rows: HashMap::new(),
        names,
        work: VecDeque::new(),
        calls: HashMap::new(),
        recent: Vec::new(),
        submits: 0,
        sent: BTreeMap::new(),
        trace,
        failure: None,
    });
    ON.store(true, Ordering::Release);
    Ok(())
}

pub fn running() -> bool {
    SESSION.lock().is_some()
}

/// Ends the profile. The device must have finished everything.
pub fn stop() -> Result<Report> {
    ON.store(false, Ordering::Release);
    let Some(mut session) = SESSION.lock().take() else {
        return Err(Error::Batch(
            "no profile is running: call profileStart() first".to_owned(),
        ));
    };
    session.harvest(u64::MAX);
    session.write_calls();
    if let Some(failure) = session.failure.take() {
        return Err(failure);
    }
    let ended = now();
    let source = session.clock.source;
    let deviation = session.clock.deviation;
    let trace = session
        .trace
        .take()
        .map(|trace| {
            let path = trace.path.display().to_string();
            trace
                .finish(&format!(
                    "\"clock\":\"{}\",\"clockErrorNanoseconds\":{deviation},\"startNanoseconds\":{}",
                    source.name(),
                    session.origin
                ))
                .map_err(|e| {
                    let problem = format!("is a file that could not be written to its end ({e})");
                    Error::range("options.trace", problem, path)
                })
        })
        .transpose()?;
    let mut rows: Vec<_> = session.rows.drain().collect();
    rows.sort_by(|(_, a), (_, b)| b.nanoseconds.total_cmp(&a.nanoseconds));
    let mut calls: Vec<_> = session.calls.drain().collect();
    calls.sort_by_key(|(_, calls)| std::cmp::Reverse(calls.nanoseconds));
    Ok(Report {
        nanoseconds: ended - session.origin,
        rows,
        names: std::mem::take(&mut session.names),
        calls,
        submits: session.submits,
        source,
        deviation,
        trace,
    })
}

/// Drops the profile of a device that is being destroyed; its trace ends there.
pub fn abandon(device: &Arc<Device>) {
    let mut session = SESSION.lock();
    if session
        .as_ref()
        .is_some_and(|s| Arc::ptr_eq(&s.device, device))
    {
        ON.store(false, Ordering::Release);
        let session = session.take();
        if let Some(trace) = session.and_then(|mut s| s.trace.take()) {
            let _ = trace.finish("");
        }
    }
}

/// Notes a pipeline that was made or named.
pub fn named(pipeline: Kernel, handle: i32, name: Option<&str>) {
    if let Some(session) = SESSION.lock().as_mut() {
        session
            .names
            .insert(pipeline, (handle, name.map(str::to_owned)));
    }
}

/// Announces bytes and operations of the next dispatches, in order, as pairs.
pub fn work(pairs: impl Iterator<Item = [f64; 2]>) {
    if let Some(session) = SESSION.lock().as_mut() {
        session.work.clear();
        session.work.extend(pairs);
    }
}

/// A probe for a command buffer of the profiled device.
pub fn probe(device: &Arc<Device>) -> Option<Probe> {
    let session = SESSION.lock();
    session
        .as_ref()
        .filter(|s| Arc::ptr_eq(&s.device, device))
        .map(|_| Probe::new(device))
}

/// The span of a dispatch, with the work announced for it.
pub fn dispatch(pipeline: Kernel, groups: [u32; 3]) -> Span {
    let work = SESSION.lock().as_mut().and_then(|s| s.work.pop_front());
    let [bytes, operations] = work.unwrap_or_default();
    Span {
        what: What::Pipeline(pipeline),
        groups,
        bytes,
        operations,
    }
}

/// Takes the probe of a complete command buffer. The returned probe belongs to the command buffer for as long as that
/// may be submitted.
pub fn ended(commands: vk::CommandBuffer, probe: Probe, once: bool) -> Option<Arc<Probe>> {
    let mut session = SESSION.lock();
    let session = session
        .as_mut()
        .filter(|s| Arc::ptr_eq(&s.device, &probe.device));
    match session {
        Some(session) if once => {
            session.ready.insert(commands, probe);
            None
        }
        Some(session) => {
            let probe = Arc::new(probe);
            session.graphs.insert(commands, Arc::clone(&probe));
            Some(probe)
        }
        None => Some(Arc::new(probe)),
    }
}

/// The command buffer is freed; another may get its handle.
pub fn forget(commands: vk::CommandBuffer) {
    if on()
        && let Some(session) = SESSION.lock().as_mut()
    {
        session.graphs.remove(&commands);
    }
}

/// The timestamps that a graph writes, if it was recorded under this profile.
pub fn graph(commands: vk::CommandBuffer) -> Option<Arc<Probe>> {
    SESSION.lock().as_ref()?.graphs.get(&commands).cloned()
}

/// Notes that a graph with timestamps of its own was submitted under `work`.
pub fn launched(probe: Arc<Probe>, work: u64) {
    if let Some(session) = SESSION.lock().as_mut() {
        session.launched.push((probe, work));
    }
}

/// The launches whose timestamps must be copied now: all of them if there is no `next`, or if one of them is of `next`,
/// the graph about to be launched.
pub fn to_copy(next: Option<&Arc<Probe>>) -> Vec<(Arc<Probe>, u64)> {
    let mut session = SESSION.lock();
    let Some(session) = session.as_mut() else {
        return Vec::new();
    };
    let due = next.is_none_or(|next| session.launched.iter().any(|(p, _)| Arc::ptr_eq(p, next)));
    if due {
        std::mem::take(&mut session.launched)
    } else {
        Vec::new()
    }
}

/// Notes that the timestamps of a launch are in the block once `value` is reached.
pub fn copied(probe: Arc<Probe>, lease: Lease, work: u64, value: u64) {
    if let Some(session) = SESSION.lock().as_mut() {
        session.pending.push_back(Pending {
            value,
            work,
            ticks: Ticks::Graph(probe, lease),
        });
    }
}

/// A probe for the two timestamps around a graph that writes none itself.
pub fn around(device: &Arc<Device>) -> Option<(Probe, [Mark; 2])> {
    let mut probe = probe(device)?;
    let marks = [probe.next(None)?, probe.next(None)?];
    Some((probe, marks))
}

/// Notes the launch of a graph between two timestamps, which are available once `value` is reached.
pub fn launched_whole(mut probe: Probe, graph: i32, work: u64, value: u64) {
    probe.spans.push(Span::transfer(What::Graph(graph), 0));
    if let Some(session) = SESSION.lock().as_mut() {
        session.pending.push_back(Pending {
            value,
            work,
            ticks: Ticks::Probe(probe),
        });
    }
}

/// Notes a submission that took from `start` until now. `seen`: the value known to be reached.
pub fn submitted(
    device: &Device,
    commands: &[vk::CommandBuffer],
    value: u64,
    start: u64,
    seen: u64,
) {
    let end = now();
    let mut session = SESSION.lock();
    let Some(session) = session
        .as_mut()
        .filter(|s| s.device.raw.handle() == device.raw.handle())
    else {
        return;
    };
    session.submits += 1;
    for commands in commands {
        if let Some(probe) = session.ready.remove(commands) {
            session.pending.push_back(Pending {
                value,
                work: value,
                ticks: Ticks::Probe(probe),
            });
        }
    }
    let origin = session.origin;
    if let Some(trace) = &mut session.trace {
        let at = start.saturating_sub(origin) as f64;
        let args = format!("\"value\":{value},\"commandBuffers\":{}", commands.len());
        trace.host(thread(), "vkQueueSubmit", at, (end - start) as f64, &args);
        session.sent.insert(value, (thread(), at));
    }
    session.harvest(seen);
    // What is left of finished submissions had no work of its own.
    session.sent = session.sent.split_off(&(seen + 1));
}

/// The host's time, if a profile runs.
#[inline(always)]
pub fn begin() -> Option<u64> {
    on().then(now)
}

/// Notes a call of the addon that began at `start`.
#[cold]
pub fn called(name: &'static str, start: u64) {
    let end = now();
    let mut session = SESSION.lock();
    let Some(session) = session.as_mut() else {
        return;
    };
    let start = start.max(session.origin).min(end);
    let calls = session.calls.entry(name).or_default();
    calls.nanoseconds += end - start;
    calls.count += 1;
    if session.trace.is_some() {
        session.recent.push(Call {
            name,
            thread: thread(),
            start,
            end,
        });
        if session.recent.len() >= CALLS {
            session.write_calls();
        }
    }
}

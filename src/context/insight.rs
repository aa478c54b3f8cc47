//! What the device did and holds: profiles, memory, and failure reports.
//!
//! Results are JSON values: the JS edge turns them into objects, and reports are JSON files.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ash::vk;
use ash::vk::Handle;
use serde_json::{Value, json};

use super::Context;
use super::execute::Queries;
use crate::device::choice;
use crate::error::{Error, Result};
use crate::memory;
use crate::memory::buffer::Buffer;
use crate::observe::blackbox;
use crate::observe::pressure::{LISTENERS, Use};
use crate::observe::profile::{self, Calibrated, Clock, Mark, Probe, Report, Row, Source, What};
use crate::pipeline::Kernel;
use crate::record::commands::{self, BINDING_WORDS, Command};
use crate::timing::{PHASES, Total};

/// A driver's buffer and an offset in it.
type Location = [u64; 2];

/// Number of submissions used to calibrate the clocks if no extension does it.
const TRIES: usize = 5;

/// What the profile changed, and the counters it started from.
pub(super) struct ProfileState {
    timing: bool,
    totals: [Total; PHASES.len()],
    dispatches: u64,
    barriers: u64,
    launches: u64,
}

/// How a graph's launch is measured.
pub(super) enum Measured {
    /// By the timestamps that the graph writes itself.
    Own(Arc<Probe>),
    /// By one timestamp before it and one after it.
    Around(Probe, Mark),
}

impl Context {
    /// Starts a profile of everything called from now on. `trace` is written as it runs.
    pub fn profile_start(&mut self, trace: Option<&Path>) -> Result<()> {
        self.device.check_alive()?;
        self.timestamps_supported()?;
        if profile::running() {
            return Err(Error::Batch(
                "a profile is already running: call profileStop() first".to_owned(),
            ));
        }
        // Earlier calls are recorded first, so that they do not count.
        self.drain()?;
        let calibrated = Calibrated::new(&self.device);
        let moment = match calibrated
            .as_ref()
            .and_then(|c| Some((c.source(), c.read()?)))
        {
            Some(moment) => moment,
            None => (Source::Submission, self.calibrate()?),
        };
        let clock = Clock::new(
            self.device.plan.timestamp_valid_bits,
            f64::from(self.device.snapshot.limits.timestamp_period),
            moment.0,
            moment.1,
        );
        let names = self
            .pipelines
            .iter()
            .map(|(handle, p)| (p.program.kernel, (handle, p.name.clone())))
            .collect();
        profile::start(&self.device, calibrated, clock, names, trace)?;
        self.profile = Some(ProfileState {
            timing: self.timing.enabled,
            totals: self.timing.totals,
            dispatches: self.stats.dispatches,
            barriers: self.stats.barriers,
            launches: self.stats.graph_launches,
        });
        self.timing.enabled = true;
        Ok(())
    }

    /// Device ticks and host time of one moment, and the largest error: the tightest of several submissions that only
    /// write the time.
    fn calibrate(&mut self) -> Result<(u64, u64, u64)> {
        let mut best: Option<(u64, u64, u64)> = None;
        for _ in 0..TRIES {
            let queries = Queries::new(&self.device, 1)?;
            self.open()?;
            let (commands, pool) = (&mut self.recorder.commands, queries.pool.as_raw());
            commands.reset_queries(pool, 1);
            commands.timestamp(pool, 0);
            let before = profile::now();
            let (_, ticks) = self.finish_timing(queries, Ok(()))?;
            let after = profile::now();
            let ticks = ticks[0];
            let error = (after - before) / 2;
            if best.is_none_or(|(_, _, least)| error < least) {
                best = Some((ticks, before + error, error));
            }
        }
        best.ok_or_else(|| Error::Internal("no calibration".to_owned()))
    }

    /// Waits for everything and ends the profile. Returns what it found; times are in microseconds.
    pub fn profile_stop(&mut self) -> Result<Value> {
        if !profile::running() {
            return Err(Error::Batch(
                "no profile is running: call profileStart() first".to_owned(),
            ));
        }
        let drained = self
            .device
            .check_alive()
            .and_then(|()| self.copy_timestamps(profile::to_copy(None)))
            .and_then(|()| self.drain());
        let before = self.profile.take();
        if let Some(before) = &before {
            self.timing.enabled = before.timing;
        }
        if let Err(error) = drained {
            profile::abandon(&self.device);
            return Err(error);
        }
        let report = profile::stop()?;
        let before = before.ok_or_else(|| Error::Internal("a profile without start".to_owned()))?;
        let mut phases = serde_json::Map::new();
        for (phase, name) in PHASES {
            let (now, then) = (
                self.timing.totals[phase as usize],
                before.totals[phase as usize],
            );
            // If the timing was reset in between, count from the reset.
            let nanoseconds = now.nanoseconds.checked_sub(then.nanoseconds);
            let calls = now.calls.checked_sub(then.calls);
            phases.insert(
                name.to_owned(),
                json!({
                    "us": nanoseconds.unwrap_or(now.nanoseconds) as f64 / 1e3,
                    "calls": calls.unwrap_or(now.calls),
                }),
            );
        }
        let mut result = describe(&report);
        result["dispatches"] = json!(self.stats.dispatches - before.dispatches);
        result["barriers"] = json!(self.stats.barriers - before.barriers);
        result["graphLaunches"] = json!(self.stats.graph_launches - before.launches);
        result["phases"] = Value::Object(phases);
        Ok(result)
    }

    /// While a profile runs, prepares to measure the graph of the next submission.
    pub(super) fn measure_graph(
        &mut self,
        commands: vk::CommandBuffer,
    ) -> Result<Option<Measured>> {
        if let Some(probe) = profile::graph(commands) {
            self.copy_timestamps(profile::to_copy(Some(&probe)))?;
            return Ok(Some(Measured::Own(probe)));
        }
        let Some((probe, [before, after])) = profile::around(&self.device) else {
            return Ok(None);
        };
        self.open()?;
        self.write_mark(&before);
        Ok(Some(Measured::Around(probe, after)))
    }

    fn write_mark(&mut self, mark: &Mark) {
        let (commands, pool) = (&mut self.recorder.commands, mark.pool.as_raw());
        if mark.fresh {
            commands.reset_queries(pool, profile::POOL);
        }
        commands.timestamp(pool, mark.query);
    }

    /// Copies the timestamps of graph launches into blocks of their own, in order with other work.
    fn copy_timestamps(&mut self, launches: Vec<(Arc<Probe>, u64)>) -> Result<()> {
        for (probe, work) in launches {
            let lease = self.lease(probe.bytes().max(8))?;
            self.open()?;
            let value = self.stream.pending_value();
            let commands = &mut self.recorder.commands;
            let mut offset = lease.offset();
            for (pool, count) in probe.pools() {
                commands.copy_queries(pool.as_raw(), count, lease.raw().as_raw(), offset);
                offset += u64::from(count) * 8;
            }
            commands.host_barrier();
            profile::copied(probe, lease, work, value);
        }
        Ok(())
    }

    /// Measures the graph just submitted.
    pub(super) fn measured_graph(&mut self, handle: i32, measured: Measured) -> Result<()> {
        let work = self.stream.submitted;
        match measured {
            Measured::Own(probe) => profile::launched(probe, work),
            Measured::Around(probe, after) => {
                // At once: otherwise the time until a later submission would count as the graph's.
                let opened = self.open();
                self.poison_if_partial(false, opened)?;
                self.write_mark(&after);
                let value = self.flush()?;
                profile::launched_whole(probe, handle, work, value);
            }
        }
        Ok(())
    }

    /// Use of the largest device-local heap, as the driver reports it, or else this program's own.
    pub fn memory_use(&self) -> Use {
        let heaps = &self.device.snapshot.memory_heaps;
        let largest = heaps
            .iter()
            .enumerate()
            .filter(|(_, h)| h.device_local)
            .max_by_key(|(_, h)| h.size);
        let Some((index, heap)) = largest else {
            return Use { used: 0, budget: 0 };
        };
        let (used, budget) = match self.device.budget() {
            Some(budget) => budget[index],
            None => (self.memory.block_bytes(), heap.size),
        };
        Use { used, budget }
    }

    /// Checks memory use for the listeners.
    pub fn look_at_memory(&self) {
        LISTENERS.look(|| self.memory_use());
    }

    /// Memory use, in bytes.
    pub fn memory_stats(&self) -> Value {
        self.look_at_memory();
        let mut classes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut names: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut unnamed = (0u64, 0u64);
        for (_, buffer) in self.buffers.iter() {
            let class = classes.entry(memory::capacity(buffer.bytes)).or_default();
            let name = match &buffer.name {
                Some(name) => names.entry(name).or_default(),
                None => &mut unnamed,
            };
            for entry in [class, name] {
                entry.0 += 1;
                entry.1 += buffer.bytes;
            }
        }
        let mut by_name: Vec<_> = names.into_iter().collect();
        by_name.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
        let usage = self.memory.usage();
        let (recycled, recycled_bytes, ..) = self.recycled();
        let (blocks, staging) = self.staging();
        let ring = self.upload.as_ref();
        let budget = self.device.budget();
        let heaps: Vec<Value> = self
            .device
            .snapshot
            .memory_heaps
            .iter()
            .enumerate()
            .map(|(i, heap)| {
                let mut entry = json!({ "bytes": heap.size, "deviceLocal": heap.device_local });
                if let Some((used, budget)) = budget.as_ref().and_then(|b| b.get(i)) {
                    entry["usageBytes"] = json!(used);
                    entry["budgetBytes"] = json!(budget);
                }
                entry
            })
            .collect();
        let count = |(buffers, bytes): (u64, u64)| json!({ "buffers": buffers, "bytes": bytes });
        json!({
            "live": count((self.buffers.len() as u64, self.live_bytes)),
            "bySizeClass": classes.into_iter().map(|(capacity, (buffers, bytes))| json!({
                "capacity": capacity, "buffers": buffers, "bytes": bytes,
            })).collect::<Vec<_>>(),
            "byName": by_name.into_iter().map(|(name, (buffers, bytes))| json!({
                "name": name, "buffers": buffers, "bytes": bytes,
            })).collect::<Vec<_>>(),
            "unnamed": count(unnamed),
            "blocks": {
                "count": usage.blocks,
                "bytes": usage.block_bytes,
                "allocatedBytes": usage.allocated_bytes,
            },
            "recycled": count((recycled, recycled_bytes)),
            "retired": count((self.retired.len() as u64, self.retired_bytes)),
            "staging": {
                "blocks": blocks,
                "bytes": staging,
                "uploadRingBytes": ring.map_or(0, |u| u.capacity()),
                "uploadUsedBytes": ring.map_or(0, |u| u.ring.used()),
                "readbackLeasedBytes": self.readback.leased_bytes(),
                "readbackIdleBytes": self.readback.idle_bytes(),
            },
            "heaps": heaps,
            "peak": {
                "bufferBytes": self.stats.peak_buffer_bytes,
                "buffers": self.stats.peak_buffers,
                "blockBytes": self.stats.peak_block_bytes.max(usage.block_bytes),
            },
        })
    }

    /// Writes a failure report. Returns its path.
    pub fn report(&self, call: &str, error: &Error, stack: &str) -> Option<PathBuf> {
        let lost = matches!(error, Error::DeviceLost(_));
        let mut known = self.blackbox.lost.lock();
        if lost && known.is_some() {
            return known.clone();
        }
        let folder = self.device.config.report_dir.as_ref()?;
        if !blackbox::has_room() {
            return None;
        }
        let path = blackbox::write(folder, &self.account(call, error, stack))
            .ok()
            .flatten()?;
        if lost {
            *known = Some(path.clone());
        }
        Some(path)
    }

    fn account(&self, call: &str, error: &Error, stack: &str) -> Value {
        let device = &self.device;
        let s = &device.snapshot;
        let buffers: BTreeMap<Location, (i32, &Buffer)> = self
            .buffers
            .iter()
            .map(|(handle, b)| ([b.raw.as_raw(), b.resource.offset], (handle, b)))
            .collect();
        let pipelines: HashMap<Kernel, (i32, Option<&str>, u64)> = self
            .pipelines
            .iter()
            .map(|(handle, p)| {
                let known = (handle, p.name.as_deref(), p.compiled.born);
                (p.program.kernel, known)
            })
            .collect();
        let completed = match self.timeline.completed() {
            Ok(value) => value,
            Err(_) => self.timeline.seen(),
        };
        let mut batches = Vec::new();
        self.blackbox.each(|batch| {
            let named = |location: Location| {
                // A buffer created after the batch only took over its memory.
                let live = buffers
                    .range(..=location)
                    .next_back()
                    .map(|(&start, &(handle, b))| (start, handle, b))
                    .filter(|&([raw, start], _, b)| {
                        raw == location[0] && location[1] < start + b.bytes
                    })
                    .filter(|(.., b)| batch.value.is_none_or(|v| b.born <= v));
                match live {
                    Some((_, handle, b)) => {
                        json!({ "handle": handle, "name": b.name, "bytes": b.bytes })
                    }
                    None if device.staging.holds(vk::Buffer::from_raw(location[0])) => {
                        json!({ "name": "staging" })
                    }
                    None => json!({ "destroyed": true }),
                }
            };
            let mut dispatched = batch.log.pipelines().iter();
            let commands: Vec<Value> = commands::read(batch.log.words())
                .filter_map(|(command, _)| match command {
                    Command::Dispatch {
                        groups, bindings, ..
                    } => {
                        let pipeline = dispatched.next()?;
                        let (bindings, _) = bindings.as_chunks::<BINDING_WORDS>();
                        let buffers = bindings
                            .iter()
                            .map(|&[raw, offset, _]| named([raw, offset]));
                        // A pipeline created later only got the same driver handle.
                        let (handle, name, _) = pipelines
                            .get(pipeline)
                            .copied()
                            .filter(|&(.., born)| batch.value.is_none_or(|v| born <= v))
                            .unwrap_or((-1, None, 0));
                        Some(json!({
                            "dispatch": name,
                            "pipeline": handle,
                            "groups": groups,
                            "buffers": buffers.collect::<Vec<_>>(),
                        }))
                    }
                    Command::Copy {
                        source,
                        source_offset,
                        target,
                        target_offset,
                        bytes,
                    } => Some(json!({
                        "copy": bytes,
                        "source": named([source, source_offset]),
                        "target": named([target, target_offset]),
                    })),
                    Command::Fill {
                        target,
                        offset,
                        bytes,
                        ..
                    } => Some(json!({ "fill": bytes, "target": named([target, offset]) })),
                    // The log keeps no other commands.
                    _ => None,
                })
                .collect();
            let state = match batch.value {
                None => "not submitted",
                Some(value) if value <= completed => "finished",
                Some(_) => "not finished",
            };
            batches.push(json!({
                "value": batch.value,
                "state": state,
                "graph": batch.graph,
                "commands": commands,
                "leftOut": batch.log.left_out(),
            }));
        });
        let fault = device
            .fault
            .as_ref()
            .filter(|_| matches!(error, Error::DeviceLost(_)))
            .map(|calls| blackbox::fault(device, calls));
        json!({
            "error": {
                "code": error.code().as_str(),
                "call": call,
                "message": error.to_string(),
                "stack": stack.lines().skip(1).map(str::trim).collect::<Vec<_>>(),
            },
            "time": blackbox::clock(),
            "environment": blackbox::environment(),
            "device": {
                "name": s.name,
                "type": choice::type_name(s.device_type),
                "uuid": s.uuid_text(),
                "pci": s.pci,
                "driver": s.driver_name,
                "driverInfo": s.driver_info,
                "driverVersion": s.driver_version,
            },
            "timeline": {
                "completed": completed,
                "submitted": self.stream.submitted,
                "last": self.stream.last,
            },
            "deviceFault": fault,
            "batches": batches,
            "memory": self.memory_stats(),
        })
    }
}

fn describe(report: &Report) -> Value {
    let total: f64 = report.rows.iter().map(|(_, row)| row.nanoseconds).sum();
    let rows: Vec<Value> = report
        .rows
        .iter()
        .map(|(what, row)| describe_row(report, *what, row, total))
        .collect();
    let calls: serde_json::Map<String, Value> = report
        .calls
        .iter()
        .map(|(name, calls)| {
            let entry = json!({ "us": calls.nanoseconds as f64 / 1e3, "calls": calls.count });
            ((*name).to_owned(), entry)
        })
        .collect();
    let mut result = json!({
        "us": report.nanoseconds as f64 / 1e3,
        "gpuUs": total / 1e3,
        "submits": report.submits,
        "rows": rows,
        "calls": calls,
        "clock": report.source.name(),
        "clockErrorUs": report.deviation as f64 / 1e3,
    });
    if let Some((path, events)) = &report.trace {
        result["trace"] = json!(path.display().to_string());
        result["traceEvents"] = json!(events);
    }
    result
}

fn describe_row(report: &Report, what: What, row: &Row, total: f64) -> Value {
    let (kind, name, handle) = match what {
        What::Pipeline(raw) => {
            let (handle, name) = report
                .names
                .get(&raw)
                .map_or((None, None), |(handle, name)| (Some(*handle), name.clone()));
            let name = name.unwrap_or_else(|| format!("pipeline {}", handle.unwrap_or(-1)));
            ("pipeline", name, handle)
        }
        What::Graph(handle) => ("graph", format!("graph {handle}"), Some(handle)),
        What::Upload => ("transfer", "upload".to_owned(), None),
        What::Read => ("transfer", "read".to_owned(), None),
        What::Copy => ("transfer", "copy".to_owned(), None),
        What::Fill => ("transfer", "fill".to_owned(), None),
    };
    let mut entry = json!({
        "kind": kind,
        "name": name,
        "count": row.count,
        "us": row.nanoseconds / 1e3,
        "share": if total > 0.0 { row.nanoseconds / total } else { 0.0 },
        "shortestUs": row.shortest / 1e3,
        "longestUs": row.longest / 1e3,
    });
    if let Some(handle) = handle {
        entry["handle"] = json!(handle);
    }
    // Bytes per nanosecond are GB/s; operations per nanosecond are thousandths of a TFLOP/s.
    if row.bytes > 0.0 {
        entry["bytes"] = json!(row.bytes);
        if row.bytes_nanoseconds > 0.0 {
            entry["gbPerSecond"] = json!(row.bytes / row.bytes_nanoseconds);
        }
    }
    if row.operations > 0.0 {
        entry["operations"] = json!(row.operations);
        if row.operations_nanoseconds > 0.0 {
            entry["tflops"] = json!(row.operations / row.operations_nanoseconds / 1e3);
        }
    }
    entry
}

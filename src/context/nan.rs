//! NaN watches: after every submission that may have written a watched buffer, a kernel scans it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Context;
use crate::error::{Error, Result};
use crate::memory::bulk::Source;
use crate::pipeline::Options;
use crate::plan::decode::BindingRange;
use crate::shaders::SHADERS;

/// The element type of a watched buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floats {
    F32,
    F16,
    Bf16,
}

struct Watch {
    id: u64,
    buffer: i32,
    floats: Floats,
    /// Two words that the kernel writes for each part of the buffer: the number of NaNs, and the index in the part of
    /// the first.
    found: i32,
    /// The last value whose work was checked.
    checked: u64,
}

#[derive(Default)]
pub(super) struct Watches {
    list: Vec<Watch>,
    pipeline: Option<i32>,
    /// Set while no check may begin: during a check, and between the pieces of an upload.
    pub(super) busy: bool,
}

impl Watches {
    /// Every watched buffer may have been written since its last check.
    pub fn touched(&mut self) {
        for watch in &mut self.list {
            watch.checked = 0;
        }
    }

    /// The handle of the kernel that counts NaNs, once created.
    pub fn pipeline(&self) -> Option<i32> {
        self.pipeline
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

const SHADER: &str = "nan_check";
const THREADS: u32 = 256;

impl Context {
    /// From now on the buffer is checked after every submission that may have written it.
    pub fn watch_nan(&mut self, buffer: i32, floats: Floats) -> Result<u64> {
        self.device.check_alive()?;
        let slot = self.buffer_slot("buffer", buffer)?;
        if self.recording_here() {
            return Err(Error::Batch(
                "watchNan cannot be called while a graph is recorded".to_owned(),
            ));
        }
        if self.watches.pipeline.is_none() {
            let shader = SHADERS
                .iter()
                .find(|s| s.name == SHADER)
                .ok_or_else(|| Error::Internal(format!("no shader {SHADER}")))?;
            let options = Options {
                name: Some(SHADER.to_owned()),
                specialization: vec![self.nan_threads()],
                ..Options::default()
            };
            let pipeline = self.create_pipeline(shader.spirv, 2, 12, &options)?;
            self.pipelines.share(pipeline);
            self.watches.pipeline = Some(pipeline);
        }
        let bytes = self.buffers.at(slot).map_or(0, |buffer| buffer.bytes);
        let parts = bytes.div_ceil(self.nan_part()).max(1);
        let found = self.create_buffer(8 * parts, true, false)?;
        self.set_name(found, super::NameKind::Buffer, format!("{SHADER} result"))?;
        let empty = [[0u8; 4], [0xff; 4]].concat().repeat(parts as usize);
        // Earlier writes are not checked.
        let begun = self
            .upload(found, Source::from(&empty[..]), 0, false)
            .and_then(|_| self.flush());
        if let Err(error) = begun {
            let _ = self.destroy_buffer(found);
            return Err(error);
        }
        // Never the id of an earlier device's watch.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.watches.list.push(Watch {
            id,
            buffer,
            floats,
            found,
            checked: self.stream.submitted,
        });
        Ok(id)
    }

    /// Bytes of a buffer that one dispatch checks: whole words, at most one binding.
    fn nan_part(&self) -> u64 {
        let limits = self.device.binding_limits();
        let unit = limits.alignment.max(4);
        (limits.largest / unit * unit).max(unit)
    }

    fn nan_threads(&self) -> u32 {
        let limits = &self.device.snapshot.limits;
        THREADS.min(limits.max_compute_work_group_invocations)
    }

    /// Ends a watch; whether it existed.
    pub fn unwatch_nan(&mut self, id: u64) -> bool {
        let Some(at) = self.watches.list.iter().position(|w| w.id == id) else {
            return false;
        };
        let watch = self.watches.list.swap_remove(at);
        let _ = self.destroy_buffer(watch.found);
        true
    }

    /// Adds the check of what the open commands may have written.
    pub(super) fn check_watched(&mut self) -> Result<()> {
        if self.watches.busy || self.recording_here() {
            return Ok(());
        }
        self.watches.busy = true;
        let result = self.record_checks();
        self.watches.busy = false;
        result
    }

    fn record_checks(&mut self) -> Result<()> {
        let gone: Vec<u64> = self
            .watches
            .list
            .iter()
            .filter(|w| self.buffers.slot(w.buffer).is_none())
            .map(|w| w.id)
            .collect();
        for id in gone {
            self.unwatch_nan(id);
        }
        let value = self.stream.pending_value();
        let threads = self.nan_threads();
        let mut any = false;
        for i in 0..self.watches.list.len() {
            let Watch {
                buffer,
                floats,
                found,
                checked,
                ..
            } = self.watches.list[i];
            let (Some(slot), Some(result)) = (self.buffers.slot(buffer), self.buffers.slot(found))
            else {
                continue;
            };
            let Some((used, bytes)) = self
                .buffers
                .at(slot)
                .map(|b| (b.last_use.max(self.stream.everything_use), b.bytes))
            else {
                continue;
            };
            if used <= checked {
                continue;
            }
            let pipeline = self
                .watches
                .pipeline
                .and_then(|p| self.pipelines.slot(p))
                .ok_or_else(|| Error::Internal("no NaN check".to_owned()))?;
            let part = self.nan_part();
            let parts = bytes.div_ceil(part);
            self.ready(std::iter::repeat_n(pipeline, parts as usize))?;
            for number in 0..parts {
                let offset = number * part;
                let size = part.min(bytes - offset);
                // A part has less than 2^32 bytes.
                let words = (size / 4) as u32;
                let push = [words, floats as u32, number as u32].map(u32::to_le_bytes);
                let groups = [words.div_ceil(threads).clamp(1, 65_535), 1, 1];
                let ranges = [BindingRange { offset, size }, BindingRange::default()];
                let ranges = if parts > 1 { &ranges[..] } else { &[] };
                self.record(
                    pipeline,
                    &[slot, result],
                    ranges,
                    groups,
                    push.as_flattened(),
                )?;
            }
            self.watches.list[i].checked = value;
            any = true;
        }
        if any {
            self.recorder.commands.host_barrier();
        }
        Ok(())
    }

    /// Fails if a watched buffer was found to hold a NaN; that watch ends.
    pub fn found_nan(&mut self) -> Result<()> {
        if self.watches.is_empty() {
            return Ok(());
        }
        for i in 0..self.watches.list.len() {
            let Watch {
                id,
                buffer,
                floats,
                found,
                ..
            } = self.watches.list[i];
            let result = self.buffers.get(found);
            let Some((words, bytes)) = result
                .and_then(|b| Some((b.resource.mapped?, b.bytes)))
                .map(|(mapped, bytes)| (mapped.cast::<u32>().as_ptr(), bytes))
            else {
                continue;
            };
            let elements = self.nan_part() / if floats == Floats::F32 { 4 } else { 2 };
            let (mut count, mut first) = (0, None);
            for part in 0..bytes / 8 {
                // SAFETY: the buffer is mapped, live, and two words for each part long; the device may
                // write them meanwhile, hence volatile.
                let [number, index] = unsafe {
                    let words = words.add(2 * part as usize);
                    [words.read_volatile(), words.add(1).read_volatile()]
                };
                if number > 0 {
                    count += u64::from(number);
                    first.get_or_insert(part * elements + u64::from(index));
                }
            }
            let Some(first) = first else {
                continue;
            };
            let name = self.buffers.get(buffer).and_then(|b| b.name.clone());
            self.unwatch_nan(id);
            return Err(Error::Nan {
                buffer,
                name,
                count,
                first,
            });
        }
        Ok(())
    }
}

//! Buffers that are looked through for NaNs, on the device, after every submission that may have written
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Context;
use crate::error::{Error, Result};
use crate::pipeline::Options;
use crate::shaders::SHADERS;

/// How a buffer's bits are to be read.
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
    /// Two words that the kernel writes: how many NaNs, and the first one's index.
    found: i32,
    /// The last value whose work was looked at.
    checked: u64,
}

#[derive(Default)]
pub(super) struct Watches {
    list: Vec<Watch>,
    pipeline: Option<i32>,
    /// Kept from being looked at while it is itself at work.
    pub(super) busy: bool,
}

impl Watches {
    /// All watched buffers may have been written since they were looked at.
    pub fn touched(&mut self) {
        for watch in &mut self.list {
            watch.checked = 0;
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

const SHADER: &str = "nan_check";
const THREADS: u32 = 256;

impl Context {
    /// From now on the buffer is looked through after every submission that may have written it.
    pub fn watch_nan(&mut self, buffer: i32, floats: Floats) -> Result<u64> {
        self.device.check_alive()?;
        self.buffer_slot("buffer", buffer)?;
        if self.recording_here() {
            return Err(Error::Batch(
                "a graph is being recorded: a watch begins before or after".to_owned(),
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
            self.watches.pipeline = Some(self.create_pipeline(shader.spirv, 2, 8, &options)?);
        }
        let found = self.create_buffer(8, true, false)?;
        self.set_name(found, super::NameKind::Buffer, format!("{SHADER} result"))?;
        let mut empty = [0u8; 8];
        empty[4..].fill(0xff);
        // What was written before is not looked at.
        let begun = self
            .upload(found, &empty, 0, false)
            .and_then(|_| self.flush());
        if let Err(error) = begun {
            let _ = self.destroy_buffer(found);
            return Err(error);
        }
        // Never that of an earlier device's watch.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.watches.list.push(Watch {
            id,
            buffer,
            floats,
            found,
            checked: self.submitted,
        });
        Ok(id)
    }

    fn nan_threads(&self) -> u32 {
        let limits = &self.device.snapshot.limits;
        THREADS.min(limits.max_compute_work_group_invocations)
    }

    /// Ends a watch; whether it was still there.
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
        let value = self.pending_value();
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
                .map(|b| (b.last_use.max(self.everything_use), b.bytes.min(b.range)))
            else {
                continue;
            };
            if used <= checked {
                continue;
            }
            let words = u32::try_from(bytes / 4).unwrap_or(u32::MAX);
            let pipeline = self
                .watches
                .pipeline
                .and_then(|p| self.pipelines.slot(p))
                .ok_or_else(|| Error::Internal("no NaN check".to_owned()))?;
            let mut push = [0u8; 8];
            push[..4].copy_from_slice(&words.to_le_bytes());
            push[4..].copy_from_slice(&(floats as u32).to_le_bytes());
            let groups = [words.div_ceil(threads).clamp(1, 65_535), 1, 1];
            self.ready(std::iter::once(pipeline))?;
            self.record(pipeline, &[slot, result], groups, &push)?;
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
                id, buffer, found, ..
            } = self.watches.list[i];
            let resource = self
                .buffers
                .get(found)
                .map(|b| Arc::clone(&b.resource))
                .and_then(|r| r.mapped);
            let Some(words) = resource.map(|m| m.cast::<u32>().as_ptr()) else {
                continue;
            };
            // SAFETY: the buffer is mapped, live, and two words long; the device may write them
            // meanwhile, hence volatile.
            let (count, first) = unsafe { (words.read_volatile(), words.add(1).read_volatile()) };
            if count == 0 {
                continue;
            }
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

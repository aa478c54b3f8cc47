//! The `dgc*` family: one fixed pipeline that takes device addresses.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Context, Dgc};
use crate::error::{Error, Result};
use crate::plan::decode;

impl Context {
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
        if self.pipelines.at(slot).is_some_and(|p| p.takes_addresses()) {
            // What a kernel in PTX accesses through addresses is unknown.
            return Err(Error::range("pipeline", "must be of SPIR-V", pipeline));
        }
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
        // Never the id of an earlier device's set-up, whose memory JavaScript may still hold.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Relaxed) + 1;
        self.dgc = Some(Dgc {
            pipeline,
            push_bytes: rounded,
            max_sequences: max,
            commands: (0..max as usize * stride / 4)
                .map(|_| AtomicU32::new(0))
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
        // Copied first, so that what is checked is what is recorded: another worker may write to it meanwhile.
        let mut bytes = vec![0u8; count as usize * stride];
        for (word, from) in bytes.chunks_exact_mut(4).zip(dgc.commands.iter()) {
            word.copy_from_slice(&from.load(Relaxed).to_ne_bytes());
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
        for (i, sequence) in bytes.chunks_exact(stride).enumerate() {
            let recorded = self.record(slot, &[], &[], groups(sequence), &sequence[..push_bytes]);
            self.poison_if_partial(i == 0, recorded)?;
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
            // Before anything is recorded, because this call fails on a device without buffer addresses.
            let mut pushes = Vec::with_capacity(ops.len());
            for op in &ops {
                let mut push = [0u8; 32];
                for (at, slot) in [(0, op.a), (8, op.b), (16, op.c)] {
                    let handle = self.buffers.handle(slot).unwrap_or(-1);
                    let address = self.buffer_address(handle)?;
                    push[at..at + 8].copy_from_slice(&address.to_le_bytes());
                }
                push[24..28].copy_from_slice(&op.elements.to_le_bytes());
                pushes.push(push);
            }
            self.ready(std::iter::repeat_n(slot, ops.len()))?;
            for (i, (op, push)) in ops.iter().zip(&pushes).enumerate() {
                let recorded = self.record(slot, &[], &[], op.groups, push);
                self.poison_if_partial(i == 0, recorded)?;
                // The addresses belong to these buffers, but the shader may reach others through them.
                let value = self.stream.pending_value();
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
}

//! Counts the barriers that the recorded training run needs, by passing its lists through decoder and tracker.

use super::*;
use crate::decode::{Batch, Lookups, PipelineShape, Tables, decode_packed};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Largest number of barriers that a step may record.
const BARRIERS_A_STEP: usize = 4_400;

/// The recording's pipelines and live buffers, by its own ids, which serve as handle and slot here.
#[derive(Default)]
struct Recording {
    shapes: HashMap<i32, PipelineShape>,
    /// The bindings that each pipeline's shader writes. A pipeline without an entry may touch everything.
    writes: HashMap<u32, u32>,
    live: HashMap<i32, Marks>,
}

impl Recording {
    fn tables(&self) -> impl Tables {
        Lookups {
            pipeline: |handle| self.shapes.get(&handle).copied(),
            buffer: |handle| self.live.contains_key(&handle).then_some(handle as u32),
            max_groups: [i32::MAX as u32, 65_535, 65_535],
        }
    }
}

/// What a line of the recording does with a buffer.
type Touch = (i32, Access);

/// Barriers counted so far, and the timeline value of the last submission.
#[derive(Default)]
struct Replay {
    tracker: Tracker,
    barriers: usize,
    submitted: u64,
}

impl Replay {
    fn command(&mut self, live: &mut HashMap<i32, Marks>, touches: &[Touch], stage: Stage) {
        let conflicts = |(id, access): &Touch| self.tracker.conflicts(&live[id], *access);
        if touches.iter().any(conflicts) {
            assert!(!self.tracker.barrier().is_empty());
            self.barriers += 1;
        }
        for (id, access) in touches {
            let marks = live.get_mut(id).expect("a live buffer");
            self.tracker.note(marks, *access, stage);
        }
    }

    fn everything(&mut self) {
        if self.tracker.conflicts_everything(Access::READ_WRITE) {
            assert!(!self.tracker.barrier().is_empty());
            self.barriers += 1;
        }
        self.tracker
            .note_everything(Access::READ_WRITE, Stage::Compute);
    }
}

/// Barriers in each step of the recording, and dispatches in all of it.
fn barriers_by_step(trace: File) -> (Vec<usize>, usize) {
    let mut recording = Recording::default();
    let mut replay = Replay::default();
    let mut batch = Batch::default();
    let mut steps = Vec::new();
    let mut dispatches = 0;
    for line in BufReader::new(flate2::read::GzDecoder::new(trace)).lines() {
        let line: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let number = |key: &str| line[key].as_u64().expect("a number");
        let id = || i32::try_from(number("id")).expect("a handle");
        match line["t"].as_str().expect("a type") {
            "P" => {
                let slot = id() as u32;
                let shape = PipelineShape {
                    slot,
                    bindings: number("bindings") as u32,
                    push_bytes: number("push") as u32,
                };
                recording.shapes.insert(id(), shape);
                if let Some(writes) = line["writes"].as_u64() {
                    recording.writes.insert(slot, writes as u32);
                }
            }
            "B" => {
                recording.live.insert(id(), Marks::default());
            }
            "D" => {
                recording.live.remove(&id()).expect("a live buffer");
            }
            "U" | "F" => {
                replay.command(
                    &mut recording.live,
                    &[(id(), Access::WRITE)],
                    Stage::Transfer,
                );
            }
            "R" => replay.command(
                &mut recording.live,
                &[(id(), Access::READ)],
                Stage::Transfer,
            ),
            "X" => {
                let list = line["d"].as_str().expect("a list");
                let list = BASE64_STANDARD.decode(list).expect("base64");
                let count = number("c") as usize;
                decode_packed(&list, count, &recording.tables(), &mut batch).expect("a good list");
                dispatches += batch.dispatches.len();
                for dispatch in &batch.dispatches {
                    let Some(writes) = recording.writes.get(&dispatch.pipeline) else {
                        replay.everything();
                        continue;
                    };
                    // The recording does not say what is read: every binding may be.
                    let buffers = batch.buffers_of(dispatch).iter().enumerate();
                    let access = |binding| Access {
                        read: true,
                        write: (writes | dispatch.write_mask) >> binding & 1 == 1,
                    };
                    let touches: Vec<_> = buffers
                        .map(|(binding, slot)| (*slot as i32, access(binding)))
                        .collect();
                    replay.command(&mut recording.live, &touches, Stage::Compute);
                }
                replay.submitted = number("v");
            }
            // A wait for the last submission leaves nothing to order.
            "W" if number("v") >= replay.submitted => replay.tracker.retire(),
            "W" => {}
            "S" => steps.push(std::mem::take(&mut replay.barriers)),
            other => panic!("a line of type {other}"),
        }
    }
    (steps, dispatches)
}

#[test]
fn the_recorded_run_needs_few_barriers() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = shared.join("gpt300m-5steps.jsonl.gz");
    let Ok(trace) = File::open(&path) else {
        eprintln!("skipped: no recorded run at {}", path.display());
        return;
    };
    let (steps, dispatches) = barriers_by_step(trace);
    println!("{dispatches} dispatches, barriers by step: {steps:?}");
    assert_eq!(steps.len(), 5);
    assert!(dispatches > 5 * 7_000);
    assert!(
        steps.iter().all(|barriers| *barriers <= BARRIERS_A_STEP),
        "{steps:?}"
    );
}

//! Cost of the pure stages on the way of a packed list: decoding a record, planning a binding,
//! writing and reading the recorder's words.
//!
//! `cargo bench --bench stages`; with `-- --quick` it takes seconds. Times are for the whole list;
//! the throughput (elements per second) is of records or bindings.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use helios_vk::record::commands::{Command, Commands};
use plan::decode::{Batch, Lookups, PipelineShape, Tables, decode_packed, decode_words};
use plan::hazard::{Access, Marks, Stage, Stages, Tracker};
use std::hint::black_box;

/// Dispatches in a list; about what the recorded run sends in its largest ones.
const RECORDS: usize = 512;
const PIPELINES: i32 = 32;
const BUFFERS: i32 = 4096;
const BINDINGS: usize = 4;
const PUSH_BYTES: usize = 16;

/// A slot as wide as one of a real handle table, so that lookups cost the cache what they do there.
#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    marks: Marks,
    _rest: [u64; 5],
}

/// Handles are a slot (20 bits) and its generation.
struct Handles {
    pipelines: Vec<(u32, PipelineShape)>,
    buffers: Vec<Slot>,
}

const SLOT_BITS: u32 = 20;

fn handle(slot: i32, generation: i32) -> i32 {
    generation << SLOT_BITS | slot
}

fn parts(handle: i32) -> (usize, u32) {
    let handle = handle as u32;
    (
        (handle & ((1 << SLOT_BITS) - 1)) as usize,
        handle >> SLOT_BITS,
    )
}

impl Handles {
    fn tables(&self) -> impl Tables {
        Lookups {
            pipeline: |handle| {
                let (slot, generation) = parts(handle);
                let (live, shape) = self.pipelines.get(slot)?;
                (*live == generation).then_some(*shape)
            },
            buffer: |handle| {
                let (slot, generation) = parts(handle);
                (self.buffers.get(slot)?.generation == generation).then_some(slot as u32)
            },
            max_groups: [i32::MAX as u32, 65_535, 65_535],
        }
    }
}

fn handles() -> Handles {
    let shape = |slot| PipelineShape {
        slot,
        bindings: BINDINGS as u32,
        push_bytes: PUSH_BYTES as u32,
    };
    let slot = Slot {
        generation: 1,
        ..Slot::default()
    };
    Handles {
        pipelines: (0..PIPELINES as u32).map(|slot| (1, shape(slot))).collect(),
        buffers: vec![slot; BUFFERS as usize],
    }
}

/// Buffer slots of each record: two inputs and two outputs wandering through all buffers.
fn slots(record: usize) -> [i32; BINDINGS] {
    [3, 5, 7, 11].map(|stride| (record as i32 * stride + stride) % BUFFERS)
}

fn packed_list() -> Vec<u8> {
    let mut list = Vec::new();
    for record in 0..RECORDS {
        list.extend(handle(record as i32 % PIPELINES, 1).to_le_bytes());
        list.extend((BINDINGS as u16).to_le_bytes());
        list.extend(0u16.to_le_bytes());
        list.extend(64u32.to_le_bytes());
        list.extend(0b1000u32.to_le_bytes());
        list.extend(
            slots(record)
                .iter()
                .flat_map(|slot| handle(*slot, 1).to_le_bytes()),
        );
        list.extend([0x3f; PUSH_BYTES]);
    }
    list
}

fn word_list() -> Vec<u8> {
    let mut words = vec![RECORDS as u32, (2 + RECORDS * (8 + BINDINGS)) as u32];
    for record in 0..RECORDS {
        words.push(handle(record as i32 % PIPELINES, 1) as u32);
        words.push(BINDINGS as u32);
        words.extend(slots(record).map(|slot| handle(slot, 1) as u32));
        words.extend([
            64,
            1,
            1,
            (record * PUSH_BYTES) as u32,
            PUSH_BYTES as u32,
            0b1000,
        ]);
    }
    let mut list: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    list.extend(vec![0x3f; RECORDS * PUSH_BYTES]);
    list
}

fn decode(criterion: &mut Criterion) {
    let handles = handles();
    let tables = handles.tables();
    let mut batch = Batch::default();
    let mut group = criterion.benchmark_group("decode, 4 buffers and 16 push bytes");
    group.throughput(Throughput::Elements(RECORDS as u64));
    let list = packed_list();
    group.bench_function("packed", |bencher| {
        bencher.iter(|| decode_packed(black_box(&list), RECORDS, &tables, &mut batch));
    });
    // One byte off: lists come at any alignment.
    let shifted = [&[0], list.as_slice()].concat();
    group.bench_function("packed, unaligned", |bencher| {
        bencher.iter(|| decode_packed(black_box(&shifted[1..]), RECORDS, &tables, &mut batch));
    });
    let list = word_list();
    group.bench_function("words", |bencher| {
        bencher.iter(|| decode_words(black_box(&list), &tables, &mut batch));
    });
    group.finish();
}

/// What the recorder asks per dispatch; counts the barriers.
fn plan(batch: &Batch, writes: u32, tracker: &mut Tracker, buffers: &mut [Slot]) -> usize {
    let access = |binding: usize| Access {
        read: writes >> binding & 1 == 0,
        write: writes >> binding & 1 == 1,
    };
    let mut barriers = 0;
    for dispatch in &batch.dispatches {
        let slots = batch.buffers_of(dispatch);
        let mut conflict = false;
        for (binding, slot) in slots.iter().enumerate() {
            conflict |= tracker.conflicts(&buffers[*slot as usize].marks, access(binding));
        }
        if conflict {
            barriers += usize::from(!tracker.barrier().is_empty());
        }
        for (binding, slot) in slots.iter().enumerate() {
            let marks = &mut buffers[*slot as usize].marks;
            tracker.note(marks, access(binding), Stage::Compute);
        }
    }
    barriers
}

fn hazards(criterion: &mut Criterion) {
    let handles = handles();
    let mut batch = Batch::default();
    decode_packed(&packed_list(), RECORDS, &handles.tables(), &mut batch).expect("a good list");
    let mut group = criterion.benchmark_group("hazards, 4 bindings");
    group.throughput(Throughput::Elements((RECORDS * BINDINGS) as u64));
    for (name, writes) in [("reads only", 0), ("two of four written", 0b1100)] {
        let mut buffers = handles.buffers.clone();
        let mut tracker = Tracker::new();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                // Each list meets what lists before it have left behind, as in training.
                tracker.retire();
                plan(
                    black_box(&batch),
                    black_box(writes),
                    &mut tracker,
                    &mut buffers,
                )
            });
        });
    }
    group.finish();
}

/// The words that go to the recorder: written by the call, read by the recorder.
fn commands(criterion: &mut Criterion) {
    let handles = handles();
    let mut batch = Batch::default();
    let list = packed_list();
    decode_packed(&list, RECORDS, &handles.tables(), &mut batch).expect("a good list");
    let mut group = criterion.benchmark_group("commands, 4 buffers and 16 push bytes");
    group.throughput(Throughput::Elements(RECORDS as u64));
    let mut commands = Commands::default();
    let write = |commands: &mut Commands| {
        commands.clear();
        for dispatch in black_box(&batch.dispatches) {
            let push = dispatch.push(&list);
            let groups = dispatch.groups;
            let mut bindings = [0; 3 * BINDINGS];
            let words = bindings.chunks_exact_mut(3);
            for (slot, words) in batch.buffers_of(dispatch).iter().zip(words) {
                words.copy_from_slice(&[u64::from(*slot), 0, 4096]);
            }
            let barrier = Stages::COMPUTE;
            commands.dispatch(barrier, dispatch.pipeline, groups, &bindings, push);
        }
    };
    group.bench_function("write", |bencher| bencher.iter(|| write(&mut commands)));
    write(&mut commands);
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            let words = |(command, _)| match command {
                Command::Dispatch { bindings, push, .. } => bindings.len() + push.len(),
                _ => 0,
            };
            black_box(&commands).iter().map(words).sum::<usize>()
        });
    });
    group.finish();
}

criterion_group!(benches, decode, hazards, commands);
criterion_main!(benches);

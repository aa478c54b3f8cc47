//! Round trips, and a naive second decoder on mutated lists.

mod errors;

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed};

const LIMITS: [u32; 3] = [1 << 20, 60_000, 50_000];
const PUSH_SIZES: [u32; 5] = [0, 4, 16, 20, 128];
const BUFFERS: u32 = 64;

const BINDING: BindingLimits = BindingLimits {
    largest: 4096,
    alignment: 64,
};
/// A buffer larger than one binding, with a name; no list holds it by chance.
const LARGE: u32 = BUFFERS;
/// The shader of no pipeline here uses binding 1.
const USED: u32 = !0b10;

/// Slots from 0 on are as large as a binding, at most; slot 0 is empty.
fn bytes_of_slot(slot: u32) -> u64 {
    if slot == LARGE {
        return 3 * BINDING.largest;
    }
    u64::from(slot) * 65 % (BINDING.largest + 1)
}

/// Pipelines of every binding count and push size, 64 buffers; handles are not slots.
struct Handles;

/// Pipeline slots are `bindings * 5 + index of the push size`.
const PIPELINES: u32 = (MAX_BINDINGS as u32 + 1) * PUSH_SIZES.len() as u32;

fn pipeline_handle(slot: u32) -> i32 {
    (slot * 3 + 1000) as i32
}

fn buffer_handle(slot: u32) -> i32 {
    (slot * 7 + 5) as i32
}

fn shape(slot: u32) -> PipelineShape {
    let sizes = PUSH_SIZES.len() as u32;
    PipelineShape {
        slot,
        bindings: slot / sizes,
        push_bytes: PUSH_SIZES[(slot % sizes) as usize],
    }
}

impl Tables for Handles {
    fn pipeline(&self, handle: i32) -> Option<PipelineShape> {
        (0..PIPELINES)
            .find(|slot| pipeline_handle(*slot) == handle)
            .map(shape)
    }

    fn buffer(&self, handle: i32) -> Option<u32> {
        (0..=LARGE).find(|slot| buffer_handle(*slot) == handle)
    }

    fn max_groups(&self) -> [u32; 3] {
        LIMITS
    }

    fn oversized(&self) -> bool {
        true
    }

    fn binding_limits(&self) -> BindingLimits {
        BINDING
    }

    fn buffer_bytes(&self, slot: u32) -> u64 {
        bytes_of_slot(slot)
    }

    fn buffer_name(&self, slot: u32) -> Option<String> {
        (slot == LARGE).then(|| "weights".to_owned())
    }

    fn used_bindings(&self, _: u32) -> u32 {
        USED
    }
}

/// A dispatch by slots, as a caller means it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    pipeline: u32,
    buffers: Vec<u32>,
    /// As many as buffers, or none.
    ranges: Vec<(u64, u64)>,
    groups: [u32; 3],
    mask: u32,
    push: Vec<u8>,
}

impl Record {
    fn new(slot: u32) -> Self {
        let shape = shape(slot);
        Self {
            pipeline: slot,
            buffers: (0..shape.bindings).collect(),
            ranges: Vec::new(),
            groups: [3, 2, 1],
            mask: 0,
            push: (0..shape.push_bytes as u8).collect(),
        }
    }
}

/// The pipeline slot with this many bindings and push bytes.
fn slot_of(bindings: u32, push_bytes: u32) -> u32 {
    let size = PUSH_SIZES.iter().position(|size| *size == push_bytes);
    bindings * PUSH_SIZES.len() as u32 + size.expect("a listed push size") as u32
}

fn encode_packed(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let [x, y, z] = record.groups;
        let flags = (y as u16) << 1 | u16::from(z != 1);
        out.extend(pipeline_handle(record.pipeline).to_le_bytes());
        let ranged = u16::from(!record.ranges.is_empty()) << 15;
        out.extend((record.buffers.len() as u16 | ranged).to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(x.to_le_bytes());
        if z != 1 {
            out.extend(z.to_le_bytes());
        }
        out.extend(record.mask.to_le_bytes());
        for slot in &record.buffers {
            out.extend(buffer_handle(*slot).to_le_bytes());
        }
        for (offset, size) in &record.ranges {
            out.extend(offset.to_le_bytes());
            out.extend(size.to_le_bytes());
        }
        out.extend(&record.push);
    }
    out
}

fn encode_words(records: &[Record]) -> Vec<u8> {
    let mut area: Vec<u8> = Vec::new();
    let mut words = vec![records.len() as u32, 0];
    for record in records {
        words.push(pipeline_handle(record.pipeline) as u32);
        let ranged = u32::from(!record.ranges.is_empty()) << 31;
        words.push(record.buffers.len() as u32 | ranged);
        words.extend(
            record
                .buffers
                .iter()
                .map(|slot| buffer_handle(*slot) as u32),
        );
        for (offset, size) in &record.ranges {
            words.extend(
                [offset, size]
                    .map(|v| [*v as u32, (*v >> 32) as u32])
                    .as_flattened(),
            );
        }
        words.extend(record.groups);
        words.extend([area.len() as u32, record.push.len() as u32, record.mask]);
        area.extend(&record.push);
    }
    words[1] = words.len() as u32;
    let mut out = bytes_of(&words);
    out.extend(area);
    out
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// No ranges where they are those of whole buffers.
fn unless_whole(ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    if ranges.iter().all(|range| *range == (0, 0)) {
        return Vec::new();
    }
    ranges
}

/// A decoded batch by value, with the write mask as it was decoded.
fn records_of(batch: &Batch, list: &[u8]) -> Vec<Record> {
    let dispatches = batch.dispatches.iter();
    dispatches
        .map(|dispatch| Record {
            pipeline: dispatch.pipeline,
            buffers: batch.buffers_of(dispatch).to_vec(),
            ranges: unless_whole(
                (batch.ranges_of(dispatch).iter())
                    .map(|range| (range.offset, range.size))
                    .collect(),
            ),
            groups: dispatch.groups,
            mask: dispatch.write_mask,
            push: dispatch.push(list).to_vec(),
        })
        .collect()
}

/// What a caller's records mean once decoded: mask bits of buffers that are not there are dropped, and
/// a range to the end has its size.
fn meaning(records: &[Record]) -> Vec<Record> {
    let masked = records.iter().cloned().map(|mut record| {
        let bound = (1u64 << record.buffers.len()) - 1;
        record.mask &= bound as u32;
        for ((offset, size), slot) in record.ranges.iter_mut().zip(&record.buffers) {
            if *size == 0 {
                *size = bytes_of_slot(*slot) - *offset;
            }
            *size = BINDING.largest.min(*size);
        }
        record.ranges = unless_whole(record.ranges);
        record
    });
    masked.collect()
}

/// The contract's layout once more, field by field and slowly.
struct Naive<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Naive<'_> {
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let taken = self
            .bytes
            .get(self.at..self.at.checked_add(bytes)?)?
            .to_vec();
        self.at += bytes;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn i32(&mut self) -> Option<i32> {
        self.u32().map(|word| word as i32)
    }

    fn buffers(&mut self, n: u32, shape: PipelineShape) -> Option<Vec<u32>> {
        if n != shape.bindings {
            return None;
        }
        (0..n).map(|_| Handles.buffer(self.i32()?)).collect()
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// What is bound of the buffers, as the contract says it.
    fn ranges(&mut self, ranged: bool, buffers: &[u32]) -> Option<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        for (binding, slot) in buffers.iter().enumerate() {
            let (offset, size) = if ranged {
                (self.u64()?, self.u64()?)
            } else {
                (0, 0)
            };
            let bytes = bytes_of_slot(*slot);
            if offset % BINDING.alignment != 0 || (offset > 0 && offset >= bytes) {
                return None;
            }
            let end = offset.checked_add(size)?;
            let bound = if size == 0 { bytes - offset } else { size };
            if end > bytes || (bound > BINDING.largest && binding != 1) {
                return None;
            }
            ranges.push((offset, size));
        }
        Some(if ranged { ranges } else { Vec::new() })
    }

    fn packed(mut self, count: usize) -> Option<Vec<Record>> {
        let mut records = Vec::new();
        for _ in 0..count {
            let shape = Handles.pipeline(self.i32()?)?;
            let word = self.u16()?;
            let (n, ranged) = (word & 0x7fff, word >> 15 == 1);
            let flags = self.u16()?;
            let x = self.u32()?;
            let y = if flags >> 1 == 0 { 1 } else { flags >> 1 };
            let z = if flags & 1 == 1 { self.u32()? } else { 1 };
            let mask = self.u32()?;
            let buffers = self.buffers(n.into(), shape)?;
            records.push(Record {
                pipeline: shape.slot,
                ranges: self.ranges(ranged, &buffers)?,
                buffers,
                groups: [x, y.into(), z],
                mask,
                push: self.take(shape.push_bytes as usize)?,
            });
        }
        Self::finish(records, self.at == self.bytes.len())
    }

    fn words(mut self) -> Option<Vec<Record>> {
        let count = self.u32()?;
        let area = self.u32()? as usize * 4;
        let mut records = Vec::new();
        for _ in 0..count {
            let shape = Handles.pipeline(self.i32()?)?;
            let word = self.u32()?;
            let buffers = self.buffers(word & 0x7fff_ffff, shape)?;
            let ranges = self.ranges(word >> 31 == 1, &buffers)?;
            let groups = [self.u32()?, self.u32()?, self.u32()?];
            let start = self.u32()? as usize;
            let size = self.u32()?;
            let mask = self.u32()?;
            if size != shape.push_bytes {
                return None;
            }
            records.push(Record {
                pipeline: shape.slot,
                buffers,
                ranges,
                groups,
                mask,
                push: (self.bytes.get(area..)?)
                    .get(start..start + size as usize)?
                    .to_vec(),
            });
        }
        Self::finish(
            records,
            self.at == area && self.bytes.len().is_multiple_of(4),
        )
    }

    fn finish(records: Vec<Record>, consumed: bool) -> Option<Vec<Record>> {
        let within = |record: &Record| (0..3).all(|axis| record.groups[axis] <= LIMITS[axis]);
        (consumed && records.iter().all(within)).then(|| meaning(&records))
    }
}

/// What both decoders say of a list; they must agree, and a refusal must leave the batch empty.
fn agreed(
    list: &[u8],
    result: Result<(), DecodeError>,
    batch: &Batch,
    naive: Option<Vec<Record>>,
) -> Result<bool, TestCaseError> {
    match result {
        Ok(()) => prop_assert_eq!(Some(records_of(batch, list)), naive),
        Err(ref error) => {
            prop_assert!(naive.is_none(), "refused a good list: {}", error);
            prop_assert!(batch.dispatches.is_empty() && batch.buffers.is_empty());
        }
    }
    Ok(result.is_ok())
}

fn agreed_packed(list: &[u8], count: usize, batch: &mut Batch) -> Result<bool, TestCaseError> {
    let result = decode_packed(list, count, &Handles, batch);
    let naive = Naive { bytes: list, at: 0 }.packed(count);
    agreed(list, result, batch, naive)
}

fn agreed_words(list: &[u8], batch: &mut Batch) -> Result<bool, TestCaseError> {
    let result = decode_words(list, &Handles, batch);
    let naive = Naive { bytes: list, at: 0 }.words();
    agreed(list, result, batch, naive)
}

/// What to bind of a buffer, as shares of it: where from, and how much of the rest (0: all).
fn any_range() -> impl Strategy<Value = (u64, u64)> {
    (0u64..100, prop_oneof![Just(0), 1u64..=100])
}

fn within(slot: u32, (from, share): (u64, u64)) -> (u64, u64) {
    let bytes = bytes_of_slot(slot);
    let offset = bytes * from / 100 / BINDING.alignment * BINDING.alignment;
    // At least one byte of it, unless all to the end is meant.
    let size = (bytes - offset) * share / 100;
    (
        offset,
        if share > 0 && bytes > 0 {
            size.max(1)
        } else {
            0
        },
    )
}

fn any_record() -> impl Strategy<Value = Record> {
    (0..=MAX_BINDINGS as u32, 0..PUSH_SIZES.len()).prop_flat_map(|(bindings, size)| {
        let push_bytes = PUSH_SIZES[size];
        (
            prop::collection::vec((0..BUFFERS, any_range()), bindings as usize),
            any::<bool>(),
            [0..=LIMITS[0], 1..=0x7fff, 0..=LIMITS[2]],
            // Often 1, so that both record sizes appear.
            any::<bool>(),
            any::<u32>(),
            prop::collection::vec(any::<u8>(), push_bytes as usize),
        )
            .prop_map(move |(buffers, ranged, [x, y, z], flat, mask, push)| {
                let ranged = buffers.iter().filter(|_| ranged);
                Record {
                    pipeline: slot_of(bindings, push_bytes),
                    ranges: ranged.map(|&(slot, range)| within(slot, range)).collect(),
                    buffers: buffers.iter().map(|(slot, _)| *slot).collect(),
                    groups: [x, y, if flat { 1 } else { z }],
                    mask,
                    push,
                }
            })
    })
}

fn any_list(records: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(any_record(), records)
}

/// Overwrites of bytes: where (as a share of the list) and with what, extremes more often.
fn any_damage() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    let byte = prop_oneof![
        Just(0),
        Just(1),
        Just(0x7f),
        Just(0x80),
        Just(0xff),
        any::<u8>()
    ];
    prop::collection::vec((any::<prop::sample::Index>(), byte), 1..8)
}

fn damaged(mut list: Vec<u8>, damage: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    if !list.is_empty() {
        for (index, byte) in damage {
            let at = index.index(list.len());
            list[at] = *byte;
        }
    }
    list
}

/// The same cases in every run.
fn fixed(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(0x6865_6c69_6f73),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(fixed(1000))]

    #[test]
    fn both_forms_round_trip_at_any_alignment(records in any_list(0..24), shift in 0usize..4) {
        let mut batch = Batch::default();
        let padded = |list: Vec<u8>| [vec![0xee; shift], list].concat();

        let packed = padded(encode_packed(&records));
        decode_packed(&packed[shift..], records.len(), &Handles, &mut batch)?;
        prop_assert_eq!(records_of(&batch, &packed[shift..]), meaning(&records));

        let words = padded(encode_words(&records));
        decode_words(&words[shift..], &Handles, &mut batch)?;
        prop_assert_eq!(records_of(&batch, &words[shift..]), meaning(&records));
    }

    #[test]
    fn damaged_lists_are_judged_like_the_naive_decoder_does(
        records in any_list(1..6),
        damage in any_damage(),
        more in 0usize..3,
    ) {
        let mut batch = Batch::default();
        let packed = damaged(encode_packed(&records), &damage);
        agreed_packed(&packed, records.len() + 1 - more, &mut batch)?;
        agreed_words(&damaged(encode_words(&records), &damage), &mut batch)?;
    }

    #[test]
    fn noise_is_judged_like_the_naive_decoder_does(
        noise in prop::collection::vec(any::<u8>(), 0..256),
        count in prop_oneof![0usize..8, Just(usize::MAX), Just(u32::MAX as usize)],
    ) {
        let mut batch = Batch::default();
        agreed_packed(&noise, count, &mut batch)?;
        agreed_words(&noise, &mut batch)?;
        let mut ops = Vec::new();
        if decode_dgc(&noise, count, &Handles, &mut ops).is_err() {
            prop_assert!(ops.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(fixed(40))]

    #[test]
    fn every_truncation_and_any_surplus_is_refused(records in any_list(1..6)) {
        let mut batch = Batch::default();
        let packed = encode_packed(&records);
        for end in 0..packed.len() {
            prop_assert!(!agreed_packed(&packed[..end], records.len(), &mut batch)?, "cut at {}", end);
        }
        let longer = [packed.as_slice(), &[0]].concat();
        prop_assert!(!agreed_packed(&longer, records.len(), &mut batch)?);
        prop_assert!(!agreed_packed(&packed, records.len() - 1, &mut batch)?);
        prop_assert!(!agreed_packed(&packed, records.len() + 1, &mut batch)?);

        let words = encode_words(&records);
        for end in 0..words.len() {
            prop_assert!(!agreed_words(&words[..end], &mut batch)?, "cut at {}", end);
        }
        prop_assert!(!agreed_words(&[words.as_slice(), &[0]].concat(), &mut batch)?);
    }
}

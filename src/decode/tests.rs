//! Round trips, a naive second decoder on mutated lists, and one test for each error.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed};

const LIMITS: [u32; 3] = [1 << 20, 60_000, 50_000];
const PUSH_SIZES: [u32; 5] = [0, 4, 16, 20, 128];
const BUFFERS: u32 = 64;

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
        (0..BUFFERS).find(|slot| buffer_handle(*slot) == handle)
    }

    fn max_groups(&self) -> [u32; 3] {
        LIMITS
    }
}

/// A dispatch by slots, as a caller means it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    pipeline: u32,
    buffers: Vec<u32>,
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
        out.extend((record.buffers.len() as u16).to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(x.to_le_bytes());
        if z != 1 {
            out.extend(z.to_le_bytes());
        }
        out.extend(record.mask.to_le_bytes());
        for slot in &record.buffers {
            out.extend(buffer_handle(*slot).to_le_bytes());
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
        words.push(record.buffers.len() as u32);
        words.extend(
            record
                .buffers
                .iter()
                .map(|slot| buffer_handle(*slot) as u32),
        );
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

/// A decoded batch by value, with the write mask as it was decoded.
fn records_of(batch: &Batch, list: &[u8]) -> Vec<Record> {
    let dispatches = batch.dispatches.iter();
    dispatches
        .map(|dispatch| Record {
            pipeline: dispatch.pipeline,
            buffers: batch.buffers_of(dispatch).to_vec(),
            groups: dispatch.groups,
            mask: dispatch.write_mask,
            push: dispatch.push(list).to_vec(),
        })
        .collect()
}

/// What a caller's records mean once decoded: mask bits of buffers that are not there are dropped.
fn meaning(records: &[Record]) -> Vec<Record> {
    let masked = records.iter().cloned().map(|mut record| {
        let bound = (1u64 << record.buffers.len()) - 1;
        record.mask &= bound as u32;
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

    fn packed(mut self, count: usize) -> Option<Vec<Record>> {
        let mut records = Vec::new();
        for _ in 0..count {
            let shape = Handles.pipeline(self.i32()?)?;
            let n = self.u16()?;
            let flags = self.u16()?;
            let x = self.u32()?;
            let y = if flags >> 1 == 0 { 1 } else { flags >> 1 };
            let z = if flags & 1 == 1 { self.u32()? } else { 1 };
            let mask = self.u32()?;
            records.push(Record {
                pipeline: shape.slot,
                buffers: self.buffers(n.into(), shape)?,
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
            let n = self.u32()?;
            let buffers = self.buffers(n, shape)?;
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
        Err(error) => {
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

fn any_record() -> impl Strategy<Value = Record> {
    (0..=MAX_BINDINGS as u32, 0..PUSH_SIZES.len()).prop_flat_map(|(bindings, size)| {
        let push_bytes = PUSH_SIZES[size];
        (
            prop::collection::vec(0..BUFFERS, bindings as usize),
            [0..=LIMITS[0], 1..=0x7fff, 0..=LIMITS[2]],
            // Often 1, so that both record sizes appear.
            any::<bool>(),
            any::<u32>(),
            prop::collection::vec(any::<u8>(), push_bytes as usize),
        )
            .prop_map(move |(buffers, [x, y, z], flat, mask, push)| Record {
                pipeline: slot_of(bindings, push_bytes),
                buffers,
                groups: [x, y, if flat { 1 } else { z }],
                mask,
                push,
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

/// Decodes a packed list that must be refused, into a batch that held something.
fn refused(list: &[u8], count: usize) -> DecodeError {
    let mut batch = filled();
    let error = decode_packed(list, count, &Handles, &mut batch).expect_err("a bad list");
    assert!(batch.dispatches.is_empty() && batch.buffers.is_empty());
    error
}

fn refused_words(list: &[u8]) -> DecodeError {
    let mut batch = filled();
    let error = decode_words(list, &Handles, &mut batch).expect_err("a bad list");
    assert!(batch.dispatches.is_empty() && batch.buffers.is_empty());
    error
}

fn filled() -> Batch {
    let mut batch = Batch::default();
    let list = encode_packed(&[Record::new(slot_of(2, 4))]);
    decode_packed(&list, 1, &Handles, &mut batch).expect("a good list");
    batch
}

#[track_caller]
fn says(error: DecodeError, kind: ErrorKind, message: &str) {
    assert_eq!(error.to_string(), message);
    assert_eq!(error.kind(), kind);
}

use ErrorKind::{InvalidArgument, InvalidHandle};

/// Two records of 28 bytes each (two buffers, four push bytes), and the pipeline's handle.
fn pair() -> (Vec<Record>, i32) {
    let slot = slot_of(2, 4);
    (
        vec![Record::new(slot), Record::new(slot)],
        pipeline_handle(slot),
    )
}

#[test]
fn truncated_says_what_is_needed_and_left() {
    let (records, _) = pair();
    let list = encode_packed(&records);
    for (end, message) in [
        (30, "record 1 at byte 28: needs 16 bytes, 2 are left"),
        (50, "record 1 at byte 28: needs 28 bytes, 22 are left"),
        (55, "record 1 at byte 28: needs 28 bytes, 27 are left"),
    ] {
        says(refused(&list[..end], 2), InvalidArgument, message);
    }
    let mut deep = records[0].clone();
    deep.groups[2] = 2;
    let list = encode_packed(&[deep]);
    let message = "record 0 at byte 0: needs 20 bytes, 18 are left";
    says(refused(&list[..18], 1), InvalidArgument, message);
    says(
        refused(&[], usize::MAX),
        InvalidArgument,
        "record 0 at byte 0: needs 16 bytes, 0 are left",
    );
}

#[test]
fn trailing_bytes_are_counted() {
    let (records, _) = pair();
    says(
        refused(&encode_packed(&records), 1),
        InvalidArgument,
        "record 1 at byte 28: the list must end here, its count is 1; 28 bytes are left over",
    );
}

#[test]
fn unknown_handles_are_named() {
    let (records, _) = pair();
    let mut list = encode_packed(&records);
    list[28..32].copy_from_slice(&(-7i32).to_le_bytes());
    let message = "record 1 at byte 28: pipeline -7 does not exist";
    says(refused(&list, 2), InvalidHandle, message);

    let mut list = encode_packed(&records);
    list[48..52].copy_from_slice(&77_777i32.to_le_bytes());
    let message = "record 1 at byte 28: buffer 77777 at binding 1 does not exist";
    says(refused(&list, 2), InvalidHandle, message);

    let mut list = encode_words(&records);
    list[20..24].copy_from_slice(&4i32.to_le_bytes());
    let message = "record 0 at byte 8: buffer 4 at binding 1 does not exist";
    says(refused_words(&list), InvalidHandle, message);
}

#[test]
fn buffer_counts_are_compared_with_the_pipeline() {
    let (records, handle) = pair();
    let mut list = encode_packed(&records);
    list[32] = 3;
    let takes = format!("pipeline {handle} takes 2 buffers, the record names");
    let message = format!("record 1 at byte 28: {takes} 3");
    says(refused(&list, 2), InvalidArgument, &message);
    list[32] = 33;
    let message = "record 1 at byte 28: at most 32 buffers, the record names 33";
    says(refused(&list, 2), InvalidArgument, message);

    let mut list = encode_words(&records);
    list[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let message = "record 0 at byte 8: at most 32 buffers, the record names 4294967295";
    says(refused_words(&list), InvalidArgument, message);
    list[12..16].copy_from_slice(&1u32.to_le_bytes());
    let message = format!("record 0 at byte 8: {takes} 1");
    says(refused_words(&list), InvalidArgument, &message);
}

#[test]
fn group_counts_are_compared_with_the_device() {
    let (mut records, _) = pair();
    for (axis, name) in ["gX", "gY", "gZ"].into_iter().enumerate() {
        let limit = LIMITS[axis];
        records[1].groups = [1; 3];
        records[1].groups[axis] = limit + 1;
        let asks = format!("{name} is {}, the device's limit is {limit}", limit + 1);
        // gY has 15 bits in the packed form, and this limit is above them.
        if axis != 1 {
            let message = format!("record 1 at byte 28: {asks}");
            says(
                refused(&encode_packed(&records), 2),
                InvalidArgument,
                &message,
            );
        }
        let message = format!("record 1 at byte 48: {asks}");
        says(
            refused_words(&encode_words(&records)),
            InvalidArgument,
            &message,
        );
        records[1].groups[axis] = limit;
        let mut batch = Batch::default();
        decode_words(&encode_words(&records), &Handles, &mut batch).expect("the limit itself");
    }
}

#[test]
fn packed_y_is_checked_against_a_low_limit() {
    struct Flat;
    impl Tables for Flat {
        fn pipeline(&self, handle: i32) -> Option<PipelineShape> {
            Handles.pipeline(handle)
        }
        fn buffer(&self, handle: i32) -> Option<u32> {
            Handles.buffer(handle)
        }
        fn max_groups(&self) -> [u32; 3] {
            [8, 8, 8]
        }
    }
    let (mut records, _) = pair();
    records[0].groups = [8, 9, 8];
    let mut batch = Batch::default();
    let error = decode_packed(&encode_packed(&records), 2, &Flat, &mut batch);
    says(
        error.expect_err("y is above 8"),
        InvalidArgument,
        "record 0 at byte 0: gY is 9, the device's limit is 8",
    );
}

#[test]
fn word_headers_are_checked() {
    let message = "record 0 at byte 0: a word list is a multiple of 4 bytes long, this one has 9";
    says(refused_words(&[0; 9]), InvalidArgument, message);
    let message = "record 0 at byte 0: a word list starts with a header of 8 bytes, this one has 4";
    says(refused_words(&[0; 4]), InvalidArgument, message);
    for (words, start) in [(2, 1), (2, 3), (5, u32::MAX)] {
        let mut list = vec![0; words];
        list[1] = start;
        let message = format!(
            "record 0 at byte 8: the push area must start between word 2 and word {words}, \
             the header says word {start}"
        );
        says(refused_words(&bytes_of(&list)), InvalidArgument, &message);
    }
}

#[test]
fn word_records_must_end_where_the_push_area_starts() {
    // Two records of ten words each behind two words of header.
    let (records, _) = pair();
    let mut list = encode_words(&records);
    // An unused word at the end of the area, so that the ranges still fit it when it starts late.
    list.extend([0; 4]);
    list[4] = 23;
    says(
        refused_words(&list),
        InvalidArgument,
        "record 2 at byte 88: the push area must start where the records end, at word 22, \
         the header says word 23",
    );
    for (start, left) in [(21, 36), (13, 4)] {
        list[4] = start;
        let needs = if start == 13 { 32 } else { 40 };
        let message = format!("record 1 at byte 48: needs {needs} bytes, {left} are left");
        says(refused_words(&list), InvalidArgument, &message);
    }
    list[4] = 22;
    list[0] = 3;
    let message = "record 2 at byte 88: needs 32 bytes, 0 are left";
    says(refused_words(&list), InvalidArgument, message);
}

#[test]
fn word_push_ranges_stay_in_the_push_area() {
    let (records, handle) = pair();
    let list = encode_words(&records);
    // Words 7 and 8 of a record of two buffers; the second record starts at byte 48.
    let with = |offset: u32, size: u32| {
        let mut list = list.clone();
        list[76..80].copy_from_slice(&offset.to_le_bytes());
        list[80..84].copy_from_slice(&size.to_le_bytes());
        list
    };
    for size in [0, 3, 8, u32::MAX] {
        let message = format!(
            "record 1 at byte 48: pipeline {handle} takes 4 bytes of push constants, \
             the record gives {size}"
        );
        says(refused_words(&with(0, size)), InvalidArgument, &message);
    }
    for offset in [5, 8, u32::MAX] {
        let message = format!(
            "record 1 at byte 48: the push area has 8 bytes, the record names 4 at {offset}"
        );
        says(refused_words(&with(offset, 4)), InvalidArgument, &message);
    }
    // Ranges may overlap, be unaligned and leave bytes unused.
    let list = with(1, 4);
    let mut batch = Batch::default();
    decode_words(&list, &Handles, &mut batch).expect("a good list");
    assert_eq!(batch.dispatches[1].push(&list), &[1, 2, 3, 0]);
}

#[test]
fn zero_groups_pass_and_packed_gy_zero_is_one() {
    let mut record = Record::new(slot_of(0, 0));
    record.groups = [0, 0, 0];
    let mut batch = Batch::default();
    let list = encode_packed(std::slice::from_ref(&record));
    decode_packed(&list, 1, &Handles, &mut batch).expect("a good list");
    assert_eq!(batch.dispatches[0].groups, [0, 1, 0]);
    let list = encode_words(std::slice::from_ref(&record));
    decode_words(&list, &Handles, &mut batch).expect("a good list");
    assert_eq!(batch.dispatches[0].groups, [0, 0, 0]);
}

#[test]
fn an_empty_list_is_an_empty_batch() {
    let mut batch = filled();
    decode_packed(&[], 0, &Handles, &mut batch).expect("a good list");
    assert!(batch.dispatches.is_empty() && batch.buffers.is_empty());
    batch = filled();
    decode_words(&bytes_of(&[0, 2]), &Handles, &mut batch).expect("a good list");
    assert!(batch.dispatches.is_empty() && batch.buffers.is_empty());
}

#[test]
fn claimed_counts_reserve_nothing() {
    let mut batch = Batch::default();
    for count in [1, 1 << 40, usize::MAX] {
        assert!(decode_packed(&[0; 15], count, &Handles, &mut batch).is_err());
    }
    assert!(decode_words(&bytes_of(&[u32::MAX, 2]), &Handles, &mut batch).is_err());
    assert_eq!(
        (batch.dispatches.capacity(), batch.buffers.capacity()),
        (0, 0)
    );
    let mut ops = Vec::new();
    assert!(decode_dgc(&[0; 27], usize::MAX, &Handles, &mut ops).is_err());
    assert_eq!(ops.capacity(), 0);
}

#[test]
fn a_batch_keeps_its_memory() {
    let mut batch = Batch::default();
    let list = encode_packed(&vec![Record::new(slot_of(4, 16)); 500]);
    decode_packed(&list, 500, &Handles, &mut batch).expect("a good list");
    let memory = |batch: &Batch| {
        let dispatches = (batch.dispatches.as_ptr(), batch.dispatches.capacity());
        (dispatches, batch.buffers.as_ptr(), batch.buffers.capacity())
    };
    let before = memory(&batch);
    decode_packed(&list, 500, &Handles, &mut batch).expect("a good list");
    assert!(decode_packed(&list, 499, &Handles, &mut batch).is_err());
    decode_packed(&list, 500, &Handles, &mut batch).expect("a good list");
    assert_eq!(memory(&batch), before);
}

fn dgc_list(ops: &[[u32; 7]]) -> Vec<u8> {
    bytes_of(&ops.concat())
}

#[test]
fn dgc_operations_decode_from_a_longer_buffer() {
    let handle = |slot| buffer_handle(slot) as u32;
    let list = dgc_list(&[
        [handle(3), handle(1), handle(2), 1000, 4, 1, 1],
        [handle(2), handle(2), handle(2), u32::MAX, 0, 0, 0],
        [u32::MAX; 7],
    ]);
    let mut ops = Vec::new();
    decode_dgc(&list, 2, &Handles, &mut ops).expect("a good list");
    let [first, second] = ops[..] else {
        panic!("two operations, not {ops:?}");
    };
    assert_eq!((first.a, first.b, first.c), (3, 1, 2));
    assert_eq!((first.elements, first.groups), (1000, [4, 1, 1]));
    assert_eq!(
        (second.a, second.elements, second.groups),
        (2, u32::MAX, [0; 3])
    );
}

#[test]
fn dgc_errors_name_the_operation() {
    let good = [
        buffer_handle(0) as u32,
        buffer_handle(1) as u32,
        buffer_handle(2) as u32,
    ];
    let op = |groups: [u32; 3]| {
        [
            good[0], good[1], good[2], 8, groups[0], groups[1], groups[2],
        ]
    };
    let mut ops = Vec::new();
    let mut refuse = |list: &[u8], count: usize| {
        decode_dgc(list, count, &Handles, &mut ops).expect_err("a bad list")
    };
    let list = dgc_list(&[op([1; 3]), op([1, LIMITS[1] + 1, 1])]);
    says(
        refuse(&list, 2),
        InvalidArgument,
        "record 1 at byte 28: gY is 60001, the device's limit is 60000",
    );
    let message = "record 2 at byte 56: needs 28 bytes, 0 are left";
    says(refuse(&list, 3), InvalidArgument, message);
    let message = "record 1 at byte 28: needs 28 bytes, 20 are left";
    says(refuse(&list[..48], 2), InvalidArgument, message);
    let mut list = dgc_list(&[op([1; 3]), op([1; 3])]);
    list[36..40].copy_from_slice(&6u32.to_le_bytes());
    let message = "record 1 at byte 28: buffer 6 at binding 2 does not exist";
    says(refuse(&list, 2), InvalidHandle, message);
    assert!(ops.is_empty());
}

/// Longer than 32-bit offsets reach; only its length is looked at, so its pages are never touched.
#[test]
#[cfg(target_pointer_width = "64")]
fn lists_above_4_gib_are_refused() {
    let list = vec![0u8; u32::MAX as usize + 1];
    let message = "record 0 at byte 0: a list may have at most 4294967295 bytes, this one has \
                   4294967296";
    says(refused(&list, 1), InvalidArgument, message);
    says(refused_words(&list), InvalidArgument, message);
}

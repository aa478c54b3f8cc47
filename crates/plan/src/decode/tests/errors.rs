//! One test for each error, and what is at the edge of one.

use super::*;

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
    let message = "record 0 at byte 8: at most 32 buffers, the record names 2147483647";
    says(refused_words(&list), InvalidArgument, message);
    list[12..16].copy_from_slice(&1u32.to_le_bytes());
    let message = format!("record 0 at byte 8: {takes} 1");
    says(refused_words(&list), InvalidArgument, &message);
}

/// Two records of two buffers, the second with these buffers and ranges.
fn bound(buffers: [u32; 2], ranges: &[(u64, u64)]) -> Vec<Record> {
    let (mut records, _) = pair();
    records[1].buffers = buffers.to_vec();
    records[1].ranges = ranges.to_vec();
    records
}

#[test]
fn bindings_are_compared_with_the_device() {
    let large = buffer_handle(LARGE);
    let whole = [(0, 0); 2];
    let too_large = format!(
        "buffer {large} (weights) at binding 0 binds 12288 bytes, more than the device's \
         maxStorageBufferRange of 4096: bind a range of it"
    );
    let handle = buffer_handle(20);
    for (buffers, ranges, says_what) in [
        ([LARGE, 3], &[][..], too_large.clone()),
        ([LARGE, 3], &whole[..], too_large),
        (
            [LARGE, 3],
            &[(64, 4097), (0, 0)][..],
            format!(
                "buffer {large} (weights) at binding 0 binds 4097 bytes, more than the device's \
                 maxStorageBufferRange of 4096: bind a range of it"
            ),
        ),
        (
            [3, 20],
            &[(0, 0), (32, 64)][..],
            format!(
                "buffer {handle} at binding 1 is bound from byte 32, which is not a multiple of the \
                 device's minStorageBufferOffsetAlignment of 64"
            ),
        ),
        (
            [3, 20],
            &[(0, 0), (1280, 21)][..],
            format!("buffer {handle} at binding 1 has 1300 bytes, the range is of 21 at 1280"),
        ),
        (
            [3, 20],
            &[(0, 0), (1 << 63, u64::MAX)][..],
            format!(
                "buffer {handle} at binding 1 has 1300 bytes, the range is of 18446744073709551615 \
                 at 9223372036854775808"
            ),
        ),
        (
            [3, 20],
            &[(0, 0), (1344, 0)][..],
            format!("buffer {handle} at binding 1 has 1300 bytes, the range is of 0 at 1344"),
        ),
    ] {
        let records = bound(buffers, ranges);
        let message = format!("record 1 at byte 28: {says_what}");
        says(
            refused(&encode_packed(&records), 2),
            InvalidArgument,
            &message,
        );
        let message = format!("record 1 at byte 48: {says_what}");
        says(
            refused_words(&encode_words(&records)),
            InvalidArgument,
            &message,
        );
    }
}

#[test]
fn what_a_shader_does_not_use_may_be_of_any_size() {
    let mut batch = Batch::default();
    for ranges in [&[][..], &[(0, 0); 2]] {
        let records = bound([3, LARGE], ranges);
        let list = encode_packed(&records);
        decode_packed(&list, 2, &Handles, &mut batch).expect("binding 1 is not used");
        assert_eq!(records_of(&batch, &list), meaning(&records));
    }
}

#[test]
fn parts_of_a_large_buffer_can_be_bound() {
    let records = bound([LARGE, 20], &[(8192, 4096), (1280, 0)]);
    let mut batch = Batch::default();
    let list = encode_words(&records);
    decode_words(&list, &Handles, &mut batch).expect("a good list");
    let [first, second] = batch.dispatches[..] else {
        panic!("two dispatches");
    };
    let range = |offset, size| BindingRange { offset, size };
    // The first binds its buffers whole.
    assert_eq!(batch.ranges_of(&first), &[range(0, 0), range(0, 0)]);
    assert_eq!(
        batch.ranges_of(&second),
        &[range(8192, 4096), range(1280, 20)]
    );
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
    let tables = Lookups {
        pipeline: |handle| Handles.pipeline(handle),
        buffer: |handle| Handles.buffer(handle),
        max_groups: [8, 8, 8],
    };
    let (mut records, _) = pair();
    records[0].groups = [8, 9, 8];
    let mut batch = Batch::default();
    let error = decode_packed(&encode_packed(&records), 2, &tables, &mut batch);
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

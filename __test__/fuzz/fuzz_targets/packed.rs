//! The packed decoder: any bytes, either form of a list, or a list of the fixed pipeline.
//!
//! Byte 0 is the form, bytes 1 and 2 the count, the rest the list. What decodes must be what the list
//! says (encoded again in the other form it decodes to the same), and what does not leaves nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::decode::{
    Batch, BindingLimits, BindingRange, DGC_OP_BYTES, Dispatch, MAX_BINDINGS, PipelineShape,
    Tables, decode_dgc, decode_packed, decode_words,
};

const LIMITS: [u32; 3] = [1 << 22, 65_535, 65_535];
/// Push-constant bytes of the recorded run's pipelines, and none.
const PUSH: [u32; 8] = [0, 8, 12, 16, 20, 24, 32, 36];

const BINDING: BindingLimits = BindingLimits {
    largest: 1 << 14,
    alignment: 16,
};

/// Every sixteenth buffer is larger than one binding; one is empty.
fn bytes_of(slot: u32) -> u64 {
    u64::from(slot) << if slot.is_multiple_of(16) { 20 } else { 0 }
}

/// Pipelines of every binding count and push size; three of four buffer handles are live.
struct Handles;

impl Tables for Handles {
    fn pipeline(&self, handle: i32) -> Option<PipelineShape> {
        let slot = u32::try_from(handle).ok()?;
        (slot < (MAX_BINDINGS as u32 + 1) * 8).then(|| PipelineShape {
            slot,
            bindings: slot / 8,
            push_bytes: PUSH[slot as usize % 8],
        })
    }

    fn buffer(&self, handle: i32) -> Option<u32> {
        let slot = u32::try_from(handle).ok()?;
        (slot < 1 << 16 && slot % 4 != 3).then_some(slot)
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
        bytes_of(slot)
    }

    fn buffer_name(&self, slot: u32) -> Option<String> {
        slot.is_multiple_of(8).then(|| "named".to_owned())
    }

    fn used_bindings(&self, pipeline: u32) -> u32 {
        !pipeline
    }
}

/// What is true of every batch, wherever it came from.
fn check(batch: &Batch, list: &[u8]) {
    let mut buffers = 0;
    for dispatch in &batch.dispatches {
        let shape = Handles.pipeline(dispatch.pipeline as i32);
        let shape = shape.expect("a live pipeline");
        assert_eq!(dispatch.buffer_count, shape.bindings);
        assert_eq!(dispatch.push(list).len(), shape.push_bytes as usize);
        assert_eq!(dispatch.first_buffer as usize, buffers);
        for &slot in batch.buffers_of(dispatch) {
            assert_eq!(Handles.buffer(slot as i32), Some(slot));
        }
        let ranges = batch.ranges_of(dispatch);
        assert!(ranges.is_empty() || ranges.len() == dispatch.buffer_count as usize);
        for (binding, &slot) in batch.buffers_of(dispatch).iter().enumerate() {
            let whole = BindingRange {
                offset: 0,
                size: bytes_of(slot),
            };
            let range = ranges.get(binding).copied();
            let range = range.filter(|range| range.size > 0).unwrap_or(whole);
            let end = range.offset.checked_add(range.size).expect("no overflow");
            assert!(end <= bytes_of(slot) && range.offset.is_multiple_of(BINDING.alignment));
            assert!(range.size > 0 || bytes_of(slot) == 0);
            let used = Handles.used_bindings(dispatch.pipeline) >> binding & 1 != 0;
            assert!(range.size <= BINDING.largest || !used);
        }
        for (count, limit) in dispatch.groups.iter().zip(LIMITS) {
            assert!(*count <= limit);
        }
        assert!(u64::from(dispatch.write_mask) < 1 << dispatch.buffer_count);
        buffers += dispatch.buffer_count as usize;
    }
    assert_eq!(buffers, batch.buffers.len());
}

/// The ranges of a dispatch that does not bind whole buffers.
fn ranges_of<'a>(batch: &'a Batch, dispatch: &Dispatch) -> &'a [BindingRange] {
    let ranges = batch.ranges_of(dispatch);
    if ranges.iter().all(|range| range.size == 0) {
        return &[];
    }
    ranges
}

/// The batch in the word form.
fn to_words(batch: &Batch, list: &[u8]) -> Vec<u8> {
    let mut words = vec![batch.dispatches.len() as u32, 0];
    let mut area = Vec::new();
    for dispatch in &batch.dispatches {
        let ranges = ranges_of(batch, dispatch);
        let ranged = u32::from(!ranges.is_empty()) << 31;
        words.extend([dispatch.pipeline, dispatch.buffer_count | ranged]);
        words.extend(batch.buffers_of(dispatch));
        for range in ranges {
            let [offset, size] = [range.offset, range.size].map(|v| [v as u32, (v >> 32) as u32]);
            words.extend([offset, size].as_flattened());
        }
        words.extend(dispatch.groups);
        words.extend([area.len() as u32, dispatch.push_len, dispatch.write_mask]);
        area.extend_from_slice(dispatch.push(list));
    }
    words[1] = words.len() as u32;
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(area);
    bytes
}

/// The batch in the byte form, which has no way to say gY = 0 nor gY above 15 bits.
fn to_bytes(batch: &Batch, list: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for dispatch in &batch.dispatches {
        let [x, y, z] = dispatch.groups;
        if y == 0 || y > 0x7fff {
            return None;
        }
        bytes.extend(dispatch.pipeline.to_le_bytes());
        let ranges = ranges_of(batch, dispatch);
        let ranged = u16::from(!ranges.is_empty()) << 15;
        bytes.extend((dispatch.buffer_count as u16 | ranged).to_le_bytes());
        bytes.extend(((y as u16) << 1 | 1).to_le_bytes());
        bytes.extend(
            [x, z, dispatch.write_mask]
                .iter()
                .flat_map(|word| word.to_le_bytes()),
        );
        bytes.extend(
            batch
                .buffers_of(dispatch)
                .iter()
                .flat_map(|word| word.to_le_bytes()),
        );
        for range in ranges {
            bytes.extend(range.offset.to_le_bytes());
            bytes.extend(range.size.to_le_bytes());
        }
        bytes.extend(dispatch.push(list));
    }
    Some(bytes)
}

/// Two batches say the same, each with its own list.
fn same(one: &Batch, ones: &[u8], other: &Batch, others: &[u8]) {
    assert_eq!(one.buffers, other.buffers);
    assert_eq!(one.ranges, other.ranges);
    assert_eq!(one.dispatches.len(), other.dispatches.len());
    for (a, b) in one.dispatches.iter().zip(&other.dispatches) {
        assert_eq!(a.pipeline, b.pipeline);
        assert_eq!(a.groups, b.groups);
        assert_eq!(a.write_mask, b.write_mask);
        assert_eq!(a.push(ones), b.push(others));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[form, low, high], list)) = data.split_first_chunk::<3>() else {
        return;
    };
    let count = usize::from(u16::from_le_bytes([low, high]));
    let mut batch = Batch::default();
    let decoded = match form % 3 {
        0 => decode_packed(list, count, &Handles, &mut batch),
        1 => decode_words(list, &Handles, &mut batch),
        _ => {
            let mut ops = Vec::new();
            match decode_dgc(list, count, &Handles, &mut ops) {
                Ok(()) => {
                    assert_eq!(ops.len(), count);
                    for (op, bytes) in ops.iter().zip(list.chunks_exact(DGC_OP_BYTES)) {
                        let [x, y, z] = op.groups;
                        let words = [op.a, op.b, op.c, op.elements, x, y, z];
                        let again: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                        assert_eq!(again, bytes);
                    }
                }
                Err(error) => assert!(ops.is_empty() && !error.to_string().is_empty()),
            }
            return;
        }
    };
    if let Err(error) = decoded {
        assert!(batch.dispatches.is_empty() && batch.buffers.is_empty());
        assert!(!error.to_string().is_empty());
        return;
    }
    check(&batch, list);
    let mut again = Batch::default();
    let words = to_words(&batch, list);
    decode_words(&words, &Handles, &mut again).expect("what was decoded can be written in words");
    same(&batch, list, &again, &words);
    if let Some(bytes) = to_bytes(&batch, list) {
        decode_packed(&bytes, batch.dispatches.len(), &Handles, &mut again)
            .expect("what was decoded can be written in bytes");
        same(&batch, list, &again, &bytes);
    }
});

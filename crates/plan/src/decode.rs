//! Packed dispatch lists: bytes from JavaScript to a checked [`Batch`], all or nothing.
//!
//! Three layouts, all little-endian and of any alignment:
//!
//! - [`decode_packed`]: records end to end, push constants inside each record;
//! - [`decode_words`]: 32-bit words, push constants in one area after the records;
//! - [`decode_dgc`]: 28-byte operations of one fixed pipeline.
//!
//! A list is checked completely before any of it is returned. The cost is linear in the bytes given: a claimed count
//! that the bytes cannot hold allocates nothing.

#![deny(unsafe_code)]

mod error;
mod lookups;
mod ranges;
#[cfg(test)]
mod tests;

pub use error::{DecodeError, ErrorKind};
pub use lookups::Lookups;
use ranges::RANGE_BYTES;
pub use ranges::{BindingLimits, BindingRange, RangeFault};

/// Largest number of buffers that one dispatch may bind.
pub const MAX_BINDINGS: usize = 32;

/// Bytes of one operation of [`decode_dgc`]: buffers a, b, c, element count, three group counts.
pub const DGC_OP_BYTES: usize = 28;

/// Fixed part of a packed record without gZ: pipeline, n, flags, gX, write mask.
const PACKED_HEADER: usize = 16;

/// Words of a word-form record without its buffers.
const WORD_FIELDS: usize = 8;

/// Bit of the high byte of a packed record's buffer count: ranges follow the handles.
const RANGED: u8 = 1 << 7;

/// The same flag in the word form's count.
const RANGED_WORD: u32 = 1 << 31;

/// Words of a range in the word form.
const RANGE_WORDS: usize = RANGE_BYTES / 4;

/// What the decoder must know of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineShape {
    /// Index in the pipeline table.
    pub slot: u32,
    /// Storage buffers that it binds, at most [`MAX_BINDINGS`].
    pub bindings: u32,
    /// Bytes of push constants that it takes.
    pub push_bytes: u32,
}

/// What the decoder asks of the handle tables. Monomorphized, so the answers inline.
pub trait Tables {
    /// The pipeline behind a live handle.
    fn pipeline(&self, handle: i32) -> Option<PipelineShape>;
    /// The table slot behind a live buffer handle.
    fn buffer(&self, handle: i32) -> Option<u32>;
    /// `maxComputeWorkGroupCount` of the device.
    fn max_groups(&self) -> [u32; 3];
    /// Whether any buffer may be larger than one binding can cover. If none is, whole buffers need no check.
    fn oversized(&self) -> bool;
    /// The device's limits for a binding.
    fn binding_limits(&self) -> BindingLimits;
    /// Bytes of the buffer in a live slot.
    fn buffer_bytes(&self, slot: u32) -> u64;
    /// The buffer's name, for errors.
    fn buffer_name(&self, slot: u32) -> Option<String>;
    /// Bit i: the pipeline in the slot uses binding i.
    fn used_bindings(&self, pipeline: u32) -> u32;
}

/// One checked dispatch. Ranges are into [`Batch::buffers`] and into the list it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Pipeline slot.
    pub pipeline: u32,
    /// Workgroups in x, y, z. With a zero the dispatch does nothing.
    pub groups: [u32; 3],
    /// First of its buffers in [`Batch::buffers`].
    pub first_buffer: u32,
    /// Number of its buffers, the pipeline's binding count.
    pub buffer_count: u32,
    /// First byte of its push constants in the source list.
    pub push_start: u32,
    /// Bytes of push constants, the pipeline's `push_bytes`.
    pub push_len: u32,
    /// Bindings that the caller declared as written; no bit at or above `buffer_count`.
    pub write_mask: u32,
}

impl Dispatch {
    /// Its push constants, given the list that it was decoded from.
    #[inline]
    #[must_use]
    pub fn push<'a>(&self, list: &'a [u8]) -> &'a [u8] {
        let start = self.push_start as usize;
        &list[start..start + self.push_len as usize]
    }
}

/// A checked list. Reused between calls, so that the steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Batch {
    /// The dispatches in list order.
    pub dispatches: Vec<Dispatch>,
    /// Buffer slots of all dispatches, end to end, in binding order.
    pub buffers: Vec<u32>,
    /// What is bound of each of them; empty if the whole list binds whole buffers. Ranges are inside the buffer and
    /// within the device's limits; a size of 0 means the whole buffer.
    pub ranges: Vec<BindingRange>,
}

impl Batch {
    /// Empties the batch and keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.dispatches.clear();
        self.buffers.clear();
        self.ranges.clear();
    }

    /// Buffer slots of one of its dispatches, by binding.
    #[inline]
    #[must_use]
    pub fn buffers_of(&self, dispatch: &Dispatch) -> &[u32] {
        let first = dispatch.first_buffer as usize;
        &self.buffers[first..first + dispatch.buffer_count as usize]
    }

    /// What one of its dispatches binds of each of its buffers, in the form of [`Self::ranges`].
    #[inline]
    #[must_use]
    pub fn ranges_of(&self, dispatch: &Dispatch) -> &[BindingRange] {
        if self.ranges.is_empty() {
            return &[];
        }
        let first = dispatch.first_buffer as usize;
        &self.ranges[first..first + dispatch.buffer_count as usize]
    }

    /// Completes a decoded list: afterwards there are ranges for all buffers or for none.
    fn finish(&mut self) {
        let whole = BindingRange::default();
        match self.ranges.iter().all(|range| *range == whole) {
            true => self.ranges.clear(),
            false => self.ranges.resize(self.buffers.len(), whole),
        }
    }
}

/// One checked operation of the fixed pipeline: reads a and b, writes c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DgcOp {
    /// Buffer slot whose address is pushed first.
    pub a: u32,
    /// Buffer slot whose address is pushed second.
    pub b: u32,
    /// Buffer slot whose address is pushed third; written.
    pub c: u32,
    /// Element count, pushed after the addresses.
    pub elements: u32,
    /// Workgroups in x, y, z.
    pub groups: [u32; 3],
}

/// Decodes `count` packed records, which must fill `bytes` exactly.
///
/// A record is `i32 pipeline, u16 n, u16 flags, u32 gX, [u32 gZ,] u32 writeMask, i32 × n buffers, push constants`. Flag
/// bit 0 says that gZ is present (else 1); bits 15…1 are gY (0 means 1). If bit 15 of n is set, `(u64 offset, u64 size)
/// × n` follow the buffers, in bytes; a size of 0 means to the buffer's end.
///
/// [`Dispatch::push`] reads from the same `bytes`. Bits of the write mask at or above n are dropped.
///
/// # Errors
/// The first error in record order; the batch is then empty.
pub fn decode_packed<T: Tables>(
    bytes: &[u8],
    count: usize,
    tables: &T,
    batch: &mut Batch,
) -> Result<(), DecodeError> {
    batch.clear();
    let result = packed(bytes, count, tables, batch);
    match result {
        Ok(()) => batch.finish(),
        Err(_) => batch.clear(),
    }
    result
}

fn packed<T: Tables>(
    bytes: &[u8],
    count: usize,
    tables: &T,
    batch: &mut Batch,
) -> Result<(), DecodeError> {
    check_length(bytes)?;
    let limits = tables.max_groups();
    let oversized = tables.oversized();
    batch
        .dispatches
        .reserve(count.min(bytes.len() / PACKED_HEADER));
    let mut rest = bytes;
    for record in 0..count {
        let ranged = rest.get(5).is_some_and(|high| high & RANGED != 0);
        rest = if ranged || oversized {
            packed_with_ranges(bytes, rest, record, limits, tables, batch)?
        } else {
            packed_record::<T, false>(bytes, rest, record, limits, tables, batch)?
        };
    }
    if !rest.is_empty() {
        return Err(DecodeError::TrailingBytes {
            record: count,
            offset: bytes.len() - rest.len(),
            found: rest.len(),
        });
    }
    Ok(())
}

#[cold]
fn packed_with_ranges<'a, T: Tables>(
    bytes: &[u8],
    rest: &'a [u8],
    record: usize,
    limits: [u32; 3],
    tables: &T,
    batch: &mut Batch,
) -> Result<&'a [u8], DecodeError> {
    packed_record::<T, true>(bytes, rest, record, limits, tables, batch)
}

/// Decodes the record at the beginning of `rest` and returns the bytes after it. `RANGES`: the record may have ranges,
/// or its buffers must be checked.
#[inline(always)]
fn packed_record<'a, T: Tables, const RANGES: bool>(
    bytes: &[u8],
    rest: &'a [u8],
    record: usize,
    limits: [u32; 3],
    tables: &T,
    batch: &mut Batch,
) -> Result<&'a [u8], DecodeError> {
    let offset = bytes.len() - rest.len();
    let Some((head, mut tail)) = rest.split_first_chunk::<PACKED_HEADER>() else {
        return Err(truncated(record, offset, PACKED_HEADER, rest.len()));
    };
    let handle = i32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let ranged = RANGES && head[5] & RANGED != 0;
    let n = match RANGES {
        true => u32::from(u16::from_le_bytes([head[4], head[5] & !RANGED])),
        false => u32::from(u16::from_le_bytes([head[4], head[5]])),
    };
    let flags = u16::from_le_bytes([head[6], head[7]]);
    let x = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    let mut mask = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    let mut z = 1;
    if flags & 1 != 0 {
        let Some((word, behind)) = tail.split_first_chunk::<4>() else {
            return Err(truncated(record, offset, PACKED_HEADER + 4, rest.len()));
        };
        z = mask;
        mask = u32::from_le_bytes(*word);
        tail = behind;
    }
    let y = u32::from(flags >> 1).max(1);

    let shape = check_pipeline(tables, record, offset, handle, n)?;
    let buffer_bytes = n as usize * if ranged { 4 + RANGE_BYTES } else { 4 };
    let push_bytes = shape.push_bytes as usize;
    // n is at most 32 here; push_bytes is whatever the table says.
    let Some((buffers, behind)) = tail.split_at_checked(buffer_bytes) else {
        let head_bytes = rest.len() - tail.len();
        let needed = (head_bytes + buffer_bytes).saturating_add(push_bytes);
        return Err(truncated(record, offset, needed, rest.len()));
    };
    if behind.len() < push_bytes {
        let needed = (rest.len() - behind.len()).saturating_add(push_bytes);
        return Err(truncated(record, offset, needed, rest.len()));
    }
    let groups = [x, y, z];
    check_groups(&limits, record, offset, groups)?;
    let first_buffer = batch.buffers.len();
    if RANGES {
        let (buffers, ranges) = buffers.split_at(n as usize * 4);
        take_buffers(tables, record, offset, buffers, &mut batch.buffers)?;
        take_ranges(tables, record, offset, shape.slot, [buffers, ranges], batch)?;
    } else {
        take_buffers(tables, record, offset, buffers, &mut batch.buffers)?;
    }
    batch.dispatches.push(Dispatch {
        pipeline: shape.slot,
        groups,
        // At most a quarter of the list's length, which fits 32 bits.
        first_buffer: first_buffer as u32,
        buffer_count: n,
        push_start: (bytes.len() - behind.len()) as u32,
        push_len: shape.push_bytes,
        write_mask: mask & mask_of(n),
    });
    Ok(&behind[push_bytes..])
}

/// Decodes a list of 32-bit words: `[count, wordsUntilPushArea]`, then per dispatch `[pipeline, n, buf0 … buf(n-1), gX,
/// gY, gZ, pushOffset, pushSize, writeMask]`, then the push area.
///
/// If the top bit of n is set, four words for each buffer follow the buffers: byte offset and size, low half first; a
/// size of 0 means to the buffer's end.
///
/// `wordsUntilPushArea` counts from the start of the list and must be where the records end. `pushOffset` and
/// `pushSize` are bytes within the area, which may hold unused bytes; `pushSize` must be the pipeline's. Group counts
/// are literal: with gY = 0 the dispatch does nothing.
///
/// [`Dispatch::push`] reads from the same `bytes`. Bits of the write mask at or above n are dropped.
///
/// # Errors
/// The first error in record order; the batch is then empty.
pub fn decode_words<T: Tables>(
    bytes: &[u8],
    tables: &T,
    batch: &mut Batch,
) -> Result<(), DecodeError> {
    batch.clear();
    let result = words(bytes, tables, batch);
    match result {
        Ok(()) => batch.finish(),
        Err(_) => batch.clear(),
    }
    result
}

fn words<T: Tables>(bytes: &[u8], tables: &T, batch: &mut Batch) -> Result<(), DecodeError> {
    check_length(bytes)?;
    let (list, odd) = bytes.as_chunks::<4>();
    if !odd.is_empty() {
        return Err(DecodeError::NotWords { bytes: bytes.len() });
    }
    let [count, area_start, ..] = *list else {
        return Err(DecodeError::NoHeader { bytes: bytes.len() });
    };
    let count = u32::from_le_bytes(count) as usize;
    let area_word = u32::from_le_bytes(area_start);
    let Some((records, area)) = list
        .split_at_checked(area_word as usize)
        .filter(|(records, _)| records.len() >= 2)
    else {
        return Err(DecodeError::PushAreaOutside {
            words: list.len(),
            found: area_word,
        });
    };
    let area_bytes = area.len() * 4;
    let area_offset = bytes.len() - area_bytes;

    let limits = tables.max_groups();
    let oversized = tables.oversized();
    batch
        .dispatches
        .reserve(count.min(records.len() / WORD_FIELDS));
    let mut rest = &records[2..];
    for record in 0..count {
        let offset = (records.len() - rest.len()) * 4;
        let short = |words: usize| truncated(record, offset, words * 4, rest.len() * 4);
        let [pipeline, n, tail @ ..] = rest else {
            return Err(short(WORD_FIELDS));
        };
        let handle = i32::from_le_bytes(*pipeline);
        let n = u32::from_le_bytes(*n);
        let ranged = n & RANGED_WORD != 0;
        let n = n & !RANGED_WORD;
        let shape = check_pipeline(tables, record, offset, handle, n)?;
        let buffer_words = n as usize * if ranged { 1 + RANGE_WORDS } else { 1 };
        let Some((buffers, tail)) = tail.split_at_checked(buffer_words) else {
            return Err(short(WORD_FIELDS + buffer_words));
        };
        let [x, y, z, push_offset, push_size, mask, behind @ ..] = tail else {
            return Err(short(WORD_FIELDS + buffer_words));
        };
        let groups = [*x, *y, *z].map(u32::from_le_bytes);
        check_groups(&limits, record, offset, groups)?;
        let push_offset = u32::from_le_bytes(*push_offset);
        let push_size = u32::from_le_bytes(*push_size);
        if push_size != shape.push_bytes {
            return Err(DecodeError::PushSize {
                record,
                offset,
                pipeline: handle,
                expected: shape.push_bytes,
                found: push_size,
            });
        }
        if u64::from(push_offset) + u64::from(push_size) > area_bytes as u64 {
            return Err(DecodeError::PushRange {
                record,
                offset,
                area: area_bytes,
                start: push_offset,
                size: push_size,
            });
        }
        let first_buffer = batch.buffers.len();
        let (buffers, ranges) = buffers.as_flattened().split_at(n as usize * 4);
        take_buffers(tables, record, offset, buffers, &mut batch.buffers)?;
        if ranged || oversized {
            take_ranges(tables, record, offset, shape.slot, [buffers, ranges], batch)?;
        }
        batch.dispatches.push(Dispatch {
            pipeline: shape.slot,
            groups,
            // At most a quarter of the list's length, which fits 32 bits.
            first_buffer: first_buffer as u32,
            buffer_count: n,
            // Inside the list, because the range was checked.
            push_start: area_offset as u32 + push_offset,
            push_len: push_size,
            write_mask: u32::from_le_bytes(*mask) & mask_of(n),
        });
        rest = behind;
    }
    if !rest.is_empty() {
        let end = records.len() - rest.len();
        return Err(DecodeError::PushAreaStart {
            record: count,
            offset: end * 4,
            expected: end,
            found: area_word,
        });
    }
    Ok(())
}

/// Decodes `count` operations of `i32 a, i32 b, i32 c` (buffers), `u32 elements, u32 gX, gY, gZ`.
///
/// `bytes` may be longer than `count` operations: callers keep one buffer for lists of all sizes. Group counts are
/// literal.
///
/// # Errors
/// The first error in list order; `out` is then empty.
pub fn decode_dgc<T: Tables>(
    bytes: &[u8],
    count: usize,
    tables: &T,
    out: &mut Vec<DgcOp>,
) -> Result<(), DecodeError> {
    out.clear();
    let result = dgc(bytes, count, tables, out);
    if result.is_err() {
        out.clear();
    }
    result
}

fn dgc<T: Tables>(
    bytes: &[u8],
    count: usize,
    tables: &T,
    out: &mut Vec<DgcOp>,
) -> Result<(), DecodeError> {
    let (ops, _) = bytes.as_chunks::<DGC_OP_BYTES>();
    let Some(ops) = ops.get(..count) else {
        let offset = ops.len() * DGC_OP_BYTES;
        let left = bytes.len() - offset;
        return Err(truncated(ops.len(), offset, DGC_OP_BYTES, left));
    };
    let limits = tables.max_groups();
    out.reserve(count);
    for (record, op) in ops.iter().enumerate() {
        let offset = record * DGC_OP_BYTES;
        let (op, _) = op.as_chunks::<4>();
        let buffer = |binding: usize| {
            let handle = i32::from_le_bytes(op[binding]);
            tables.buffer(handle).ok_or(DecodeError::UnknownBuffer {
                record,
                offset,
                binding,
                handle,
            })
        };
        let groups = [op[4], op[5], op[6]].map(u32::from_le_bytes);
        check_groups(&limits, record, offset, groups)?;
        out.push(DgcOp {
            a: buffer(0)?,
            b: buffer(1)?,
            c: buffer(2)?,
            elements: u32::from_le_bytes(op[3]),
            groups,
        });
    }
    Ok(())
}

#[inline]
fn check_length(bytes: &[u8]) -> Result<(), DecodeError> {
    if bytes.len() > u32::MAX as usize {
        return Err(DecodeError::ListTooLong { bytes: bytes.len() });
    }
    Ok(())
}

/// Looks the pipeline up and checks that n is its binding count, hence at most 32.
#[inline]
fn check_pipeline<T: Tables>(
    tables: &T,
    record: usize,
    offset: usize,
    handle: i32,
    n: u32,
) -> Result<PipelineShape, DecodeError> {
    let Some(shape) = tables.pipeline(handle) else {
        return Err(DecodeError::UnknownPipeline {
            record,
            offset,
            handle,
        });
    };
    if n > MAX_BINDINGS as u32 {
        return Err(DecodeError::TooManyBuffers {
            record,
            offset,
            found: n,
        });
    }
    if n != shape.bindings {
        return Err(DecodeError::BufferCount {
            record,
            offset,
            pipeline: handle,
            expected: shape.bindings,
            found: n,
        });
    }
    Ok(shape)
}

#[inline]
fn check_groups(
    limits: &[u32; 3],
    record: usize,
    offset: usize,
    groups: [u32; 3],
) -> Result<(), DecodeError> {
    for ((axis, limit), found) in ["gX", "gY", "gZ"].into_iter().zip(*limits).zip(groups) {
        if found > limit {
            return Err(DecodeError::GroupCount {
                record,
                offset,
                axis,
                limit,
                found,
            });
        }
    }
    Ok(())
}

/// Appends the slots of the buffers whose handles are in `handles`.
#[inline]
fn take_buffers<T: Tables>(
    tables: &T,
    record: usize,
    offset: usize,
    handles: &[u8],
    slots: &mut Vec<u32>,
) -> Result<(), DecodeError> {
    // One capacity check per record instead of one per buffer. If a handle fails, which one is found afterwards.
    let (handles, _) = handles.as_chunks::<4>();
    let mut all_live = true;
    slots.extend(handles.iter().map(|handle| {
        let slot = tables.buffer(i32::from_le_bytes(*handle));
        all_live &= slot.is_some();
        slot.unwrap_or(0)
    }));
    if all_live {
        return Ok(());
    }
    Err(unknown_buffer(tables, record, offset, handles))
}

/// Checks what a record binds of the buffers just appended, and appends its ranges. A record without ranges binds whole
/// buffers.
#[cold]
fn take_ranges<T: Tables>(
    tables: &T,
    record: usize,
    offset: usize,
    pipeline: u32,
    [handles, ranges]: [&[u8]; 2],
    batch: &mut Batch,
) -> Result<(), DecodeError> {
    let (handles, _) = handles.as_chunks::<4>();
    let (ranges, _) = ranges.as_chunks::<RANGE_BYTES>();
    let first = batch.buffers.len() - handles.len();
    if !ranges.is_empty() {
        // The records before this one bind whole buffers.
        batch.ranges.resize(first, BindingRange::default());
    }
    let limits = tables.binding_limits();
    let used = tables.used_bindings(pipeline);
    let slots = &batch.buffers[first..];
    for (binding, (&slot, handle)) in slots.iter().zip(handles).enumerate() {
        let asked = ranges.get(binding).copied();
        let bound = asked
            .map_or(BindingRange::default(), BindingRange::from_le_bytes)
            .resolve(tables.buffer_bytes(slot), limits, used >> binding & 1 != 0)
            .map_err(|fault| DecodeError::Binding {
                record,
                offset,
                binding,
                handle: i32::from_le_bytes(*handle),
                name: tables.buffer_name(slot),
                fault,
            })?;
        if asked.is_some() {
            batch.ranges.push(bound);
        }
    }
    Ok(())
}

#[cold]
fn unknown_buffer<T: Tables>(
    tables: &T,
    record: usize,
    offset: usize,
    handles: &[[u8; 4]],
) -> DecodeError {
    let handles = handles.iter().map(|handle| i32::from_le_bytes(*handle));
    let (binding, handle) = handles
        .enumerate()
        .find(|(_, handle)| tables.buffer(*handle).is_none())
        // Reached only if the tables answer the same question differently.
        .unwrap_or((0, -1));
    DecodeError::UnknownBuffer {
        record,
        offset,
        binding,
        handle,
    }
}

#[cold]
fn truncated(record: usize, offset: usize, expected: usize, found: usize) -> DecodeError {
    DecodeError::Truncated {
        record,
        offset,
        expected,
        found,
    }
}

/// The lowest `n` bits.
#[inline]
fn mask_of(n: u32) -> u32 {
    1u32.checked_shl(n).map_or(u32::MAX, |bit| bit - 1)
}

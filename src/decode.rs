//! Packed dispatch lists: bytes from JavaScript to a checked [`Batch`], all or nothing.
//!
//! Three layouts, all little-endian and of any alignment:
//! - [`decode_packed`]: records end to end, push constants inside each record;
//! - [`decode_words`]: 32-bit words, push constants in one area behind the records;
//! - [`decode_dgc`]: 28-byte operations of one fixed pipeline.
//!
//! A list is checked whole before anything is handed on. The cost is linear in the bytes given:
//! a claimed count that the bytes cannot hold allocates nothing.

#![deny(unsafe_code)]

use thiserror::Error;

/// Most buffers that one dispatch may bind.
pub const MAX_BINDINGS: usize = 32;

/// Bytes of one operation of [`decode_dgc`]: buffers a, b, c, element count, three group counts.
pub const DGC_OP_BYTES: usize = 28;

/// Fixed part of a packed record without gZ: pipeline, n, flags, gX, write mask.
const PACKED_HEADER: usize = 16;

/// Words of a word-form record besides its buffers.
const WORD_FIELDS: usize = 8;

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

/// What the decoder asks of the handle tables; monomorphized, so the answers inline.
pub trait Tables {
    /// The pipeline behind a live handle.
    fn pipeline(&self, handle: i32) -> Option<PipelineShape>;
    /// The table slot behind a live buffer handle.
    fn buffer(&self, handle: i32) -> Option<u32>;
    /// `maxComputeWorkGroupCount` of the device.
    fn max_groups(&self) -> [u32; 3];
}

/// One checked dispatch. Ranges are into [`Batch::buffers`] and into the list it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Pipeline slot.
    pub pipeline: u32,
    /// Workgroups in x, y, z; a zero is a dispatch that does nothing.
    pub groups: [u32; 3],
    /// First of its buffers in [`Batch::buffers`].
    pub first_buffer: u32,
    /// Number of its buffers, the pipeline's binding count.
    pub buffer_count: u32,
    /// First byte of its push constants in the source list.
    pub push_start: u32,
    /// Bytes of push constants, the pipeline's `push_bytes`.
    pub push_len: u32,
    /// Bindings that the caller says are written; no bit at or above `buffer_count`.
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
}

impl Batch {
    /// Empties the batch and keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.dispatches.clear();
        self.buffers.clear();
    }

    /// Buffer slots of one of its dispatches, by binding.
    #[inline]
    #[must_use]
    pub fn buffers_of(&self, dispatch: &Dispatch) -> &[u32] {
        let first = dispatch.first_buffer as usize;
        &self.buffers[first..first + dispatch.buffer_count as usize]
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

/// Which of the caller's mistakes an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A pipeline or buffer handle that is not live.
    InvalidHandle,
    /// Anything else that is wrong with the list.
    InvalidArgument,
}

/// Why a list was refused. `record` counts from 0; `offset` is the byte where that record starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Offsets are 32-bit.
    #[error("record 0 at byte 0: a list may have at most 4294967295 bytes, this one has {bytes}")]
    ListTooLong {
        /// Length of the list.
        bytes: usize,
    },
    /// The word form is made of 32-bit words.
    #[error("record 0 at byte 0: a word list is a multiple of 4 bytes long, this one has {bytes}")]
    NotWords {
        /// Length of the list.
        bytes: usize,
    },
    /// The word form starts with two words.
    #[error(
        "record 0 at byte 0: a word list starts with a header of 8 bytes, this one has {bytes}"
    )]
    NoHeader {
        /// Length of the list.
        bytes: usize,
    },
    /// The header of the word form points outside the list.
    #[error(
        "record 0 at byte 8: the push area must start between word 2 and word {words}, \
         the header says word {found}"
    )]
    PushAreaOutside {
        /// Words in the list.
        words: usize,
        /// The header's claim.
        found: u32,
    },
    /// The records of the word form do not end where the header says.
    #[error(
        "record {record} at byte {offset}: the push area must start where the records end, \
         at word {expected}, the header says word {found}"
    )]
    PushAreaStart {
        /// Number of records.
        record: usize,
        /// Byte behind the last record.
        offset: usize,
        /// Word behind the last record.
        expected: usize,
        /// The header's claim.
        found: u32,
    },
    /// The bytes end inside a record.
    #[error("record {record} at byte {offset}: needs {expected} bytes, {found} are left")]
    Truncated {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// Bytes that it needs, as far as known.
        expected: usize,
        /// Bytes from its start to the end.
        found: usize,
    },
    /// The bytes go on behind the last record.
    #[error(
        "record {record} at byte {offset}: the list must end here, its count is {record}; \
         {found} bytes are left over"
    )]
    TrailingBytes {
        /// Number of records.
        record: usize,
        /// Byte behind the last record.
        offset: usize,
        /// Bytes left over.
        found: usize,
    },
    /// A pipeline handle that is not live.
    #[error("record {record} at byte {offset}: pipeline {handle} does not exist")]
    UnknownPipeline {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// The handle.
        handle: i32,
    },
    /// A buffer handle that is not live.
    #[error(
        "record {record} at byte {offset}: buffer {handle} at binding {binding} does not exist"
    )]
    UnknownBuffer {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// Which of its buffers.
        binding: usize,
        /// The handle.
        handle: i32,
    },
    /// More than [`MAX_BINDINGS`] buffers.
    #[error("record {record} at byte {offset}: at most 32 buffers, the record names {found}")]
    TooManyBuffers {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// Buffers that it names.
        found: u32,
    },
    /// Not the pipeline's number of buffers.
    #[error(
        "record {record} at byte {offset}: pipeline {pipeline} takes {expected} buffers, \
         the record names {found}"
    )]
    BufferCount {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// Handle of the pipeline.
        pipeline: i32,
        /// Buffers that the pipeline takes.
        expected: u32,
        /// Buffers that the record names.
        found: u32,
    },
    /// A group count above the device's limit.
    #[error("record {record} at byte {offset}: {axis} is {found}, the device's limit is {limit}")]
    GroupCount {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// `gX`, `gY` or `gZ`.
        axis: &'static str,
        /// The device's limit.
        limit: u32,
        /// What the record asks for.
        found: u32,
    },
    /// Not the pipeline's number of push-constant bytes.
    #[error(
        "record {record} at byte {offset}: pipeline {pipeline} takes {expected} bytes of push \
         constants, the record gives {found}"
    )]
    PushSize {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// Handle of the pipeline.
        pipeline: i32,
        /// Bytes that the pipeline takes.
        expected: u32,
        /// Bytes that the record gives.
        found: u32,
    },
    /// A push range that leaves the push area.
    #[error(
        "record {record} at byte {offset}: the push area has {area} bytes, the record names \
         {size} at {start}"
    )]
    PushRange {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// Bytes in the push area.
        area: usize,
        /// First byte of the range.
        start: u32,
        /// Bytes of the range.
        size: u32,
    },
}

impl DecodeError {
    /// Which of the caller's mistakes this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownPipeline { .. } | Self::UnknownBuffer { .. } => ErrorKind::InvalidHandle,
            _ => ErrorKind::InvalidArgument,
        }
    }
}

/// Decodes `count` packed records, which must fill `bytes` exactly.
///
/// A record is `i32 pipeline, u16 n, u16 flags, u32 gX, [u32 gZ,] u32 writeMask, i32 × n buffers,
/// push constants`; flag bit 0 says that gZ is present (else 1), bits 15…1 are gY (0 means 1).
/// [`Dispatch::push`] reads from the same `bytes`. Bits of the write mask at or above n are dropped.
///
/// # Errors
/// The first thing wrong, in record order; the batch is then empty.
pub fn decode_packed<T: Tables>(
    bytes: &[u8],
    count: usize,
    tables: &T,
    batch: &mut Batch,
) -> Result<(), DecodeError> {
    batch.clear();
    let result = packed(bytes, count, tables, batch);
    if result.is_err() {
        batch.clear();
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
    batch
        .dispatches
        .reserve(count.min(bytes.len() / PACKED_HEADER));
    let mut rest = bytes;
    for record in 0..count {
        let offset = bytes.len() - rest.len();
        let Some((head, mut tail)) = rest.split_first_chunk::<PACKED_HEADER>() else {
            return Err(truncated(record, offset, PACKED_HEADER, rest.len()));
        };
        let handle = i32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let n = u32::from(u16::from_le_bytes([head[4], head[5]]));
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
        let buffer_bytes = n as usize * 4;
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
        take_buffers(tables, record, offset, buffers, &mut batch.buffers)?;
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
        rest = &behind[push_bytes..];
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

/// Decodes a list of 32-bit words: `[count, wordsUntilPushArea]`, then per dispatch
/// `[pipeline, n, buf0 … buf(n-1), gX, gY, gZ, pushOffset, pushSize, writeMask]`, then the push area.
///
/// `wordsUntilPushArea` counts from the start of the list and must be where the records end.
/// `pushOffset` and `pushSize` are bytes within the area, which may hold more than is used;
/// `pushSize` must be the pipeline's. Group counts are literal: gY = 0 is a dispatch of nothing.
/// [`Dispatch::push`] reads from the same `bytes`. Bits of the write mask at or above n are dropped.
///
/// # Errors
/// The first thing wrong, in record order; the batch is then empty.
pub fn decode_words<T: Tables>(
    bytes: &[u8],
    tables: &T,
    batch: &mut Batch,
) -> Result<(), DecodeError> {
    batch.clear();
    let result = words(bytes, tables, batch);
    if result.is_err() {
        batch.clear();
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
        let shape = check_pipeline(tables, record, offset, handle, n)?;
        let Some((buffers, tail)) = tail.split_at_checked(n as usize) else {
            return Err(short(WORD_FIELDS + n as usize));
        };
        let [x, y, z, push_offset, push_size, mask, behind @ ..] = tail else {
            return Err(short(WORD_FIELDS + n as usize));
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
        take_buffers(
            tables,
            record,
            offset,
            buffers.as_flattened(),
            &mut batch.buffers,
        )?;
        batch.dispatches.push(Dispatch {
            pipeline: shape.slot,
            groups,
            // At most a quarter of the list's length, which fits 32 bits.
            first_buffer: first_buffer as u32,
            buffer_count: n,
            // Inside the list, by the check of the range.
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
/// `bytes` may be longer than `count` operations: callers keep one buffer for lists of all sizes.
/// Group counts are literal.
///
/// # Errors
/// The first thing wrong, in list order; `out` is then empty.
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

/// Looks the pipeline up and checks that n is its binding count, so that n is at most 32 after it.
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
    // One capacity check a record instead of one a buffer; which handle failed is found afterwards.
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
        // Only tables that answer the same question differently get here.
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

#[cfg(test)]
mod tests;

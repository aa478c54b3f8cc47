//! The errors of a refused list.

use thiserror::Error;

use super::ranges::RangeFault;

/// What kind of mistake an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A pipeline or buffer handle that is not live.
    InvalidHandle,
    /// Anything else that is wrong with the list.
    InvalidArgument,
}

/// Why a list was refused. `record` counts from 0; `offset` is the byte at which that record starts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
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
        /// Byte after the last record.
        offset: usize,
        /// Word after the last record.
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
    /// There are bytes after the last record.
    #[error(
        "record {record} at byte {offset}: the list must end here, its count is {record}; \
         {found} bytes are left over"
    )]
    TrailingBytes {
        /// Number of records.
        record: usize,
        /// Byte after the last record.
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
    /// More than [`super::MAX_BINDINGS`] buffers.
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
    /// A binding that the device cannot make.
    #[error(
        "record {record} at byte {offset}: buffer {handle}{} at binding {binding} {fault}",
        .name.as_ref().map_or(String::new(), |name| format!(" ({name})"))
    )]
    Binding {
        /// Index of the record.
        record: usize,
        /// Where it starts.
        offset: usize,
        /// Which of its buffers.
        binding: usize,
        /// The buffer.
        handle: i32,
        /// Its name, if it has one.
        name: Option<String>,
        /// What is wrong.
        fault: RangeFault,
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
    /// What kind of mistake this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownPipeline { .. } | Self::UnknownBuffer { .. } => ErrorKind::InvalidHandle,
            _ => ErrorKind::InvalidArgument,
        }
    }
}

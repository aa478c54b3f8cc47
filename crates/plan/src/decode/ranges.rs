//! What a dispatch binds of a buffer, and whether the device can bind that.

use thiserror::Error;

/// A range of a buffer in bytes, as a caller asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindingRange {
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for all to the buffer's end.
    pub size: u64,
}

/// Bytes of a range in a list: offset and size, both u64.
pub(super) const RANGE_BYTES: usize = 16;

impl BindingRange {
    pub(super) fn from_le_bytes(bytes: [u8; RANGE_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        Self {
            offset: u64::from_le_bytes(words[0]),
            size: u64::from_le_bytes(words[1]),
        }
    }

    /// What is bound of a buffer of `bytes` bytes, with its final size, which is 0 only for an empty buffer.
    ///
    /// # Errors
    /// If the device cannot bind it. A binding that the shader does not use (`used` is false) may have any size.
    pub fn resolve(
        self,
        bytes: u64,
        limits: BindingLimits,
        used: bool,
    ) -> Result<Self, RangeFault> {
        let Self { offset, size } = self;
        if !offset.is_multiple_of(limits.alignment) {
            return Err(RangeFault::Unaligned {
                offset,
                alignment: limits.alignment,
            });
        }
        // An empty buffer can be bound at offset 0.
        let inside = offset < bytes || offset == 0;
        let left = bytes.saturating_sub(offset);
        if !inside || size > left {
            return Err(RangeFault::Outside {
                offset,
                size,
                bytes,
            });
        }
        let bound = if size == 0 { left } else { size };
        if bound > limits.largest && used {
            return Err(RangeFault::TooLarge {
                bytes: bound,
                limit: limits.largest,
            });
        }
        Ok(Self {
            offset,
            size: bound.min(limits.largest),
        })
    }
}

/// The device's limits for a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingLimits {
    /// `maxStorageBufferRange`: the largest number of bytes in one binding.
    pub largest: u64,
    /// `minStorageBufferOffsetAlignment`.
    pub alignment: u64,
}

/// Why a binding is impossible. The text continues after the buffer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RangeFault {
    /// More than a descriptor can cover: the shader would not reach the rest.
    #[error(
        "binds {bytes} bytes, more than the device's maxStorageBufferRange of {limit}: bind a range \
         of it"
    )]
    TooLarge {
        /// Bytes that it would bind.
        bytes: u64,
        /// Most bytes of one binding.
        limit: u64,
    },
    /// An offset at which a descriptor must not start.
    #[error(
        "is bound from byte {offset}, which is not a multiple of the device's \
         minStorageBufferOffsetAlignment of {alignment}"
    )]
    Unaligned {
        /// First byte.
        offset: u64,
        /// What it must be a multiple of.
        alignment: u64,
    },
    /// A range that does not lie in the buffer.
    #[error("has {bytes} bytes, the range is of {size} at {offset}")]
    Outside {
        /// First byte.
        offset: u64,
        /// Bytes of the range, 0 for all to the end.
        size: u64,
        /// Bytes of the buffer.
        bytes: u64,
    },
}

//! Which bytes of which block a buffer gets, how large the next block is, and when idle blocks are given up.
//!
//! A pool of blocks is one space to it: the smallest free range that is large enough is taken, of those the one
//! that lies first, and what comes back is joined with its free neighbours. So there is no list of sizes to keep
//! or to tune, and a call costs a few steps in two balanced trees however many blocks there are. The driver is
//! asked by whoever holds the policy.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

/// Buffers start at this alignment, the largest that Vulkan lets a device ask for.
pub const ALIGNMENT: u64 = 256;
/// A new block is this part of what there is already, within [`Growth`]: larger ones would be left unused by more
/// than that at the peak, smaller ones would be many.
const PART: u64 = 32;
/// Idle blocks up to this size are never too many.
const MIN_IDLE: u64 = 256 << 20;
/// The device's budget nears its end when less than this part of it would be left.
const RESERVE: u64 = 16;

/// Rounds the size of a staging block up: steps of 256 bytes up to 2 KiB, then eight steps an octave,
/// so at most an eighth is unused.
pub fn size_class(bytes: u64) -> u64 {
    let last = bytes.max(ALIGNMENT) - 1;
    let octave = 63 - last.leading_zeros();
    let shift = (octave.saturating_sub(3)).max(8);
    ((last >> shift) + 1) << shift
}

/// Sizes of blocks.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// Those that several buffers share.
    pub min: u64,
    pub max: u64,
    /// All are multiples of this.
    pub page: u64,
}

/// Bytes of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub block: u32,
    pub offset: u64,
    pub bytes: u64,
}

/// The free ranges of a pool of blocks.
pub struct Policy {
    growth: Growth,
    /// Bytes of the largest block that the device allows.
    limit: u64,
    /// Bytes of each block; 0 where the number is vacant.
    blocks: Vec<u64>,
    /// Bytes of the free ranges, by block and offset; no two touch.
    by_place: BTreeMap<(u32, u64), u64>,
    /// The same by bytes, block and offset.
    by_size: BTreeSet<(u64, u32, u64)>,
    bytes: u64,
    free: u64,
}

impl Policy {
    /// `limit`: bytes of the largest block that the device allows.
    pub fn new(growth: Growth, limit: u64) -> Self {
        Self {
            growth,
            limit,
            blocks: Vec::new(),
            by_place: BTreeMap::new(),
            by_size: BTreeSet::new(),
            bytes: 0,
            free: 0,
        }
    }

    /// A range of `bytes` bytes, if there is one without a new block.
    pub fn take(&mut self, bytes: u64) -> Option<Range> {
        let &(size, block, offset) = self.by_size.range((bytes, 0, 0)..).next()?;
        self.remove(block, offset, size);
        if size > bytes {
            self.insert(block, offset + bytes, size - bytes);
        }
        Some(Range {
            block,
            offset,
            bytes,
        })
    }

    /// Takes back what [`Self::take`] gave.
    pub fn give_back(&mut self, range: Range) {
        let Range {
            block,
            mut offset,
            mut bytes,
        } = range;
        if let Some(&next) = self.by_place.get(&(block, offset + bytes)) {
            self.remove(block, offset + bytes, next);
            bytes += next;
        }
        let before = self.by_place.range(..(block, offset)).next_back();
        if let Some((&(other, start), &size)) = before
            && (other, start + size) == (block, offset)
        {
            self.remove(block, start, size);
            offset = start;
            bytes += size;
        }
        self.insert(block, offset, bytes);
    }

    fn insert(&mut self, block: u32, offset: u64, bytes: u64) {
        self.by_place.insert((block, offset), bytes);
        self.by_size.insert((bytes, block, offset));
        self.free += bytes;
    }

    fn remove(&mut self, block: u32, offset: u64, bytes: u64) {
        self.by_place.remove(&(block, offset));
        self.by_size.remove(&(bytes, block, offset));
        self.free -= bytes;
    }

    /// Bytes of the next block, for a buffer of `bytes` bytes: as many such buffers as fit the usual size, in
    /// whole pages.
    pub fn next_block(&self, bytes: u64) -> u64 {
        let usual = (self.bytes / PART).clamp(self.growth.min, self.growth.max);
        self.pages(bytes * (usual / bytes).max(1))
    }

    /// Bytes of the smallest block for such a buffer.
    pub fn smallest_block(&self, bytes: u64) -> u64 {
        self.pages(bytes)
    }

    fn pages(&self, bytes: u64) -> u64 {
        let pages = bytes.next_multiple_of(self.growth.page);
        pages.min(self.limit.max(bytes))
    }

    /// Adds a block, free as a whole; its number.
    pub fn add(&mut self, bytes: u64) -> u32 {
        let vacant = self.blocks.iter().position(|&bytes| bytes == 0);
        let block = vacant.unwrap_or_else(|| {
            self.blocks.push(0);
            self.blocks.len() - 1
        });
        self.blocks[block] = bytes;
        self.bytes += bytes;
        self.insert(block as u32, 0, bytes);
        block as u32
    }

    /// Blocks without a buffer.
    fn idle(&self) -> impl Iterator<Item = (u32, u64)> {
        let free = self.by_place.iter();
        free.filter(|&(&(block, offset), &bytes)| {
            offset == 0 && self.blocks[block as usize] == bytes
        })
        .map(|(&(block, _), &bytes)| (block, bytes))
    }

    /// Gives up all blocks without a buffer; their numbers.
    pub fn remove_idle(&mut self) -> Vec<u32> {
        let idle: Vec<_> = self.idle().collect();
        for &(block, bytes) in &idle {
            self.remove(block, 0, bytes);
            self.blocks[block as usize] = 0;
            self.bytes -= bytes;
        }
        idle.into_iter().map(|(block, _)| block).collect()
    }

    /// Whether idle blocks are to be given up before one of `more` bytes is made: the device's budget nears its
    /// end, or they are more than what is in use.
    pub fn wants_trim(&self, more: u64, used: u64, budget: u64) -> bool {
        let idle: u64 = self.idle().map(|(_, bytes)| bytes).sum();
        let left = budget.saturating_sub(used.saturating_add(more));
        left < budget / RESERVE || idle > self.in_use().max(MIN_IDLE)
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that buffers have.
    pub fn in_use(&self) -> u64 {
        self.bytes - self.free
    }

    /// Free ranges.
    pub fn free_ranges(&self) -> usize {
        self.by_place.len()
    }

    /// Whether the range is all of its block.
    pub fn is_whole(&self, range: &Range) -> bool {
        self.blocks[range.block as usize] == range.bytes
    }
}

#[cfg(test)]
mod tests;

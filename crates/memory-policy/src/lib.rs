//! Decides which bytes of which block a buffer gets, how large the next block is, and when idle blocks are freed.
//!
//! A pool of blocks is one space: allocation is best fit, and among equal ranges the first. A freed range is joined
//! with its free neighbours. So there are no size classes to tune, and a call costs a few steps in two balanced trees,
//! however many blocks there are. The caller talks to the driver.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

/// Alignment of buffers: the largest that Vulkan lets a device require.
pub const ALIGNMENT: u64 = 256;
/// A new block is this fraction of what is allocated already, within [`Growth`]. Larger blocks would leave more unused
/// at the peak; smaller ones would be many.
const PART: u64 = 32;
/// Idle blocks up to this total are always kept.
const MIN_IDLE: u64 = 256 << 20;
/// The device's budget is nearly used up when less than this fraction of it would be left.
const RESERVE: u64 = 16;

/// Rounds up the size of a staging block: steps of 256 bytes up to 2 KiB, then eight steps per octave, so at most an
/// eighth is unused.
pub fn size_class(bytes: u64) -> u64 {
    let last = bytes.max(ALIGNMENT) - 1;
    let octave = 63 - last.leading_zeros();
    let shift = (octave.saturating_sub(3)).max(8);
    ((last >> shift) + 1) << shift
}

/// Sizes of blocks.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// Bounds of blocks that several buffers share.
    pub min: u64,
    pub max: u64,
    /// All sizes are multiples of this.
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
    /// Bytes of each block; 0 if the number is vacant.
    blocks: Vec<u64>,
    /// Bytes of the free ranges, by block and offset. No two touch.
    by_place: BTreeMap<(u32, u64), u64>,
    /// The same ranges by size, block and offset.
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

    /// A range of `bytes` bytes from the existing blocks, if there is one.
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

    /// Frees a range that [`Self::take`] returned.
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

    /// Bytes of the next block, for buffers of `bytes` bytes: as many of them as fit the usual size, in whole pages.
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

    /// Adds a block that is entirely free. Returns its number.
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

    /// Blocks that hold no buffer.
    fn idle(&self) -> impl Iterator<Item = (u32, u64)> {
        let free = self.by_place.iter();
        free.filter(|&(&(block, offset), &bytes)| {
            offset == 0 && self.blocks[block as usize] == bytes
        })
        .map(|(&(block, _), &bytes)| (block, bytes))
    }

    /// Removes all blocks that hold no buffer. Returns their numbers.
    pub fn remove_idle(&mut self) -> Vec<u32> {
        let idle: Vec<_> = self.idle().collect();
        for &(block, bytes) in &idle {
            self.remove(block, 0, bytes);
            self.blocks[block as usize] = 0;
            self.bytes -= bytes;
        }
        idle.into_iter().map(|(block, _)| block).collect()
    }

    /// Whether to free idle blocks before making one of `more` bytes: the device's budget is nearly used up, or they
    /// exceed the memory in use.
    pub fn wants_trim(&self, more: u64, used: u64, budget: u64) -> bool {
        let idle: u64 = self.idle().map(|(_, bytes)| bytes).sum();
        let left = budget.saturating_sub(used.saturating_add(more));
        left < budget / RESERVE || idle > self.in_use().max(MIN_IDLE)
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes in use by buffers.
    pub fn in_use(&self) -> u64 {
        self.bytes - self.free
    }

    /// Free ranges.
    pub fn free_ranges(&self) -> usize {
        self.by_place.len()
    }

    /// Whether the range is its whole block.
    pub fn is_whole(&self, range: &Range) -> bool {
        self.blocks[range.block as usize] == range.bytes
    }
}

#[cfg(test)]
mod tests;

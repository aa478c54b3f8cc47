//! Copies out of memory that another thread may be writing, and into memory that the device reads.

use std::collections::TryReserveError;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes that another thread may write while we read them, as JavaScript does in a SharedArrayBuffer. No reference to
/// them is ever made: they are copied, and the copy is checked.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    data: *const u8,
    len: usize,
    lives: PhantomData<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        // SAFETY: as long as the slice lives.
        unsafe { Self::new(bytes.as_ptr(), bytes.len()) }
    }
}

impl<'a> Source<'a> {
    pub const EMPTY: Self = Self {
        data: std::ptr::null(),
        len: 0,
        lives: PhantomData,
    };

    /// # Safety
    /// For the time of `'a`, `data` must be valid for reads of `len` bytes, whoever writes there.
    pub unsafe fn new(data: *const u8, len: usize) -> Self {
        if data.is_null() {
            return Self::EMPTY;
        }
        Self {
            data,
            len,
            lives: PhantomData,
        }
    }

    pub fn len(self) -> usize {
        self.len
    }

    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Splits into chunks of `bytes` bytes; the last may be shorter.
    pub fn chunks(self, bytes: usize) -> impl Iterator<Item = Self> {
        (0..self.len).step_by(bytes).map(move |at| Self {
            data: self.data.wrapping_add(at),
            len: bytes.min(self.len - at),
            lives: PhantomData,
        })
    }

    /// Copies the first bytes to `target`, as many as there are and fit.
    pub fn read(self, target: &mut [u8]) {
        let len = self.len.min(target.len());
        // SAFETY: both are valid for that many bytes; the target is ours alone.
        unsafe { load(self.data, target.as_mut_ptr(), len) };
    }

    /// A copy; fails if the process is out of memory.
    pub fn to_vec(self) -> Result<Vec<u8>, TryReserveError> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.len)?;
        // SAFETY: there is room for all of them, and then they are there.
        unsafe {
            load(self.data, bytes.as_mut_ptr(), self.len);
            bytes.set_len(self.len);
        }
        Ok(bytes)
    }

    /// As [`copy`], to memory that the device reads.
    ///
    /// # Safety
    /// `target` must be valid for writes of as many bytes, and must not overlap them.
    pub unsafe fn copy_to(self, target: *mut u8) {
        // SAFETY: the caller's promise, and that of `new`. Only pointers are used: bytes that are written
        // meanwhile come out old or new, and nobody looks at them here.
        unsafe { copy(self.data, target, self.len) };
    }
}

/// Loads `len` bytes, each of which another thread may be writing: each is then an old or a new value.
///
/// # Safety
/// Both must be valid for reads and writes of `len` bytes, as atomics require; nobody else may access `target`.
unsafe fn load(source: *const u8, target: *mut u8, len: usize) {
    const WORD: usize = size_of::<u64>();
    let head = source.align_offset(WORD).min(len);
    let words = (len - head) / WORD;
    let byte = |at: usize| {
        // SAFETY: inside both, by the caller's promise. An atomic load may meet a write.
        unsafe {
            let value = AtomicU8::from_ptr(source.add(at).cast_mut());
            target.add(at).write(value.load(Ordering::Relaxed));
        }
    };
    (0..head).for_each(byte);
    for at in (0..words).map(|word| head + word * WORD) {
        // SAFETY: as above, and aligned.
        unsafe {
            let value = AtomicU64::from_ptr(source.add(at).cast_mut().cast());
            let target = target.add(at).cast::<u64>();
            target.write_unaligned(value.load(Ordering::Relaxed));
        }
    }
    (head + words * WORD..len).for_each(byte);
}

/// Copies of at least this many bytes use non-temporal stores: the host does not read the target again, so caching would
/// fetch and evict each line for nothing. On the host of an H200 (Xeon, 300 MB of cache) 4.7 MB take 295 µs instead of 570
/// into write-combined memory, and 286 instead of 498 into cached memory.
const STREAMED: usize = 1 << 20;

/// Copies `bytes` bytes; the device sees them with the next work it is given.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
pub unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= STREAMED && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise, and the processor has AVX.
        unsafe { stream(source, target, bytes) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(source, target, bytes) };
}

/// Copies with non-temporal stores, two cache lines at a time.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]; the processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream(source: *const u8, target: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    const LINE: usize = 64;
    const STEP: usize = 2 * LINE;
    const WIDTH: usize = size_of::<__m256i>();

    // Non-temporal stores write whole aligned vectors, so both ends are copied normally.
    let head = target.align_offset(LINE).min(bytes);
    let middle = (bytes - head) / STEP * STEP;
    // SAFETY: `head`, `middle` and the rest make up `bytes`, for which the caller vouches; after the
    // head the target is aligned.
    unsafe {
        std::ptr::copy_nonoverlapping(source, target, head);
        let mut at = head;
        while at < head + middle {
            let from = source.add(at).cast::<__m256i>();
            let to = target.add(at).cast::<__m256i>();
            let step: [__m256i; STEP / WIDTH] =
                std::array::from_fn(|i| _mm256_loadu_si256(from.add(i)));
            for (i, vector) in step.into_iter().enumerate() {
                _mm256_stream_si256(to.add(i), vector);
            }
            at += STEP;
        }
        std::ptr::copy_nonoverlapping(source.add(at), target.add(at), bytes - at);
    }
    // Only a fence orders non-temporal stores, also before the submission that follows.
    _mm_sfence();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_copied_whole_from_wherever_it_starts() {
        let bytes: Vec<u8> = (0..200).collect();
        for from in 0..20 {
            for len in 0..150 {
                let source = Source::from(&bytes[from..from + len]);
                assert_eq!(source.to_vec().unwrap(), bytes[from..from + len]);
                let mut short = [0; 30];
                source.read(&mut short);
                let read = len.min(30);
                assert_eq!(short[..read], bytes[from..from + read]);
                let pieces: Vec<u8> = source
                    .chunks(7)
                    .flat_map(|piece| piece.to_vec().unwrap())
                    .collect();
                assert_eq!(pieces, bytes[from..from + len]);
            }
        }
        assert!(Source::EMPTY.is_empty() && Source::EMPTY.to_vec().unwrap().is_empty());
    }

    #[test]
    fn every_byte_arrives_and_none_beyond() {
        let source: Vec<u8> = (0..STREAMED + 1000).map(|i| (i * 31 % 251) as u8).collect();
        for bytes in [
            0,
            1,
            63,
            STREAMED - 1,
            STREAMED,
            STREAMED + 1,
            STREAMED + 517,
        ] {
            for (from, to) in [(0, 0), (3, 0), (0, 1), (5, 31), (64, 33), (7, 63)] {
                let mut target = vec![0xa5u8; STREAMED + 1000];
                // SAFETY: both ranges lie inside their vectors.
                unsafe {
                    copy(
                        source.as_ptr().add(from),
                        target.as_mut_ptr().add(to),
                        bytes,
                    )
                };
                assert!(target[..to].iter().all(|&b| b == 0xa5));
                assert_eq!(target[to..to + bytes], source[from..from + bytes]);
                assert!(target[to + bytes..].iter().all(|&b| b == 0xa5));
            }
        }
    }
}

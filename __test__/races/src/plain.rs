//! Memory that is accessed without any lock, so that the sanitizer reports two threads whose accesses
//! nothing orders.

use std::cell::UnsafeCell;
use std::ptr::NonNull;

/// One word of it.
#[derive(Default)]
pub struct Plain<T>(UnsafeCell<T>);

// SAFETY: whether one thread at a time uses it is what the sanitizer is to find out.
unsafe impl<T: Send> Sync for Plain<T> {}

impl<T> Plain<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as above.
        change(unsafe { &mut *self.0.get() })
    }
}

impl<T: Copy> Plain<T> {
    // Not inlined: a read or a write that the compiler sees to be idle is left out.
    #[inline(never)]
    pub fn get(&self) -> T {
        // SAFETY: as above.
        unsafe { *self.0.get() }
    }

    #[inline(never)]
    pub fn set(&self, value: T) {
        // SAFETY: as above.
        unsafe { *self.0.get() = value }
    }
}

/// Words that a handle names: what a buffer or a pipeline stands on.
pub struct Block(Box<[Plain<u64>]>);

impl Block {
    pub fn new(words: usize) -> Box<Self> {
        Box::new(Self((0..words).map(|_| Plain::new(0)).collect()))
    }

    pub fn handle(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// The block of a handle, which must be alive.
    pub fn of<'a>(handle: u64) -> &'a Self {
        // SAFETY: handles are given out by `handle`; the scenarios keep their blocks.
        unsafe { &*std::ptr::with_exposed_provenance(handle as usize) }
    }

    /// Where its words lie.
    pub fn start(&self) -> NonNull<u8> {
        NonNull::from_ref(&*self.0).cast()
    }

    pub fn get(&self, at: u64) -> u64 {
        self.0[at as usize].get()
    }

    pub fn set(&self, at: u64, value: u64) {
        self.0[at as usize].set(value);
    }
}

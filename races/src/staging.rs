//! Blocks that the device writes without any lock, so that the sanitizer sees a block that is handed
//! over too early.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub struct Pool {
    asked: AtomicU64,
    returned: AtomicU64,
}

impl Pool {
    pub fn lease(self: &Arc<Self>, value: u64) -> Lease {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Lease {
            bytes: UnsafeCell::new([value; 8]),
            value,
            pool: Arc::clone(self),
        }
    }

    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    pub fn returned(&self) -> u64 {
        self.returned.load(Ordering::Acquire)
    }
}

pub struct Lease {
    bytes: UnsafeCell<[u64; 8]>,
    value: u64,
    pool: Arc<Pool>,
}

// SAFETY: one thread at a time has the lease; that is what the sanitizer is to find out.
unsafe impl Send for Lease {}

impl Lease {
    /// Reads and writes the block, as the JS thread would.
    pub fn check(&self) {
        // SAFETY: the lease was handed over to the caller.
        let bytes = unsafe { &mut *self.bytes.get() };
        assert!(bytes.iter().all(|word| *word == self.value));
        bytes[0] = self.value;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.check();
        self.pool.returned.fetch_add(1, Ordering::Release);
    }
}

//! Blocks that are accessed without any lock, so that the sanitizer reports one that is reused too
//! early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plain::Block;

#[derive(Default)]
pub struct Pool {
    asked: AtomicU64,
    returned: AtomicU64,
}

impl Pool {
    /// A block that is to hold `value`; the device writes it, or [`Lease::write`].
    pub fn lease(self: &Arc<Self>, value: u64) -> Lease {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Lease {
            block: Block::new(1),
            value: Some(value),
            pool: Arc::clone(self),
        }
    }

    /// Memory of a collective, of so many words, which holds what it is to compute.
    pub fn words(self: &Arc<Self>, words: u64) -> Lease {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Lease {
            block: Block::new(words as usize),
            value: None,
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
    block: Box<Block>,
    value: Option<u64>,
    pool: Arc<Pool>,
}

impl Lease {
    pub fn handle(&self) -> u64 {
        self.block.handle()
    }

    pub fn pointer(&self) -> *mut u8 {
        self.block.start().as_ptr()
    }

    pub fn write(&self) {
        self.block.set(0, self.value.unwrap_or(0));
    }

    /// Reads and writes the block, as the JS thread would.
    pub fn check(&self) {
        assert_eq!(Some(self.block.get(0)), self.value);
        self.write();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // As whoever has it next. If the work failed, nothing was written.
        let word = self.block.get(0);
        assert!(self.value.is_none_or(|value| word == value || word == 0));
        self.block.set(0, 0);
        self.pool.returned.fetch_add(1, Ordering::Release);
    }
}

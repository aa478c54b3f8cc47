//! Readback blocks: threads lease blocks, write them and give them back. Each word of a block belongs to one lease at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ash::vk::Handle;
use parking_lot::Mutex;

use crate::device::{Chance, Device, WORDS};
use crate::memory::allocator::Memory;
use crate::plain::{Block, Plain};
use crate::readback::{Lease, Readback};

/// Threads that read, like workers that share the device.
const READERS: u64 = 4;
/// Leases of each.
const HELD: usize = 8;
const TURNS: u64 = 500;
const MIB: u64 = 1 << 20;

struct Held {
    lease: Lease,
    word: u64,
}

impl Held {
    /// What the host sees at the block's address.
    fn words(&self) -> &[Plain<u64>] {
        // SAFETY: blocks have so many words, and live as long as the lease.
        unsafe { std::slice::from_raw_parts(self.lease.pointer().cast(), WORDS as usize) }
    }

    fn check(&self) {
        for word in self.words() {
            assert_eq!(word.get(), self.word);
        }
    }

    fn given_back(self) {
        self.check();
        self.words().iter().for_each(|word| word.set(0));
    }
}

/// A block with the device's copy in it; none where memory is scarce.
fn read(pool: &Arc<Readback>, bytes: u64, word: u64) -> Option<Held> {
    let lease = pool.lease(bytes).ok()?;
    assert_eq!(lease.len() as u64, bytes);
    for at in 0..WORDS {
        Block::of(lease.raw().as_raw()).set(at, word);
    }
    Some(Held { lease, word })
}

/// Few classes, most of them large.
fn size(chance: &mut Chance) -> u64 {
    match chance.one_in(16) {
        true => MIB / 4,
        false => MIB * (1 + chance.below(3)) - chance.below(1000),
    }
}

fn reader(pool: &Arc<Readback>, chance: &mut Chance, reader: u64) -> Vec<Held> {
    let mut held: Vec<Held> = Vec::new();
    for turn in 0..TURNS {
        held.extend(read(pool, size(chance), turn * READERS + reader + 1));
        if held.len() > HELD {
            let at = chance.below(held.len() as u64) as usize;
            held.swap_remove(at).given_back();
        }
        match chance.below(24) {
            0 => held.drain(..).for_each(Held::given_back),
            1 | 2 => {
                pool.trim();
            }
            3 => {
                let held = held.iter().map(|held| held.lease.len() as u64).sum::<u64>();
                assert!(pool.blocks().1 >= held && pool.leased_bytes() >= held);
                let _ = pool.idle_bytes();
            }
            _ => {}
        }
    }
    held
}

pub fn life(seed: u64) {
    let (device, gpu) = Device::new(true);
    let front = Arc::clone(&device.raw.front);
    front.scarce.store(seed % 3 * 5, Ordering::Relaxed);
    let memory = Memory::new(&device);
    let pool = Readback::new(Arc::clone(&memory));
    let left = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..READERS {
            let (pool, left) = (&pool, &left);
            scope.spawn(move || {
                let mut chance = Chance(seed * READERS + number);
                let held = reader(pool, &mut chance, number);
                left.lock().push((chance, held));
            });
        }
    });
    // The end comes while JS still holds blocks.
    pool.trim();
    let last = std::thread::scope(|scope| {
        for (mut chance, held) in left.into_inner() {
            scope.spawn(move || {
                for held in held {
                    std::thread::sleep(Duration::from_micros(chance.below(200)));
                    held.given_back();
                }
            });
        }
        let last: Vec<_> = (1..4).filter_map(|word| read(&pool, MIB, word)).collect();
        std::thread::sleep(Duration::from_micros(seed % 5 * 60));
        pool.close();
        last
    });
    last.into_iter().for_each(Held::given_back);
    assert_eq!(pool.blocks(), (0, 0));
    drop(pool);
    device.raw.stop();
    gpu.join().expect("a device");
    assert_eq!(front.objects.load(Ordering::Relaxed), 0);
}

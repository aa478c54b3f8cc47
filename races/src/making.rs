//! The arenas and the thread that makes them ahead: threads take parts, write them and give them back.
//! Each word of an arena belongs to one part at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ash::vk::Handle;
use parking_lot::Mutex;

use crate::arena::{Arenas, Part};
use crate::device::{Chance, Device, WORDS_PER_MIB};
use crate::plain::Block;

const TAKERS: u64 = 3;
/// Parts of each taker: together they hold enough that arenas are made ahead.
const HELD: usize = 14;
const TURNS: u64 = 120;
const MIB: u64 = 1 << 20;

struct Held {
    part: Part,
    mib: u64,
    word: u64,
}

impl Held {
    fn words(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.part.offset / MIB * WORDS_PER_MIB;
        first..first + self.mib * WORDS_PER_MIB
    }

    fn block(&self) -> &Block {
        Block::of(self.part.raw.as_raw())
    }
}

fn taken(arenas: &Mutex<Arenas>, mib: u64, word: u64) -> Option<Held> {
    let part = arenas.lock().take(mib * MIB).ok()?;
    let held = Held { part, mib, word };
    for at in held.words() {
        held.block().set(at, word);
    }
    Some(held)
}

fn given_back(arenas: &Mutex<Arenas>, held: &Held) {
    for at in held.words() {
        assert_eq!(held.block().get(at), held.word);
    }
    arenas.lock().give_back(&held.part);
}

pub fn life(seed: u64) {
    let (device, gpu) = Device::new(true);
    let front = Arc::clone(&device.raw.front);
    front.scarce.store(seed % 3 * 5, Ordering::Relaxed);
    let arenas = Mutex::new(Arenas::new(&device).expect("arenas"));
    std::thread::scope(|scope| {
        for taker in 0..TAKERS {
            let arenas = &arenas;
            scope.spawn(move || {
                let mut chance = Chance(seed * TAKERS + taker);
                let mut held: Vec<Held> = Vec::new();
                for turn in 0..TURNS {
                    let mib = 14 + chance.below(11);
                    held.extend(taken(arenas, mib, turn * TAKERS + taker + 1));
                    if held.len() > HELD {
                        let at = chance.below(held.len() as u64) as usize;
                        given_back(arenas, &held.swap_remove(at));
                    }
                    match chance.below(40) {
                        0 => held.drain(..).for_each(|part| given_back(arenas, &part)),
                        1 => arenas.lock().trim(),
                        2 => {
                            let arenas = arenas.lock();
                            assert!(arenas.bytes() >= arenas.used().1);
                            let _ = arenas.has_room(MIB);
                        }
                        _ => {}
                    }
                }
                held.iter().for_each(|part| given_back(arenas, part));
            });
        }
    });
    let mut arenas = arenas.into_inner();
    assert_eq!(arenas.used().1, 0);
    // They end while one is being made.
    for _ in 0..20 + seed % 8 {
        let _ = arenas.take(24 * MIB);
    }
    drop(arenas);
    device.raw.stop();
    gpu.join().expect("a device");
    assert_eq!(front.objects.load(Ordering::Relaxed), 0);
}

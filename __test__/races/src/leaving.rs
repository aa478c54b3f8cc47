//! The end of the process in the middle of work: threads leave the driver before it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::device::{Chance, Device, GONE};
use crate::error::Result;
use crate::memory::allocator::Memory;
use crate::memory::staging::{Lease, Pool};
use crate::plain::Block;
use crate::queue::completion;
use crate::queue::timeline::Timeline;
use crate::readback::Readback;
use crate::record::recorder::Recorder;

/// The driver's own handler.
pub extern "C" fn end_driver() {
    GONE.set(true);
    // Whoever is still in it is seen.
    std::thread::sleep(Duration::from_millis(30));
}

/// Ends the process while pieces are queued, blocks are leased and perhaps a promise is open.
pub fn leave(seed: u64) -> ! {
    // SAFETY: it may run at any time. The driver registers its handler as it is loaded: it runs last.
    unsafe { libc::atexit(end_driver) };
    let (device, _gpu) = Device::new(seed.is_multiple_of(2));
    let timeline = Arc::new(Timeline::new(Arc::clone(&device), 0).expect("a timeline"));
    let mut recorder =
        Recorder::new(&device, &Arc::default(), &timeline, 2, true).expect("a recorder");
    let pool = Readback::new(Memory::new(&device));
    let read = || pool.lease(24 << 20).expect("a block");
    let target = Block::new(1);
    let mut chance = Chance(seed);
    let paused = &device.raw.front.paused;
    // A slot that never becomes free, every third time.
    paused.store(seed.is_multiple_of(3), Ordering::Relaxed);
    let promised = chance.one_in(2);
    if promised {
        completion::start().expect("a thread");
        let pool = Arc::new(Pool::default());
        let done = Box::new(|outcome: Result<Option<Lease>>| drop(outcome));
        completion::when(&timeline, 1 << 40, Some(pool.lease(1)), done);
    }
    let _held: Vec<_> = (0..2 + chance.below(8)).map(|_| read()).collect();
    let pieces = chance.below(3) * chance.below(200);
    for order in 0..pieces {
        recorder.commands.fill(target.handle(), 0, order, 1);
        recorder.commands.submit(0, order + 1, 0, true);
        timeline.submitted(order + 1);
        recorder.hand_over().expect("handed over");
    }
    std::thread::sleep(Duration::from_micros(chance.below(3000)));
    if chance.one_in(2) {
        std::thread::sleep(Duration::from_micros(chance.below(400)));
    }
    std::process::exit(0)
}

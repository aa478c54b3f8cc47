//! The threads of the addon for ThreadSanitizer to watch: its own source files, on stand-ins for the
//! device, its memory, the encoder and the completion thread's blocks.
//!
//! `node scripts/races.mjs`; as a program without the sanitizer it checks the results alone.
//!
//! - `helios-races ROUNDS`: lives of a device, in which many threads do what workers do;
//! - `helios-races leave SEED`: the end of the process in the middle of work;
//! - `helios-races group SEED`: a member of a group of processes, with calls under way as it ends in one of several ways;
//! - `helios-races race`: a race on purpose, which the sanitizer must find.
//!
//! Built with the feature `seeded`, the group's thread does not wait for the device: `group` must find that.

mod asking;
#[path = "."]
mod collective {
    #[path = "../../../src/collective/group.rs"]
    #[allow(dead_code)]
    pub mod group;
    #[cfg(not(feature = "seeded"))]
    #[path = "../../../src/collective/thread.rs"]
    #[allow(dead_code)]
    pub mod thread;
    /// The same, but for its wait for the device: `build.rs` has left that out.
    #[cfg(feature = "seeded")]
    #[allow(dead_code)]
    pub mod thread {
        include!(concat!(env!("OUT_DIR"), "/thread.rs"));
    }
}
#[path = "../../../src/config.rs"]
#[allow(dead_code)]
mod config;
mod device;
mod error;
mod exchanging;
mod leaving;
mod making;
mod pipeline;
mod plain;
#[path = "../../../src/memory/staging.rs"]
#[allow(dead_code)]
mod readback;
mod recording;

#[path = "../../../src/test_faults.rs"]
#[allow(dead_code)]
mod test_faults;

/// Rooms of the addon with some of their files: `path` counts from this folder.
#[path = "."]
mod memory {
    #[path = "memory.rs"]
    pub mod allocator;
    #[path = "../../../src/memory/bulk.rs"]
    #[allow(dead_code)]
    pub mod bulk;
    #[path = "../../../src/memory/host_memory.rs"]
    #[allow(dead_code)]
    pub mod host_memory;
    pub mod staging;
    pub mod kind {
        pub use super::allocator::Kind;
    }
    pub use allocator::{Memory, Resource};
}
#[path = "."]
mod observe {
    pub mod blackbox;
    pub mod profile;
}
#[path = "."]
mod plan {
    /// What commands say of lists.
    pub mod decode {
        #[derive(Clone, Copy)]
        pub struct BindingRange {
            pub offset: u64,
            pub size: u64,
        }
    }
    pub mod hazard;
}
#[path = "../../../src/queue"]
mod queue {
    pub mod completion;
    #[allow(dead_code)]
    pub mod exit;
    #[allow(dead_code)]
    pub mod interrupt;
    pub mod submit;
    #[allow(dead_code)]
    pub mod timeline;
}
#[path = "../../../src/record"]
#[allow(dead_code)]
mod record {
    pub mod commands;
    pub mod descriptors;
    #[path = "../../__test__/races/src/encoder.rs"]
    pub mod encoder;
    pub mod recorder;
    pub mod ring;
}

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use plain::Plain;

/// Two threads at one word with nothing to order them: what the sanitizer must find, if it is there at
/// all. One comes after the other, since it may miss what is done in the same instant; both live until
/// both are done, since the end of one before the other begins would order them; and they tell each
/// other without a lock, which would order them too.
fn race() {
    let word = Plain::new(0u64);
    let done = AtomicU32::new(0);
    let until = |count: u32| {
        while done.load(Ordering::Relaxed) < count {
            std::thread::yield_now();
        }
    };
    let (word, done, until) = (&word, &done, &until);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                until(thread);
                word.set(u64::from(thread));
                done.fetch_add(1, Ordering::Relaxed);
                until(2);
            });
        }
    });
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next();
    let number = |text: Option<String>, otherwise| {
        let number = text.and_then(|text| text.parse::<u64>().ok());
        number.unwrap_or(otherwise)
    };
    match what.as_deref() {
        Some("race") => return race(),
        Some("leave") => leaving::leave(number(arguments.next(), 0)),
        Some("group") => return exchanging::life(number(arguments.next(), 0)),
        _ => {}
    }
    let rounds = number(what, 20);
    let mut seconds = [0.0; 3];
    for round in 0..rounds {
        let lives: [&dyn Fn(); 3] = [
            &|| {
                for end in [asking::End::Drained, asking::End::Early, asking::End::Lost] {
                    asking::life(end);
                }
            },
            &|| recording::lives(round),
            &|| making::life(round),
        ];
        for (seconds, lives) in seconds.iter_mut().zip(lives) {
            let since = Instant::now();
            lives();
            *seconds += since.elapsed().as_secs_f64();
        }
    }
    let [asking, recording, making] = seconds;
    println!(
        "{rounds} rounds: completion {asking:.1} s, recorder {recording:.1} s, readback {making:.1} s"
    );
}

//! An MPI of one process. It has what `member.rs` calls, and touches memory when it is asked for progress, as MPI does.

use std::sync::atomic::{AtomicU64, Ordering};

/// The collective that fails, by its number among all; 0 for none. Two come before a rank's first call: the start, and the
/// comparison of that call.
pub static FAILS_AT: AtomicU64 = AtomicU64::new(0);
/// The collective that never ends; 0 for none.
pub static HANGS_AT: AtomicU64 = AtomicU64::new(0);

pub mod library {
    pub struct Found {
        pub library: String,
        pub version: String,
    }

    pub struct Missing {
        pub library: String,
        pub reason: String,
    }

    pub struct Loaded {
        pub found: Found,
    }

    pub fn find(names: &[String]) -> Result<Loaded, Vec<Missing>> {
        let library = names.first().cloned().unwrap_or_default();
        let version = "a stand-in".to_owned();
        Ok(Loaded {
            found: Found { library, version },
        })
    }
}

pub mod world {
    use std::ptr;

    use super::library::Loaded;
    use super::{FAILS_AT, HANGS_AT, Ordering};
    use crate::call::{Call, Kind};

    /// Ranks of the group, of which this is the first.
    pub const RANKS: u32 = 2;
    /// Bytes of a word.
    const WORD: u64 = 8;

    struct Pending {
        call: Call,
        input: *const u8,
        data: *mut u8,
        number: u64,
        /// Questions until it ends.
        left: u64,
    }

    pub struct World {
        pub rank: u32,
        pub size: u32,
        begun: u64,
        pending: Option<Pending>,
    }

    impl World {
        pub fn start(_: &Loaded) -> Result<Self, String> {
            Ok(Self {
                rank: 0,
                size: RANKS,
                begun: 0,
                pending: None,
            })
        }

        /// # Safety
        /// As the real one: the memory is the collective's until `test` has said that it ended.
        pub unsafe fn begin(
            &mut self,
            call: &Call,
            input: Option<*const u8>,
            data: *mut u8,
        ) -> Result<(), String> {
            self.begun += 1;
            if self.begun == FAILS_AT.load(Ordering::Relaxed) {
                return Err("MPI_Iallreduce failed: on purpose".to_owned());
            }
            assert!(self.pending.is_none(), "one at a time");
            self.pending = Some(Pending {
                call: *call,
                input: input.unwrap_or(data),
                data,
                number: self.begun,
                left: self.begun % 3,
            });
            Ok(())
        }

        pub fn test(&mut self) -> Result<bool, String> {
            let Some(pending) = &mut self.pending else {
                return Ok(true);
            };
            if pending.number == HANGS_AT.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if pending.left > 0 {
                pending.left -= 1;
                return Ok(false);
            }
            pending.carry_out();
            self.pending = None;
            Ok(true)
        }

        pub fn finalize(self) -> Result<(), String> {
            Ok(())
        }
    }

    impl Pending {
        fn carry_out(&self) {
            let size = u64::from(RANKS);
            let part = self.call.part_bytes(RANKS) as usize;
            match self.call.kind {
                Kind::AllReduce => self.add_one(self.call.elements * 4 / WORD),
                Kind::ReduceScatter => self.add_one(self.call.elements / size * 4 / WORD),
                // What the other ranks give is what this one does.
                Kind::AllGather => {
                    for rank in 1..RANKS as usize {
                        // SAFETY: the collective's memory has so many bytes of each rank.
                        unsafe {
                            let other = self.data.add(rank * part);
                            ptr::copy_nonoverlapping(self.data, other, part);
                        }
                    }
                }
                // What the other ranks send to this one is what it sends to each of them.
                Kind::AllToAll => {
                    let half = RANKS as usize * part;
                    // SAFETY: the collective's memory has two halves of so many bytes.
                    unsafe { ptr::copy_nonoverlapping(self.data, self.data.add(half), half) };
                }
                Kind::Broadcast | Kind::Leave => {}
            }
        }

        fn add_one(&self, words: u64) {
            let (from, to) = (self.input.cast::<u64>(), self.data.cast::<u64>());
            for at in 0..words as usize {
                // SAFETY: the collective's memory has so many words; whether it is nobody else's meanwhile is what the
                // sanitizer is to find out.
                unsafe { to.add(at).write(from.add(at).read() + 1) };
            }
        }
    }
}

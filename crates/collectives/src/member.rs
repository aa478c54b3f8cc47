//! A rank that works over MPI: it starts the engine, compares each call with those of the other ranks, and carries it out.
//!
//! Whatever waits for other ranks polls `stop` while it waits, and has a time limit.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::call::{BYTES, Call, Element, Kind, mismatch};
use crate::failure::{Cause, Failure};
use crate::mpi::library::{Missing, find};
use crate::mpi::world::World;

/// How long a rank polls without a pause for ranks that have not come yet.
const EAGER: Duration = Duration::from_millis(1);
/// The pause between polls after that.
const PAUSE: Duration = Duration::from_micros(50);
/// Bytes of the text that rank 0 sends to all others.
pub const MAX_TEXT: usize = 1024;

/// Whether an MPI has been started in this process, which it can be once.
static STARTED: Mutex<bool> = Mutex::new(false);

fn started() -> MutexGuard<'static, bool> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether MPI may start now: the caller starts it then, and nobody else does any more. False if `stop` says so. That is
/// asked under the lock, so that whoever stops a start and then asks [`Member::started`] gets the last word.
fn claim(stop: &dyn Fn() -> bool) -> Result<bool, Failure> {
    let mut started = started();
    if stop() {
        return Ok(false);
    }
    if std::mem::replace(&mut *started, true) {
        let text = "MPI was started in this process before, and starts once: begin a new process";
        return Err(Failure::engine(text));
    }
    Ok(true)
}

#[derive(Debug)]
pub struct Options {
    pub rank: u32,
    pub size: u32,
    /// Names or paths of libraries, in the order in which they are tried.
    pub libraries: Vec<String>,
    /// Of rank 0, for all others; at most [`MAX_TEXT`] bytes.
    pub text: String,
    /// How long one collective may take from the moment at which this rank comes to it.
    pub limit: Duration,
}

/// Memory that a collective works on. It is leaked if the collective does not end, since the engine may write there for as
/// long as the process lives.
///
/// # Safety
/// `data` is valid for reads and writes of what the call stages, until the value is dropped, and nobody else uses it
/// meanwhile. Where `input` gives an address, that is valid for reads of the whole range, nobody writes there meanwhile,
/// and `data` holds what the call stages of its result alone.
pub unsafe trait Memory {
    fn data(&mut self) -> *mut u8;
    /// The elements of a reduce-scatter that must leave the shards of the other ranks as they are.
    fn input(&self) -> Option<*const u8> {
        None
    }
}

// SAFETY: the bytes are the vector's, which does not change its size here.
unsafe impl Memory for Vec<u8> {
    fn data(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }
}

/// The end of a collective.
pub enum Ended<M> {
    /// The memory holds the result.
    Done(M),
    /// `stop` asked for it.
    Stopped,
}

/// A rank of a group. Only the thread that started it may use it.
pub struct Member {
    world: World,
    rank: u32,
    size: u32,
    limit: Duration,
}

fn no_engine(missing: &[Missing]) -> Failure {
    let mut text = "no MPI library loads; `apt-get install openmpi-bin` or `apt-get install mpich` gets one. Tried:"
        .to_owned();
    for Missing { library, reason } in missing {
        text += &format!("\n  {library}: {reason}");
    }
    Failure::new(Cause::NoEngine, text, None)
}

impl Member {
    /// Whether an engine was started in this process: another one cannot be.
    pub fn started() -> bool {
        *started()
    }

    /// Starts the engine together with all other ranks, and returns the text of rank 0. None if `stop` asks for it, which may
    /// be before MPI has started: finding its library may take long. May block until the other ranks are there: MPI cannot be
    /// stopped then.
    pub fn start(
        options: Options,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<(Self, String)>, Failure> {
        let Options {
            rank,
            size,
            libraries,
            text,
            limit,
        } = options;
        let loaded = find(&libraries).map_err(|missing| no_engine(&missing))?;
        if !claim(stop)? {
            return Ok(None);
        }
        let world = World::start(&loaded).map_err(Failure::engine)?;
        if (world.rank, world.size) != (rank, size) {
            return Err(Failure::engine(format!(
                "this process is rank {rank} of {size} by its environment, and rank {} of {} by {} ({}): another MPI's \
                 launcher started it, or none",
                world.rank, world.size, loaded.found.version, loaded.found.library
            )));
        }
        let mut member = Self {
            world,
            rank,
            size,
            limit,
        };
        let mut bytes = text.into_bytes();
        bytes.resize(MAX_TEXT, 0);
        let call = exchange_of(Kind::Broadcast, MAX_TEXT);
        match member.collective(&call, bytes, true, "the start", stop)? {
            Ended::Done(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                Ok(Some((member, text.trim_end_matches('\0').to_owned())))
            }
            Ended::Stopped => Ok(None),
        }
    }

    /// Compares a call with those of all other ranks and carries it out on the memory.
    pub fn run<M: Memory>(
        &mut self,
        call: &Call,
        memory: M,
        stop: &dyn Fn() -> bool,
    ) -> Result<Ended<M>, Failure> {
        if !self.agree(call, stop)? {
            return Ok(Ended::Stopped);
        }
        self.collective(call, memory, false, &of(call), stop)
    }

    /// Leaves together with all other ranks; false if `stop` said so.
    pub fn leave(mut self, call: &Call, stop: &dyn Fn() -> bool) -> Result<bool, Failure> {
        if !self.agree(call, stop)? {
            return Ok(false);
        }
        // All ranks are here: none waits for one that has yet to come.
        self.world.finalize().map_err(Failure::engine)?;
        Ok(true)
    }

    /// Whether the other ranks call the same, before any of them begins; false if `stop` said so.
    fn agree(&mut self, call: &Call, stop: &dyn Fn() -> bool) -> Result<bool, Failure> {
        let mut bytes = vec![0; BYTES * self.size as usize];
        let own = self.rank as usize * BYTES;
        bytes[own..own + BYTES].copy_from_slice(&call.to_bytes());
        let all = exchange_of(Kind::AllGather, bytes.len());
        let Ended::Done(bytes) = self.collective(&all, bytes, true, &of(call), stop)? else {
            return Ok(false);
        };
        let (calls, _) = bytes.as_chunks::<BYTES>();
        let calls: Vec<_> = calls.iter().map(Call::from_bytes).collect();
        match mismatch(&calls) {
            Some((rank, text)) => Err(Failure::new(Cause::Mismatch, text, Some(rank))),
            None => Ok(true),
        }
    }

    /// `patient`: the other ranks may take long to come. Otherwise they are there, and a pause would only slow it down.
    fn collective<M: Memory>(
        &mut self,
        call: &Call,
        mut memory: M,
        patient: bool,
        name: &str,
        stop: &dyn Fn() -> bool,
    ) -> Result<Ended<M>, Failure> {
        let (input, data) = (memory.input(), memory.data());
        // SAFETY: the memory's promise. Below it is kept until the collective has ended, or leaked.
        let mut ended = unsafe { self.world.begin(call, input, data) }.map(|()| false);
        let begun = Instant::now();
        loop {
            let failure = match ended {
                Ok(true) => return Ok(Ended::Done(memory)),
                Ok(false) if stop() => None,
                Ok(false) if begun.elapsed() > self.limit => Some(Failure::new(
                    Cause::Timeout,
                    format!(
                        "{name} has not ended in {} s, and nobody says which rank is missing",
                        self.limit.as_secs()
                    ),
                    None,
                )),
                Ok(false) => {
                    match patient && begun.elapsed() > EAGER {
                        true => std::thread::sleep(PAUSE),
                        false => std::thread::yield_now(),
                    }
                    ended = self.world.test();
                    continue;
                }
                Err(problem) => Some(Failure::engine(format!("{name}: {problem}"))),
            };
            std::mem::forget(memory);
            return failure.map_or(Ok(Ended::Stopped), Err);
        }
    }
}

/// A collective on bytes that the ranks hold among themselves: no caller asked for it, so it has no number.
fn exchange_of(kind: Kind, bytes: usize) -> Call {
    Call {
        kind,
        element: Element::U8,
        elements: bytes as u64,
        root: 0,
        number: 0,
    }
}

fn of(call: &Call) -> String {
    format!("call {} ({call})", call.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all tests of this process this one alone starts.
    #[test]
    fn a_start_that_was_stopped_leaves_mpi_to_the_next_one() {
        assert_eq!(claim(&|| true), Ok(false));
        assert!(!Member::started());
        assert_eq!(claim(&|| false), Ok(true));
        assert!(Member::started());
        assert!(claim(&|| false).is_err(), "once in a process");
        assert_eq!(claim(&|| true), Ok(false), "nor does a stop fail");
    }
}

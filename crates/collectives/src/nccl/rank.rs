//! One rank at work: what Vulkan has done is waited for on a stream of CUDA's, the collective runs behind it, and the
//! stream signals Vulkan.
//!
//! Nothing of NCCL's is given to the stream before Vulkan has signalled: to end what is under way, NCCL never has to wait
//! for Vulkan, which may be waiting for NCCL.

use std::sync::Weak;
use std::time::{Duration, Instant};

use super::cuda::{Address, Context, Cuda, Imported, Mirror, OwnedFd, Semaphore, Stream, Uuid};
use super::library::{Communicator, UniqueId, find};
use crate::call::{BYTES, Call, Element, Kind, mismatch};
use crate::failure::{Cause, Failure};

/// How long the stream is asked without a pause.
const EAGER: Duration = Duration::from_millis(1);
/// The pause between questions after that.
const PAUSE: Duration = Duration::from_micros(20);
/// How long the stream may take to come to its end once NCCL has given up.
const DRAIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Options {
    pub rank: u32,
    pub size: u32,
    /// Names or paths of NCCL, in the order in which they are tried, and of CUDA's driver.
    pub libraries: Vec<String>,
    pub drivers: Vec<String>,
    /// Rank 0's, the same on all ranks.
    pub id: UniqueId,
    /// How long one collective may take from the moment at which this rank comes to it.
    pub limit: Duration,
}

/// The device of Vulkan's, as CUDA gets hold of it.
#[derive(Debug)]
pub struct Device {
    pub uuid: Uuid,
    /// The timeline that Vulkan signals with the numbers of calls.
    pub arrives: OwnedFd,
    /// The one that it waits for.
    pub departs: OwnedFd,
}

/// A range of memory that Vulkan has made for others to use as well.
#[derive(Debug)]
pub struct Range {
    /// As long-lived as the memory, and its name.
    pub memory: Weak<()>,
    /// The first time alone.
    pub fd: Option<OwnedFd>,
    /// Of the memory.
    pub size: u64,
    pub dedicated: bool,
    /// Bytes at which the range begins.
    pub offset: u64,
}

/// A rank of a group. Of the thread that started it; to be ended by [`Rank::end`], after [`Rank::leave`] or without.
pub struct Rank {
    // Dropped in this order: the communicator ends what is on the stream.
    comm: Option<Communicator>,
    known: Vec<(Weak<()>, Imported)>,
    mirror: Mirror,
    arrives: Semaphore,
    departs: Semaphore,
    stream: Stream,
    context: Context,
    rank: u32,
    size: u32,
    limit: Duration,
}

/// Asks until the answer is yes; false if `stop` said so.
fn until(
    mut done: impl FnMut() -> Result<bool, Failure>,
    stop: &dyn Fn() -> bool,
) -> Result<bool, Failure> {
    let begun = Instant::now();
    while !done()? {
        if stop() {
            return Ok(false);
        }
        match begun.elapsed() > EAGER {
            true => std::thread::sleep(PAUSE),
            false => std::thread::yield_now(),
        }
    }
    Ok(true)
}

impl Rank {
    /// Starts NCCL together with all other ranks; none if `stop` said so.
    pub fn start(
        options: Options,
        device: Device,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, Failure> {
        let Options {
            rank,
            size,
            libraries,
            drivers,
            id,
            limit,
        } = options;
        let nccl = find(&libraries)?;
        let context = Cuda::load(&drivers)?.open(&device.uuid)?;
        let cuda = context.cuda;
        let stream = Stream::new(cuda)?;
        let departs = Semaphore::new(cuda, device.departs)?;
        let arrives = Semaphore::new(cuda, device.arrives)?;
        let mirror = Mirror::new(cuda, BYTES * size as usize)?;
        let comm = Communicator::begin(nccl, rank, size, id)?;
        let started = Self {
            comm: Some(comm),
            known: Vec::new(),
            mirror,
            arrives,
            departs,
            stream,
            context,
            rank,
            size,
            limit,
        };
        let ready = until(|| started.comm()?.ready(), stop)?;
        Ok(ready.then_some(started))
    }

    fn comm(&self) -> Result<&Communicator, Failure> {
        let gone = || Failure::engine("the communicator is gone");
        self.comm.as_ref().ok_or_else(gone)
    }

    /// Waits until Vulkan has signalled the number of the call; false if `stop` said so.
    pub fn arrive(&mut self, call: &Call, stop: &dyn Fn() -> bool) -> Result<bool, Failure> {
        self.arrives.wait(&self.stream, call.number)?;
        until(|| self.stream.done(), stop)
    }

    /// Compares a call with those of all other ranks, carries it out on the range, and signals its number to Vulkan;
    /// false if `stop` said so. [`Self::arrive`] has waited for Vulkan.
    pub fn run(
        &mut self,
        call: &Call,
        range: Range,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, Failure> {
        let data = self.address(range)?;
        if !self.agree(call, stop)? {
            return Ok(false);
        }
        let since = Instant::now();
        if !self.collective(call, data, since, stop)? {
            return Ok(false);
        }
        self.departs.signal(&self.stream, call.number)?;
        self.finish(call, since, stop)
    }

    /// Leaves together with all other ranks; false if `stop` said so.
    pub fn leave(&mut self, call: &Call, stop: &dyn Fn() -> bool) -> Result<bool, Failure> {
        if !self.agree(call, stop)? || !self.collective(call, 0, Instant::now(), stop)? {
            return Ok(false);
        }
        match self.comm.take() {
            Some(comm) => comm.destroy().map(|()| true),
            None => Ok(true),
        }
    }

    /// Ends what is under way, here, and frees everything. False if the stream does not come to an end: then all that
    /// it may be at work on is leaked, and nothing of it may be signalled by others.
    pub fn end(mut self) -> bool {
        self.comm = None;
        let since = Instant::now();
        let late = || since.elapsed() > DRAIN;
        // A stream that answers with an error has ended, too.
        let drained = until(|| self.stream.done(), &late).unwrap_or(true);
        if !drained {
            std::mem::forget(self);
        }
        drained
    }

    /// Where the range begins for CUDA. Each memory is imported once, and let go of once Vulkan has freed it.
    fn address(&mut self, range: Range) -> Result<Address, Failure> {
        // The stream is done with the calls before.
        self.known.retain(|(memory, _)| memory.strong_count() > 0);
        let known = |(memory, _): &&(Weak<()>, Imported)| memory.ptr_eq(&range.memory);
        if let Some((_, imported)) = self.known.iter().find(known) {
            return Ok(imported.address + range.offset);
        }
        let gone = || Failure::engine("memory that was shared before is not known any more");
        let fd = range.fd.ok_or_else(gone)?;
        let imported = Imported::new(self.context.cuda, fd, range.size, range.dedicated)?;
        let address = imported.address + range.offset;
        self.known.push((range.memory, imported));
        Ok(address)
    }

    /// Whether the other ranks call the same, before any of them begins; false if `stop` said so.
    fn agree(&mut self, call: &Call, stop: &dyn Fn() -> bool) -> Result<bool, Failure> {
        if self.size == 1 {
            return Ok(true);
        }
        let own = self.rank as usize * BYTES;
        self.mirror.host()[own..own + BYTES].copy_from_slice(&call.to_bytes());
        self.mirror.to_device(&self.stream)?;
        let gather = Call {
            kind: Kind::AllGather,
            element: Element::U8,
            elements: (BYTES * self.size as usize) as u64,
            ..*call
        };
        let since = Instant::now();
        if !self.collective(&gather, self.mirror.device, since, stop)? {
            return Ok(false);
        }
        self.mirror.to_host(&self.stream)?;
        if !self.finish(call, since, stop)? {
            return Ok(false);
        }
        let (calls, _) = self.mirror.host().as_chunks::<BYTES>();
        let calls: Vec<_> = calls.iter().map(Call::from_bytes).collect();
        match mismatch(&calls) {
            Some((rank, text)) => Err(Failure::new(Cause::Mismatch, text, Some(rank))),
            None => Ok(true),
        }
    }

    /// Gives a collective to the stream, or the end of the communicator to NCCL; false if `stop` said so.
    fn collective(
        &self,
        call: &Call,
        data: Address,
        since: Instant,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, Failure> {
        let comm = self.comm()?;
        // SAFETY: the range is as long as the call says, on the device that the thread's context is of, and imported for
        // as long as the stream is at work; Vulkan uses it before `arrives` and behind `departs`.
        unsafe { comm.collective(call, data, [self.rank, self.size], &self.stream) }?;
        let ready = || self.in_time(call, since).and_then(|()| comm.ready());
        until(ready, stop)
    }

    /// Waits for the stream; false if `stop` said so.
    fn finish(
        &self,
        call: &Call,
        since: Instant,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, Failure> {
        let comm = self.comm()?;
        let done = || {
            self.in_time(call, since)?;
            comm.ready()?;
            self.stream.done()
        };
        until(done, stop)
    }

    fn in_time(&self, call: &Call, since: Instant) -> Result<(), Failure> {
        if since.elapsed() <= self.limit {
            return Ok(());
        }
        Err(Failure::new(
            Cause::Timeout,
            format!(
                "call {} ({call}) has not ended in {} s, and nobody says which rank is missing",
                call.number,
                self.limit.as_secs()
            ),
            None,
        ))
    }
}

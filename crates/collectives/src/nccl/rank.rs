//! A rank that works on the device: a collective runs on a CUDA stream, which signals Vulkan.
//!
//! A collective is enqueued on the stream only once Vulkan has reached it. So NCCL never waits for Vulkan while Vulkan waits
//! for NCCL.

use std::sync::Weak;
use std::time::{Duration, Instant};

use super::cuda::{Address, Context, Cuda, Imported, Mirror, OwnedFd, Semaphore, Stream, Uuid};
use super::library::{Communicator, UniqueId, find};
use crate::call::{BYTES, Call, Element, Kind, mismatch};
use crate::failure::{Cause, Failure};

/// How long is asked without a pause.
const EAGER: Duration = Duration::from_millis(1);
/// The pause between questions after that.
const PAUSE: Duration = Duration::from_micros(20);
/// Calls that are compared at once, at most.
pub const AT_ONCE: usize = 16;
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
    /// The timeline that Vulkan waits for, to reach the numbers of calls.
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
    departs: Semaphore,
    stream: Stream,
    context: Context,
    rank: u32,
    size: u32,
    limit: Duration,
}

/// Asks until the answer is yes; false if `stop` said so.
pub fn until<E>(
    mut done: impl FnMut() -> Result<bool, E>,
    stop: &dyn Fn() -> bool,
) -> Result<bool, E> {
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
        let mirror = Mirror::new(cuda, AT_ONCE * BYTES * size as usize)?;
        let comm = Communicator::begin(nccl, rank, size, id)?;
        let started = Self {
            comm: Some(comm),
            known: Vec::new(),
            mirror,
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

    /// Compares calls, each with where its memory begins, with those of all other ranks, carries out in order those that
    /// all ranks have come to, and signals the number of the last to Vulkan. That last one; none if `stop` said so.
    /// Vulkan has come to all of them.
    pub fn run(
        &mut self,
        calls: &[(Call, Address)],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Call>, Failure> {
        let own: Vec<_> = calls.iter().map(|&(call, _)| call).collect();
        let Some(common) = self.agree(&own, stop)? else {
            return Ok(None);
        };
        let mut since = Instant::now();
        for (call, data) in &calls[..common] {
            since = Instant::now();
            // The stream keeps their order. NCCL takes longer to start one than a small one takes: nothing waits in between.
            if !self.collective(call, *data, since, stop)? {
                return Ok(None);
            }
        }
        let last = own[common - 1];
        self.departs.signal(&self.stream, last.number)?;
        Ok(self.finish(&last, since, stop)?.then_some(last))
    }

    /// Leaves together with all other ranks; false if `stop` said so.
    pub fn leave(&mut self, call: &Call, stop: &dyn Fn() -> bool) -> Result<bool, Failure> {
        let agreed = self.agree(&[*call], stop)?.is_some();
        if !agreed || !self.collective(call, 0, Instant::now(), stop)? {
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

    /// Where the range begins for CUDA. Each memory is imported once, and let go of once Vulkan has freed it, which it does
    /// when the calls that are at work on it have ended.
    pub fn address(&mut self, range: Range) -> Result<Address, Failure> {
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

    /// Whether the other ranks call the same, before any of them begins. How many of these calls all have in common, one
    /// at least; none if `stop` said so.
    fn agree(&mut self, calls: &[Call], stop: &dyn Fn() -> bool) -> Result<Option<usize>, Failure> {
        if self.size == 1 {
            return Ok(Some(calls.len()));
        }
        const OF_RANK: usize = AT_ONCE * BYTES;
        let first = calls[0];
        let own = self.rank as usize * OF_RANK;
        let sent = &mut self.mirror.host()[own..own + OF_RANK];
        sent.fill(0);
        for (to, call) in sent.as_chunks_mut::<BYTES>().0.iter_mut().zip(calls) {
            *to = call.to_bytes();
        }
        self.mirror.to_device(&self.stream)?;
        let gather = Call {
            kind: Kind::AllGather,
            element: Element::U8,
            elements: (OF_RANK * self.size as usize) as u64,
            ..first
        };
        let since = Instant::now();
        if !self.collective(&gather, self.mirror.device, since, stop)? {
            return Ok(None);
        }
        self.mirror.to_host(&self.stream)?;
        if !self.finish(&first, since, stop)? {
            return Ok(None);
        }
        let (all, _) = self.mirror.host().as_chunks::<BYTES>();
        for i in 0..calls.len() {
            let of_ranks = all.iter().skip(i).step_by(AT_ONCE);
            let called: Vec<_> = of_ranks.map(Call::from_bytes).collect();
            match mismatch(&called) {
                None => {}
                Some((rank, text)) if i == 0 => {
                    return Err(Failure::new(Cause::Mismatch, text, Some(rank)));
                }
                // A rank has not come to this one yet, or calls another one: the next comparison begins with it.
                Some(_) => return Ok(Some(i)),
            }
        }
        Ok(Some(calls.len()))
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
        // as long as the stream is at work; Vulkan has done what came before, and uses it again behind `departs`.
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

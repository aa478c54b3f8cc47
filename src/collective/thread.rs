//! The thread of a group: the one that starts the engine, and the one that calls it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use collectives::{Ended, Failure, Kind, Member, Memory, Options};

use super::group::{Group, Payload};
use crate::error::{Error, Result, panicked};
use crate::memory::staging::Lease;
use crate::queue::timeline::Patience;

/// One wait for the device, so that a failure of the group and the end of the process are noticed.
const SLICE: Duration = Duration::from_millis(2);

/// The memory of a collective, which lets go of it where the driver may be called.
struct Staged<'a> {
    group: &'a Group,
    lease: Option<Arc<Lease>>,
}

// SAFETY: the lease is as long as what the call stages, since it was made for it, and mapped. The device copies to it
// before the value `after` and from it behind the group's: in between it is the collective's alone.
unsafe impl Memory for Staged<'_> {
    fn data(&mut self) -> *mut u8 {
        self.lease
            .as_ref()
            .map_or(std::ptr::null_mut(), |lease| lease.pointer())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        let lease = &mut self.lease;
        if self.group.in_driver(|| lease.take()).is_none() {
            std::mem::forget(self.lease.take());
        }
    }
}

/// Starts the group's thread; the group says how it goes.
pub fn start(group: &Arc<Group>, options: Options) -> Result<()> {
    if Member::started() {
        let text = "MPI was started in this process before, and starts once: begin a new process";
        return Err(Failure::engine(text).into());
    }
    spawn(group, move |group| {
        let ended = run(group, options);
        fail_if(group, ended);
    })
}

/// Starts the group's thread. A panic there fails the group.
pub(super) fn spawn(group: &Arc<Group>, body: impl FnOnce(&Group) + Send + 'static) -> Result<()> {
    let group = Arc::clone(group);
    std::thread::Builder::new()
        .name("helios collectives".to_owned())
        .spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&group))) {
                fail_if(&group, Err(Error::Internal(panicked(&*panic))));
            }
        })
        .map(drop)
        .map_err(|e| Error::Internal(format!("no thread for collectives: {e}")))
}

/// Fails the group with an error, if that is how its thread's work ended.
pub(super) fn fail_if(group: &Group, ended: Result<()>) {
    match ended {
        Err(Error::Group(failure)) => group.fail(failure),
        Err(error) => group.fail(Failure::engine(error.to_string())),
        Ok(()) => {}
    }
}

fn run(group: &Group, options: Options) -> Result<()> {
    let stop = || group.failed();
    let (mut member, text) = Member::start(options, &stop)?;
    group.ready(text);
    while let Some(job) = group.next() {
        if !wait_for_device(group, job.after)? || !group.begin(job.call) {
            return Ok(());
        }
        if job.call.kind == Kind::Leave {
            if member.leave(&job.call, &stop)? {
                group.end(&job.call, false);
            }
            return Ok(());
        }
        let Some(Payload::Staged(lease)) = job.memory else {
            return Err(Error::Internal("a collective without memory".to_owned()));
        };
        let lease = Some(lease);
        let memory = Staged { group, lease };
        match member.run(&job.call, memory, &stop)? {
            // The device reads the memory from here on: it keeps it by itself.
            Ended::Done(_memory) => group.end(&job.call, false),
            Ended::Stopped => return Ok(()),
        }
    }
    Ok(())
}

/// Waits until the device has copied what the collective reads; false if the group has failed meanwhile.
pub(super) fn wait_for_device(group: &Group, value: u64) -> Result<bool> {
    let timeline = &group.timeline;
    let mut patience = Patience::default();
    while !group.failed() {
        let Some(reached) = group.in_driver(|| timeline.wait_for(value, SLICE)) else {
            return Ok(false);
        };
        if reached? {
            return Ok(true);
        }
        patience.after(timeline, SLICE)?;
    }
    Ok(false)
}

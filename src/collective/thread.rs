//! The thread of a group. Only this thread starts and calls the engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use collectives::{Ended, Failure, Kind, Member, Memory, Options};

use super::group::{Group, Host, Payload};
use crate::error::{Error, Result, panicked};
use crate::queue::exit;
use crate::queue::timeline::Patience;

/// Length of one wait for the device; after it a failure of the group or the end of the process is noticed.
const SLICE: Duration = Duration::from_millis(2);

/// The memory of a collective. It is released only while the driver may be called.
struct Held<'a> {
    group: &'a Group,
    memory: Option<Host>,
}

// SAFETY: a lease is as long as what the call stages, since it was made for it, and a range was checked; both are mapped.
// The device writes there before the value `after` and uses it again behind the group's: in between it is the
// collective's alone.
unsafe impl Memory for Held<'_> {
    fn data(&mut self) -> *mut u8 {
        let Some(Host { range, lease, .. }) = &self.memory else {
            return std::ptr::null_mut();
        };
        let range = range.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        lease.as_ref().map_or(range, |lease| lease.pointer())
    }

    fn input(&self) -> Option<*const u8> {
        let Host { range, lease, .. } = self.memory.as_ref()?;
        (*range)
            .filter(|_| lease.is_some())
            .map(|at| at.as_ptr().cast_const())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let memory = &mut self.memory;
        if self.group.in_driver(|| memory.take()).is_none() {
            std::mem::forget(self.memory.take());
        }
    }
}

/// Starts the group's thread, which reports through the group.
pub fn start(group: &Arc<Group>, options: Options) -> Result<()> {
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
            // The device may have been destroyed meanwhile; then the last of it is dropped here.
            exit::let_go(group);
        })
        .map(drop)
        .map_err(|e| Error::Internal(format!("no thread for collectives: {e}")))
}

/// Fails the group if its thread ended with an error.
pub(super) fn fail_if(group: &Group, ended: Result<()>) {
    match ended {
        Err(Error::Group(failure)) => group.fail(failure),
        Err(error) => group.fail(Failure::engine(error.to_string())),
        Ok(()) => {}
    }
}

fn run(group: &Group, options: Options) -> Result<()> {
    let stop = || group.failed();
    let Some((mut member, text)) = Member::start(options, &stop)? else {
        return Ok(());
    };
    group.ready(text);
    while let Some(job) = group.next() {
        if !wait_for_device(group, job.after)? || !group.begin(job.call) {
            return Ok(());
        }
        if job.call.kind == Kind::Leave {
            let left = member.leave(&job.call, &stop);
            group.engine_ends();
            if left? {
                group.end(&job.call, false);
            }
            return Ok(());
        }
        let Some(Payload::Host(memory)) = job.memory else {
            return Err(Error::Internal("a collective without memory".to_owned()));
        };
        let memory = Some(memory);
        let ended = member.run(&job.call, Held { group, memory }, &stop);
        // MPI no longer touches the memory: after a failure from here on the device continues immediately.
        group.engine_ends();
        let Ended::Done(memory) = ended? else {
            return Ok(());
        };
        // The device uses the memory from here on and keeps it alive itself.
        drop(memory);
        group.end(&job.call, false);
    }
    Ok(())
}

/// Waits until the device has copied what the collective reads. False if the group has failed meanwhile.
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

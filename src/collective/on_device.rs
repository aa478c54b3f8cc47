//! The thread of a group whose engine works on the device: NCCL, on a CUDA stream.
//!
//! It waits until Vulkan has reached a collective, enqueues it and those directly after it on the stream, and lets the
//! stream signal Vulkan.

use std::sync::Arc;

use collectives::nccl::rank::{AT_ONCE, Device, Options, Rank, until};

use super::group::{Group, Payload};
use super::thread::{fail_if, spawn, wait_for_device};
use crate::error::{Error, Result};

/// Starts the group's thread, which reports through the group. `uuid` is the device's.
pub fn start(group: &Arc<Group>, options: Options, uuid: [u8; 16]) -> Result<()> {
    let device = Device {
        uuid,
        departs: group.export()?,
    };
    group.engine_begins();
    spawn(group, move |group| run(group, options, device)).inspect_err(|_| group.engine_ends())
}

fn run(group: &Group, options: Options, device: Device) {
    let stop = || group.stopped();
    match Rank::start(options, device, &stop) {
        Ok(Some(mut rank)) => {
            fail_if(group, serve(group, &mut rank));
            if !rank.end() {
                // The engine may still signal, and waits for the device have a limit of their own.
                return;
            }
        }
        Ok(None) => {}
        Err(failure) => group.fail(failure),
    }
    group.engine_ends();
}

/// Runs calls until the group has been left or has failed.
fn serve(group: &Group, rank: &mut Rank) -> Result<()> {
    let stop = || group.stopped();
    group.ready(String::new());
    while let Some(job) = group.next() {
        let call = job.call;
        match job.memory {
            None => {
                let here = wait_for_device(group, job.after)? && group.begin(call);
                if here && rank.leave(&call, &stop)? {
                    group.end(&call, false);
                }
                return Ok(());
            }
            Some(Payload::Shared(range, submitted)) => {
                if !arrive(group, submitted)? {
                    return Ok(());
                }
                let mut calls = vec![(call, rank.address(range)?)];
                while calls.len() < AT_ONCE {
                    let Some((call, range)) = group.next_behind(submitted) else {
                        break;
                    };
                    calls.push((call, rank.address(range)?));
                }
                while let Some(&(first, _)) = calls.first() {
                    if !group.begin(first) {
                        return Ok(());
                    }
                    let Some(last) = rank.run(&calls, &stop)? else {
                        return Ok(());
                    };
                    group.end(&last, true);
                    calls.retain(|(call, _)| call.number > last.number);
                }
            }
            Some(_) => return Err(Error::Internal("memory of the host".to_owned())),
        }
    }
    Ok(())
}

/// Polls until the device has reached `value`, because waking a blocked thread takes longer. False if the group has
/// failed meanwhile.
fn arrive(group: &Group, value: u64) -> Result<bool> {
    let reached = || group.in_driver(|| group.timeline.reached(value));
    // When the process ends, the group has failed.
    until(|| reached().unwrap_or(Ok(false)), &|| group.stopped())
}

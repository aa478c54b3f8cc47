//! The thread of a group whose engine works on the device: NCCL, on a stream of CUDA's.
//!
//! It waits for Vulkan on the stream, gives the collective to it, and lets it signal Vulkan; one at a time.

use std::sync::Arc;

use collectives::nccl::rank::{Device, Options, Rank};

use super::group::{Group, Payload};
use super::thread::{fail_if, spawn, wait_for_device};
use crate::error::{Error, Result};

/// Starts the group's thread; the group says how it goes. `uuid`: the device's.
pub fn start(group: &Arc<Group>, options: Options, uuid: [u8; 16]) -> Result<()> {
    let Some(arrivals) = group.arrivals else {
        return Err(Error::Internal("a group without arrivals".to_owned()));
    };
    let device = Device {
        uuid,
        arrives: group.export(arrivals)?,
        departs: group.export(group.semaphore)?,
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
                // It may signal yet: the wait for the device has a limit of its own.
                return;
            }
        }
        Ok(None) => {}
        Err(failure) => group.fail(failure),
    }
    group.engine_ends();
}

/// Carries calls out until the group has been left or has failed.
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
            Some(Payload::Shared(range)) => {
                if !rank.arrive(&call, &stop)? || !group.begin(call) {
                    return Ok(());
                }
                if !rank.run(&call, range, &stop)? {
                    return Ok(());
                }
                group.end(&call, true);
            }
            Some(_) => {
                return Err(Error::Internal("memory of the host".to_owned()));
            }
        }
    }
    Ok(())
}

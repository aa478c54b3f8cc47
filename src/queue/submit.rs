//! Submission: hands command buffers to the queue. Each submission signals the timeline.

use ash::vk;

use crate::device::Device;
use crate::error::{self, Result};
use crate::queue::timeline::Timeline;

/// Submits the commands after everything submitted before. The timeline reaches `value` when they are done; without
/// commands only the value is signalled. `wait`: a value that the device waits for first; `other`: one of another
/// timeline. A failure that loses the device is sticky.
pub fn submit(
    device: &Device,
    timeline: &Timeline,
    wait: Option<u64>,
    other: Option<(vk::Semaphore, u64)>,
    commands: &[vk::CommandBuffer],
    value: u64,
) -> Result<()> {
    device.check_alive()?;
    let values = [value];
    let semaphores = [timeline.semaphore];
    let own = wait.map(|value| (timeline.semaphore, value));
    let mut wait_semaphores = [vk::Semaphore::null(); 2];
    let mut wait_values = [0; 2];
    let mut waits = 0;
    for (semaphore, value) in own.into_iter().chain(other) {
        wait_semaphores[waits] = semaphore;
        wait_values[waits] = value;
        waits += 1;
    }
    let stages = [vk::PipelineStageFlags::ALL_COMMANDS; 2];
    let mut times = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(&wait_values[..waits])
        .signal_semaphore_values(&values);
    let info = vk::SubmitInfo::default()
        .command_buffers(commands)
        .wait_semaphores(&wait_semaphores[..waits])
        .wait_dst_stage_mask(&stages[..waits])
        .signal_semaphores(&semaphores)
        .push_next(&mut times);
    device.lose_if_told()?;
    let raw = &device.raw;
    // SAFETY: the command buffers are executable; the queue is used by the one recorder.
    unsafe { raw.queue_submit(device.queue, &[info], vk::Fence::null()) }
        .map_err(|e| device.observe(error::vulkan("vkQueueSubmit")(e)))?;
    timeline.queued(value);
    Ok(())
}

//! Submission: hands command buffers to the queue, each signalling the timeline.

use ash::vk;

use crate::device::Device;
use crate::error::{self, Result};
use crate::queue::timeline::Timeline;

/// Submits the commands, in order behind everything submitted before; the timeline reaches `value`
/// when they are done. Without commands only the value is signalled. `wait`: a value to wait for on
/// the device first. A failure that loses the device is sticky.
pub fn submit(
    device: &Device,
    timeline: &Timeline,
    wait: Option<u64>,
    commands: &[vk::CommandBuffer],
    value: u64,
) -> Result<()> {
    device.check_alive()?;
    let values = [value];
    let semaphores = [timeline.semaphore];
    let mut times = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
    let mut info = vk::SubmitInfo::default()
        .command_buffers(commands)
        .signal_semaphores(&semaphores);
    let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
    if let Some(wait) = &wait {
        times = times.wait_semaphore_values(std::slice::from_ref(wait));
        info = info
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages);
    }
    let info = [info.push_next(&mut times)];
    device.lose_if_told()?;
    // SAFETY: the command buffers are executable; the queue is used by the one
    // recorder.
    unsafe {
        device
            .raw
            .queue_submit(device.queue, &info, vk::Fence::null())
    }
    .map_err(|e| device.observe(error::vulkan("vkQueueSubmit")(e)))?;
    timeline.queued(value);
    Ok(())
}

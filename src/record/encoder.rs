//! Recording: the only file that calls `vkCmd*`. An [`Encoder`] remembers what is bound and skips binds that would
//! change nothing.

use std::ffi::c_void;
use std::sync::Arc;

use ash::vk;

use crate::device::Device;
use crate::device::cuda::Calls;
use crate::error::{self, Error, Result};
use crate::observe::blackbox::{BlackBox, Log};
use crate::observe::profile::{self, Probe, Span, What};
use crate::pipeline::{Kernel, Layout, Program};
use crate::plan::decode::MAX_BINDINGS;
use crate::plan::hazard::Stages;
use crate::record::commands::BINDING_WORDS;
use crate::record::descriptors::Descriptors;

/// Largest push constants, in bytes, that the encoder compares to skip a repeated push.
pub const MAX_PUSH: usize = 256;

/// Largest size of one copy command, in bytes.
const MAX_COPY: u64 = 1 << 30;

/// The words of all bindings of a dispatch, as an array of `VkDescriptorBufferInfo`.
pub type Bindings = [u64; MAX_BINDINGS * BINDING_WORDS];
const _: () = assert!(size_of::<vk::DescriptorBufferInfo>() == 8 * BINDING_WORDS);

/// The first `len` bytes of the words.
#[inline]
pub fn bytes(words: &[u64], len: usize) -> &[u8] {
    let len = len.min(size_of_val(words));
    // SAFETY: the bytes lie inside the slice, and any byte is a `u8`.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), len) }
}

pub struct Encoder {
    device: Arc<Device>,
    blackbox: Arc<BlackBox>,
    pub raw: vk::CommandBuffer,
    pipeline: vk::Pipeline,
    /// Layout under which `bindings` were bound.
    layout: vk::PipelineLayout,
    bindings: Bindings,
    push_layout: vk::PipelineLayout,
    push: [u8; MAX_PUSH],
    push_len: usize,
    /// The parameter block of the last launch, kept to reuse its memory.
    parameters: Vec<u64>,
    /// Whether the commands are submitted only once.
    once: bool,
    /// What was recorded, for a report if the device is lost. Whoever records commands keeps their words here.
    pub log: Log,
    /// Timestamps, while a profile runs.
    probe: Option<Box<Probe>>,
    /// Timestamps that the complete commands write at every launch.
    kept: Option<Arc<Probe>>,
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.blackbox.forget(self.raw);
        profile::forget(self.raw);
    }
}

fn stage_mask(stages: Stages) -> vk::PipelineStageFlags {
    let mut mask = vk::PipelineStageFlags::empty();
    if stages.contains(Stages::COMPUTE) {
        mask |= vk::PipelineStageFlags::COMPUTE_SHADER;
    }
    if stages.contains(Stages::TRANSFER) {
        mask |= vk::PipelineStageFlags::TRANSFER;
    }
    mask
}

/// Splits a copy into pieces that every driver can copy: lavapipe crashes at 2^31 bytes.
fn pieces(source: u64, target: u64, bytes: u64) -> impl Iterator<Item = vk::BufferCopy> {
    (0..bytes)
        .step_by(MAX_COPY as usize)
        .map(move |at| vk::BufferCopy {
            src_offset: source + at,
            dst_offset: target + at,
            size: MAX_COPY.min(bytes - at),
        })
}

impl Encoder {
    pub fn new(device: Arc<Device>, blackbox: Arc<BlackBox>, raw: vk::CommandBuffer) -> Self {
        let log = blackbox.log();
        Self {
            device,
            blackbox,
            raw,
            pipeline: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            bindings: [0; MAX_BINDINGS * BINDING_WORDS],
            push_layout: vk::PipelineLayout::null(),
            push: [0; MAX_PUSH],
            push_len: 0,
            parameters: Vec::new(),
            once: true,
            log,
            probe: None,
            kept: None,
        }
    }

    /// Starts recording; `once` if the commands are submitted only once.
    pub fn begin(&mut self, once: bool) -> Result<()> {
        self.forget_bound();
        self.once = once;
        self.log.clear();
        self.probe = None;
        self.kept = None;
        let info = vk::CommandBufferBeginInfo::default().flags(if once {
            vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT
        } else {
            vk::CommandBufferUsageFlags::SIMULTANEOUS_USE
        });
        // SAFETY: the command buffer is in the initial state: its pool was reset.
        unsafe { self.device.raw.begin_command_buffer(self.raw, &info) }
            .map_err(error::vulkan("vkBeginCommandBuffer"))
    }

    /// Forgets what is bound.
    fn forget_bound(&mut self) {
        self.pipeline = vk::Pipeline::null();
        self.layout = vk::PipelineLayout::null();
        self.push_layout = vk::PipelineLayout::null();
    }

    pub fn end(&mut self) -> Result<()> {
        self.blackbox.recorded(self.raw, &mut self.log, self.once);
        if let Some(probe) = self.probe.take() {
            self.kept = profile::ended(self.raw, *probe, self.once);
        }
        // SAFETY: the command buffer is recording.
        unsafe { self.device.raw.end_command_buffer(self.raw) }
            .map_err(|e| self.device.observe(error::vulkan("vkEndCommandBuffer")(e)))
    }

    /// Orders everything of `stages` so far before everything that follows.
    pub fn barrier(&mut self, stages: Stages) {
        let mut source = vk::AccessFlags::empty();
        if stages.contains(Stages::COMPUTE) {
            source |= vk::AccessFlags::SHADER_WRITE;
        }
        if stages.contains(Stages::TRANSFER) {
            source |= vk::AccessFlags::TRANSFER_WRITE;
        }
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(source)
            .dst_access_mask(
                vk::AccessFlags::SHADER_READ
                    | vk::AccessFlags::SHADER_WRITE
                    | vk::AccessFlags::TRANSFER_READ
                    | vk::AccessFlags::TRANSFER_WRITE,
            )];
        // SAFETY: the command buffer is recording.
        unsafe {
            self.device.raw.cmd_pipeline_barrier(
                self.raw,
                stage_mask(stages),
                vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER,
                vk::DependencyFlags::empty(),
                &barrier,
                &[],
                &[],
            );
        }
    }

    /// Makes what the host has written, even while the submission waited for it, visible to transfers.
    pub fn host_writes(&mut self) {
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::HOST_WRITE)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ)];
        // SAFETY: the command buffer is recording.
        unsafe {
            self.device.raw.cmd_pipeline_barrier(
                self.raw,
                vk::PipelineStageFlags::HOST,
                vk::PipelineStageFlags::TRANSFER,
                vk::DependencyFlags::empty(),
                &barrier,
                &[],
                &[],
            );
        }
    }

    /// Makes what was written so far visible to host reads after the submission.
    pub fn host_barrier(&mut self) {
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ)];
        // SAFETY: the command buffer is recording.
        unsafe {
            self.device.raw.cmd_pipeline_barrier(
                self.raw,
                vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER,
                vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &barrier,
                &[],
                &[],
            );
        }
    }

    /// Runs a shader or a kernel. `bindings`: [`BINDING_WORDS`] words for each of its bindings.
    #[inline]
    pub fn dispatch(
        &mut self,
        descriptors: &mut Descriptors,
        program: &Program,
        bindings: &[u64],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<()> {
        match program.kernel {
            Kernel::Pipeline(raw) => {
                self.dispatch_shader(descriptors, raw, &program.layout, bindings, push, groups)
            }
            kernel => self.launch(kernel, bindings, push, groups),
        }
    }

    /// Binds what changed since the last dispatch, and dispatches.
    #[inline]
    fn dispatch_shader(
        &mut self,
        descriptors: &mut Descriptors,
        pipeline: vk::Pipeline,
        layout: &Layout,
        bindings: &[u64],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<()> {
        let device = &self.device.raw;
        if self.pipeline != pipeline {
            self.pipeline = pipeline;
            // SAFETY: the command buffer is recording; the pipeline lives as long as the context.
            unsafe {
                device.cmd_bind_pipeline(self.raw, vk::PipelineBindPoint::COMPUTE, pipeline);
            }
        }
        if layout.bindings > 0 {
            if layout.binds_sets() {
                descriptors.recorded(layout.set);
            }
            let bound = &mut self.bindings[..layout.bindings as usize * BINDING_WORDS];
            if self.layout != layout.raw || bound != bindings {
                bound.copy_from_slice(bindings);
                // An allocation below may fail, so nothing counts as bound until all is.
                self.layout = vk::PipelineLayout::null();
                let data = self.bindings.as_ptr().cast();
                match (&self.device.push, layout.push) {
                    // SAFETY: the template reads `bindings` entries of `self.bindings`, all of
                    // live buffers; the layout is the template's own.
                    (Some(extension), true) => unsafe {
                        extension.cmd_push_descriptor_set_with_template(
                            self.raw,
                            layout.template,
                            layout.raw,
                            0,
                            data,
                        );
                    },
                    _ => {
                        let set = descriptors.allocate(layout.set)?;
                        // SAFETY: the set is new, so nothing uses it; `data` as above.
                        unsafe {
                            device.update_descriptor_set_with_template(set, layout.template, data);
                            device.cmd_bind_descriptor_sets(
                                self.raw,
                                vk::PipelineBindPoint::COMPUTE,
                                layout.raw,
                                0,
                                &[set],
                                &[],
                            );
                        }
                    }
                }
                self.layout = layout.raw;
            }
        }
        let push = layout.push_constants(push);
        if !push.is_empty()
            && (self.push_layout != layout.raw
                || self.push_len != push.len()
                || self.push.get(..push.len()) != Some(push))
        {
            self.push_layout = layout.raw;
            self.push_len = push.len();
            if let Some(kept) = self.push.get_mut(..push.len()) {
                kept.copy_from_slice(push);
            }
            // SAFETY: the layout has a compute range of at least `push.len()` bytes.
            unsafe {
                device.cmd_push_constants(
                    self.raw,
                    layout.raw,
                    vk::ShaderStageFlags::COMPUTE,
                    0,
                    push,
                );
            }
        }
        let profiled = profile::on();
        if profiled {
            self.measure();
        }
        let device = &self.device.raw;
        // SAFETY: pipeline, descriptors and push constants are bound; the group counts are within
        // the device's limits.
        unsafe { device.cmd_dispatch(self.raw, groups[0], groups[1], groups[2]) };
        if profiled {
            self.mark(Some(profile::dispatch(Kernel::Pipeline(pipeline), groups)));
        }
        Ok(())
    }

    /// Launches a kernel in PTX. `bindings`: buffer, offset and the buffer's address for each. In the parameter block
    /// the push constants follow the addresses.
    fn launch(
        &mut self,
        kernel: Kernel,
        bindings: &[u64],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<()> {
        let profiled = profile::on();
        if profiled {
            self.measure();
        }
        // An empty grid is an error to CUDA, and does nothing in Vulkan.
        if groups.iter().all(|&count| count > 0) {
            self.launch_grid(kernel, bindings, push, groups)?;
        }
        if profiled {
            self.mark(Some(profile::dispatch(kernel, groups)));
        }
        Ok(())
    }

    fn launch_grid(
        &mut self,
        kernel: Kernel,
        bindings: &[u64],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<()> {
        // The extension does not say what stays bound after a launch.
        self.forget_bound();
        let (
            Ok(cuda),
            Kernel::Function {
                raw,
                block,
                shared_bytes,
                packed,
            },
        ) = (&self.device.cuda, kernel)
        else {
            return Err(Error::Internal("a kernel without its extension".to_owned()));
        };
        let (bindings, _) = bindings.as_chunks::<BINDING_WORDS>();
        let addresses = bindings.iter().map(|[_, offset, address]| address + offset);
        self.parameters.clear();
        self.parameters.extend(addresses);
        self.parameters.extend(push.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        }));
        let bytes = 8 * bindings.len() + push.len();
        let start = self.parameters.as_ptr();
        let at = |byte: usize| start.wrapping_byte_add(byte).cast::<c_void>();
        match &cuda.calls {
            Calls::BinaryImport(calls) => {
                // One packed block, as for cuLaunchKernel: CU_LAUNCH_PARAM_BUFFER_POINTER (1),
                // CU_LAUNCH_PARAM_BUFFER_SIZE (2), CU_LAUNCH_PARAM_END (0). The count only says that there is a list.
                let number = std::ptr::without_provenance::<c_void>;
                let size = std::ptr::from_ref(&bytes).cast();
                let extras = [number(1), at(0), number(2), size, number(0)];
                let mut info = vk::CuLaunchInfoNVX::default()
                    .function(raw.handle())
                    .grid_dim_x(groups[0])
                    .grid_dim_y(groups[1])
                    .grid_dim_z(groups[2])
                    .block_dim_x(block[0])
                    .block_dim_y(block[1])
                    .block_dim_z(block[2])
                    .shared_mem_bytes(shared_bytes);
                if bytes > 0 {
                    info.extra_count = 1;
                    info.p_extras = extras.as_ptr();
                }
                // SAFETY: the command buffer is recording, the function lives as long as the context, and block and
                // grid are within the device's limits; the parameters are copied before the call returns.
                unsafe { (calls.cmd_cu_launch_kernel_nvx)(self.raw, &info) };
            }
            Calls::KernelLaunch(calls) => {
                let words = (0..push.len())
                    .step_by(4)
                    .map(|word| 8 * bindings.len() + word);
                let parameters: Vec<*const c_void> = match packed {
                    true => (bytes > 0).then(|| at(0)).into_iter().collect(),
                    false => (0..bindings.len())
                        .map(|i| 8 * i)
                        .chain(words)
                        .map(at)
                        .collect(),
                };
                let info = vk::CudaLaunchInfoNV::default()
                    .function(raw.handle())
                    .grid_dim_x(groups[0])
                    .grid_dim_y(groups[1])
                    .grid_dim_z(groups[2])
                    .block_dim_x(block[0])
                    .block_dim_y(block[1])
                    .block_dim_z(block[2])
                    .shared_mem_bytes(shared_bytes)
                    .params(&parameters);
                // SAFETY: as above; the pointers lead to the kernel's parameters, as its text declares them.
                unsafe { (calls.cmd_cuda_launch_kernel_nv)(self.raw, &info) };
            }
        }
        Ok(())
    }

    pub fn copy(
        &mut self,
        source: vk::Buffer,
        source_offset: u64,
        target: vk::Buffer,
        target_offset: u64,
        bytes: u64,
    ) {
        let profiled = profile::on();
        if profiled {
            self.measure();
        }
        for region in pieces(source_offset, target_offset, bytes) {
            // SAFETY: both ranges lie inside live buffers and the command buffer is recording.
            unsafe {
                self.device
                    .raw
                    .cmd_copy_buffer(self.raw, source, target, &[region]);
            }
        }
        if profiled {
            let what = match (
                self.device.staging.holds(source),
                self.device.staging.holds(target),
            ) {
                (true, _) => What::Upload,
                (_, true) => What::Read,
                _ => What::Copy,
            };
            self.mark(Some(Span::transfer(what, bytes)));
        }
    }

    /// Fills `bytes`, a multiple of 4, from `offset`.
    pub fn fill(&mut self, target: vk::Buffer, offset: u64, bytes: u64, pattern: u32) {
        let profiled = profile::on();
        if profiled {
            self.measure();
        }
        // SAFETY: the range lies inside the live buffer and the command buffer is recording.
        unsafe {
            self.device
                .raw
                .cmd_fill_buffer(self.raw, target, offset, bytes, pattern);
        }
        if profiled {
            self.mark(Some(Span::transfer(What::Fill, bytes)));
        }
    }

    /// Ensures that a timestamp precedes the next command.
    #[cold]
    fn measure(&mut self) {
        if self.probe.is_none() {
            self.probe = profile::probe(&self.device).map(Box::new);
        }
        if self.probe.as_ref().is_some_and(|p| p.is_empty()) {
            self.mark(None);
        }
    }

    /// Records the profile's next timestamp, which ends `span`.
    #[cold]
    fn mark(&mut self, span: Option<Span>) {
        if let Some(mark) = self.probe.as_mut().and_then(|p| p.next(span)) {
            if mark.fresh {
                self.reset_queries(mark.pool, profile::POOL);
            }
            self.timestamp(mark.pool, mark.query);
        }
    }

    /// Copies the first `count` timestamps of the pool, once they are available, as 64-bit numbers.
    pub fn copy_queries(
        &mut self,
        pool: vk::QueryPool,
        count: u32,
        target: vk::Buffer,
        offset: u64,
    ) {
        // SAFETY: the target has room for the timestamps, which earlier commands write.
        unsafe {
            self.device.raw.cmd_copy_query_pool_results(
                self.raw,
                pool,
                0,
                count,
                target,
                offset,
                8,
                vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT,
            );
        }
    }

    pub fn reset_queries(&mut self, pool: vk::QueryPool, count: u32) {
        // SAFETY: the pool has `count` queries, none in use.
        unsafe {
            self.device
                .raw
                .cmd_reset_query_pool(self.raw, pool, 0, count)
        };
    }

    /// Writes the time at which everything before has finished.
    pub fn timestamp(&mut self, pool: vk::QueryPool, query: u32) {
        // SAFETY: the query was reset and the queue writes timestamps.
        unsafe {
            self.device.raw.cmd_write_timestamp(
                self.raw,
                vk::PipelineStageFlags::BOTTOM_OF_PIPE,
                pool,
                query,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_cut_into_pieces_that_every_driver_takes() {
        let all = |bytes| -> Vec<_> {
            pieces(8, 100, bytes)
                .map(|p| (p.src_offset, p.dst_offset, p.size))
                .collect()
        };
        assert_eq!(all(0), []);
        assert_eq!(all(4), [(8, 100, 4)]);
        assert_eq!(all(MAX_COPY), [(8, 100, MAX_COPY)]);
        let two = all(2 * MAX_COPY + 4);
        assert_eq!(two[1], (8 + MAX_COPY, 100 + MAX_COPY, MAX_COPY));
        assert_eq!(two[2], (8 + 2 * MAX_COPY, 100 + 2 * MAX_COPY, 4));
    }
}

//! Shaders, and their compilation by the driver, which several threads do at a time.

use std::borrow::Cow;
use std::ffi::CStr;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ash::vk;
use spirv_check::Reflection;

use super::{Key, Layout, Options};
use crate::device::Device;
use crate::error::{self, Result};

/// A shader to make a pipeline of.
pub struct Shader {
    pub spirv: Vec<u32>,
    pub bindings: u32,
    pub push_bytes: u32,
    pub options: Options,
}

impl Shader {
    pub(super) fn key(&self) -> Key {
        Key::Spirv {
            spirv: self.spirv.as_slice().into(),
            bindings: self.bindings,
            push_bytes: self.push_bytes,
            options: self.options.clone(),
        }
    }
}

/// A shader that was checked, and all that its compilation needs.
pub(super) struct Prepared<'a> {
    pub shader: &'a Shader,
    /// In safe mode as the rules change it.
    pub spirv: Cow<'a, [u32]>,
    pub reflection: Reflection,
    pub layout: Layout,
}

impl Prepared<'_> {
    /// Has the driver compile it; any thread may.
    pub fn compile(&self, device: &Device, cache: vk::PipelineCache) -> Result<vk::Pipeline> {
        let options = &self.shader.options;
        let module_info = vk::ShaderModuleCreateInfo::default().code(&self.spirv);
        // SAFETY: the words parsed as a module; in safe mode they keep the rules of SPIR-V. A driver may still
        // reject it.
        let module = unsafe { device.raw.create_shader_module(&module_info, None) }.map_err(
            error::create(
                "vkCreateShaderModule",
                "shader module",
                self.spirv.len() as u64 * 4,
            ),
        )?;
        let entries: Vec<_> = (0..options.specialization.len())
            .map(|i| {
                vk::SpecializationMapEntry::default()
                    .constant_id(i as u32)
                    .offset(i as u32 * 4)
                    .size(4)
            })
            .collect();
        let words: Vec<u8> = options
            .specialization
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        let specialization = vk::SpecializationInfo::default()
            .map_entries(&entries)
            .data(&words);
        let mut required = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default()
            .required_subgroup_size(options.required_subgroup_size.unwrap_or(0));
        let entry: &CStr = c"main";
        let mut stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(entry);
        if !entries.is_empty() {
            stage = stage.specialization_info(&specialization);
        }
        if options.required_subgroup_size.is_some()
            && device.snapshot.features.subgroup_size_control
        {
            stage = stage.push_next(&mut required);
        }
        if options.full_subgroups && device.snapshot.features.compute_full_subgroups {
            stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
        }
        let info = vk::ComputePipelineCreateInfo::default()
            .stage(stage)
            .layout(self.layout.raw);
        let raw = &device.raw;
        // SAFETY: module, layout and specialization live until the call returns.
        let made = unsafe { raw.create_compute_pipelines(cache, &[info], None) };
        // SAFETY: the module is not needed once the pipeline exists.
        unsafe { device.raw.destroy_shader_module(module, None) };
        match made {
            Ok(list) => Ok(list[0]),
            Err((list, e)) => {
                for raw in list.into_iter().filter(|p| *p != vk::Pipeline::null()) {
                    // SAFETY: nothing uses the pipeline.
                    unsafe { device.raw.destroy_pipeline(raw, None) };
                }
                Err(device.observe(error::create(
                    "vkCreateComputePipelines",
                    "pipeline",
                    self.spirv.len() as u64 * 4,
                )(e)))
            }
        }
    }
}

/// Compiles shaders on as many threads as there are cores, in order. After a failure, of which it returns the first, none
/// exists.
pub(super) fn compile_all(
    device: &Device,
    cache: vk::PipelineCache,
    prepared: &[Prepared<'_>],
) -> Result<Vec<vk::Pipeline>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            match prepared.get(i) {
                Some(one) => made.push((i, one.compile(device, cache))),
                None => return made,
            }
        }
    };
    let mut made = thread::scope(|scope| {
        let others: Vec<_> = (1..cores.min(prepared.len()))
            // Where the system has no thread left, the others do its share.
            .map_while(|_| {
                thread::Builder::new()
                    .name("helios-compile".to_owned())
                    .spawn_scoped(scope, work)
                    .ok()
            })
            .collect();
        let mut made = work();
        for other in others {
            match other.join() {
                Ok(more) => made.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        made
    });
    made.sort_unstable_by_key(|&(i, _)| i);
    let (mut raws, mut failed) = (Vec::new(), None);
    for (_, result) in made {
        match result {
            Ok(raw) => raws.push(raw),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let Some(error) = failed else {
        return Ok(raws);
    };
    for raw in raws {
        // SAFETY: nothing uses the pipeline.
        unsafe { device.raw.destroy_pipeline(raw, None) };
    }
    Err(error)
}

//! Compute pipelines: what each reads and writes, and their shared layouts. From here on, kernels in PTX ([`cuda`]) are
//! pipelines too.

mod cuda;

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Arc, Weak};

use ash::vk;
use spirv_check::{Reflection, validate};

use crate::device::Device;
use crate::device::cuda::Function;
use crate::error::{self, Error, Result};
use crate::pipeline_cache::CacheFile;
use crate::plan::decode::MAX_BINDINGS;
use crate::plan::hazard::Access;

/// One layout for all pipelines of the same binding count and push-constant size, so that
/// descriptors and push constants stay bound across them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    pub raw: vk::PipelineLayout,
    pub set: vk::DescriptorSetLayout,
    /// Writes all bindings from an array of `VkDescriptorBufferInfo`; null without bindings.
    pub template: vk::DescriptorUpdateTemplate,
    /// Whether the template pushes descriptors instead of updating a set.
    pub push: bool,
    pub bindings: u32,
    /// Bytes of the push-constant range.
    pub push_bytes: u32,
}

/// What a shader reads as push constants if its pipeline was made without any.
const NO_PUSH: [u8; 256] = [0; 256];

impl Layout {
    /// Whether a dispatch binds a descriptor set.
    pub fn binds_sets(&self) -> bool {
        self.bindings > 0 && !self.push
    }

    /// The push constants of a dispatch; zeros for the whole range if the pipeline was made without any.
    pub fn push_constants<'a>(&self, given: &'a [u8]) -> &'a [u8] {
        if given.is_empty() {
            NO_PUSH.get(..self.push_bytes as usize).unwrap_or(given)
        } else {
            given
        }
    }
}

pub use cuda::PtxKernel;

/// What a dispatch runs. No two live ones are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// A shader in SPIR-V.
    Pipeline(vk::Pipeline),
    /// A kernel in PTX, which takes buffer addresses and needs no bindings.
    Function {
        raw: Function,
        /// Threads of a block.
        block: [u32; 3],
        /// Bytes of dynamic shared memory.
        shared_bytes: u32,
        /// Whether its parameters are declared as one block rather than one by one.
        packed: bool,
    },
}

impl Default for Kernel {
    fn default() -> Self {
        Self::Pipeline(vk::Pipeline::null())
    }
}

/// What recording a dispatch needs of its pipeline.
#[derive(Debug, Clone, Copy, Default)]
pub struct Program {
    pub kernel: Kernel,
    /// Only of a shader in SPIR-V.
    pub layout: Layout,
}

/// What the driver compiled. Shared by handles with equal shader and options, and by the graphs and the work in flight
/// that use it.
pub struct Compiled {
    device: Arc<Device>,
    program: Program,
    access: [Access; MAX_BINDINGS],
    everything: Access,
    used: u32,
    /// The timeline value before which nothing has used it.
    pub born: u64,
    /// The module of a kernel in PTX; dropped after the kernel.
    _module: Option<Arc<cuda::Module>>,
}

impl Drop for Compiled {
    fn drop(&mut self) {
        match (self.program.kernel, &self.device.cuda) {
            // SAFETY: whatever uses it on the device keeps it alive until that is done, here and below.
            (Kernel::Pipeline(raw), _) => unsafe { self.device.raw.destroy_pipeline(raw, None) },
            // SAFETY: as above.
            (Kernel::Function { raw, .. }, Ok(cuda)) => unsafe { cuda.destroy_function(raw) },
            // Only an extension for PTX makes functions, so this cannot happen.
            (Kernel::Function { .. }, Err(_)) => {}
        }
    }
}

/// Pipelines with equal keys are shared. Keys are compared whole: the hash only finds candidates.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Spirv {
        spirv: Box<[u32]>,
        bindings: u32,
        push_bytes: u32,
        options: Options,
    },
    Ptx(PtxKernel),
}

/// A compute pipeline with what the planner needs to know of it.
pub struct Pipeline {
    pub compiled: Arc<Compiled>,
    pub program: Program,
    pub bindings: u32,
    pub push_bytes: u32,
    /// What it does to each binding: from the SPIR-V, or for PTX as its maker declared.
    pub access: [Access; MAX_BINDINGS],
    /// Bit i is set if the shader uses binding i at all.
    pub used: u32,
    /// What it does through device addresses; counts for every buffer.
    pub everything: Access,
    pub name: Option<String>,
}

impl Pipeline {
    fn new(compiled: Arc<Compiled>, bindings: u32, push_bytes: u32, name: Option<String>) -> Self {
        Self {
            program: compiled.program,
            bindings,
            push_bytes,
            access: compiled.access,
            everything: compiled.everything,
            used: compiled.used,
            name,
            compiled,
        }
    }

    /// Whether it takes the addresses of its bindings.
    #[inline]
    pub fn takes_addresses(&self) -> bool {
        matches!(self.program.kernel, Kernel::Function { .. })
    }
}

/// The options of `createPipeline`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Word `i` is the value of `constant_id` i.
    pub specialization: Vec<u32>,
    pub required_subgroup_size: Option<u32>,
    pub full_subgroups: bool,
    pub name: Option<String>,
}

/// A SPIR-V capability that the shader needs and the device lacks, with the feature for it.
fn missing_capability(reflection: &Reflection, device: &Device) -> Option<&'static str> {
    let features = &device.snapshot.features;
    let has = |capability: u32| reflection.capabilities.contains(&capability);
    const FLOAT16: u32 = 9;
    const COOPERATIVE_MATRIX: u32 = 6022;
    const BFLOAT16: u32 = 5116;
    const BFLOAT16_COOPERATIVE_MATRIX: u32 = 5118;
    const PHYSICAL_STORAGE: u32 = 5347;
    const STORAGE16: u32 = 4433;
    const COOPERATIVE_MATRIX2: [u32; 6] = [5430, 5431, 5432, 5433, 5434, 5439];
    if has(COOPERATIVE_MATRIX) && !features.cooperative_matrix {
        return Some("cooperative matrices (VK_KHR_cooperative_matrix)");
    }
    if COOPERATIVE_MATRIX2.iter().any(|&c| has(c)) && !features.cooperative_matrix2 {
        return Some("cooperative matrices 2 (VK_NV_cooperative_matrix2)");
    }
    if has(BFLOAT16) && !features.bfloat16 {
        return Some("bfloat16 (VK_KHR_shader_bfloat16)");
    }
    if has(BFLOAT16_COOPERATIVE_MATRIX) && !features.bfloat16_cooperative_matrix {
        return Some("bfloat16 cooperative matrices (VK_KHR_shader_bfloat16)");
    }
    if has(FLOAT16) && !features.float16 {
        return Some("16-bit floats (shaderFloat16)");
    }
    if has(STORAGE16) && !features.storage16 {
        return Some("16-bit storage (storageBuffer16BitAccess)");
    }
    if has(PHYSICAL_STORAGE) && !features.buffer_device_address {
        return Some("device addresses (bufferDeviceAddress)");
    }
    None
}

/// Creates pipelines and owns the layouts and the cache.
pub struct Factory {
    device: Arc<Device>,
    layouts: HashMap<(u32, u32), Layout>,
    cache: vk::PipelineCache,
    cache_file: Option<CacheFile>,
    /// Pipelines that were alive when dead entries were last removed, and newer ones.
    known: HashMap<Key, Weak<Compiled>>,
    /// PTX modules by their data.
    modules: HashMap<Arc<[u8]>, Weak<cuda::Module>>,
    /// Number of entries at which dead ones are removed.
    most_known: usize,
    /// Pipelines compiled since the cache was read; at 0 there is nothing to write back.
    created: u64,
    debug: bool,
}

impl Factory {
    pub fn new(device: Arc<Device>) -> Result<Self> {
        let cache_file = cache_file(&device);
        let debug = device.config.debug_pipelines;
        let data = cache_file
            .as_ref()
            .and_then(CacheFile::read)
            .filter(|data| cache_matches(data, &device))
            .unwrap_or_default();
        let info = vk::PipelineCacheCreateInfo::default().initial_data(&data);
        // SAFETY: the device is live; a driver must refuse initial data that it does not accept.
        let cache = unsafe { device.raw.create_pipeline_cache(&info, None) }.map_err(
            error::create("vkCreatePipelineCache", "pipeline cache", data.len() as u64),
        )?;
        Ok(Self {
            device,
            layouts: HashMap::new(),
            cache,
            cache_file,
            known: HashMap::new(),
            modules: HashMap::new(),
            most_known: 64,
            created: 0,
            debug,
        })
    }

    fn layout(&mut self, bindings: u32, push_bytes: u32) -> Result<Layout> {
        if let Some(&layout) = self.layouts.get(&(bindings, push_bytes)) {
            return Ok(layout);
        }
        let device = &self.device;
        let push = device.push.is_some() && bindings <= device.snapshot.max_push_descriptors;
        let list: Vec<_> = (0..bindings)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let mut info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&list);
        if push {
            info = info.flags(vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR);
        }
        // SAFETY: the device is live and the description valid, here and below.
        let set = unsafe { device.raw.create_descriptor_set_layout(&info, None) }.map_err(
            error::create("vkCreateDescriptorSetLayout", "descriptor set layout", 0),
        )?;
        let sets = [set];
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(push_bytes)];
        let mut info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        if push_bytes > 0 {
            info = info.push_constant_ranges(&ranges);
        }
        // SAFETY: as above.
        let raw = unsafe { device.raw.create_pipeline_layout(&info, None) }.map_err(|e| {
            // SAFETY: nothing uses the set layout yet.
            unsafe { device.raw.destroy_descriptor_set_layout(set, None) };
            error::create("vkCreatePipelineLayout", "pipeline layout", 0)(e)
        })?;
        let mut template = vk::DescriptorUpdateTemplate::null();
        if bindings > 0 {
            let entries = [vk::DescriptorUpdateTemplateEntry::default()
                .dst_binding(0)
                .descriptor_count(1)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)];
            let stride = size_of::<vk::DescriptorBufferInfo>();
            let entries: Vec<_> = (0..bindings)
                .map(|i| {
                    entries[0]
                        .dst_binding(i)
                        .offset(i as usize * stride)
                        .stride(stride)
                })
                .collect();
            let info = vk::DescriptorUpdateTemplateCreateInfo::default()
                .descriptor_update_entries(&entries)
                .template_type(if push {
                    vk::DescriptorUpdateTemplateType::PUSH_DESCRIPTORS_KHR
                } else {
                    vk::DescriptorUpdateTemplateType::DESCRIPTOR_SET
                })
                .descriptor_set_layout(set)
                .pipeline_bind_point(vk::PipelineBindPoint::COMPUTE)
                .pipeline_layout(raw)
                .set(0);
            // SAFETY: as above.
            template = unsafe { device.raw.create_descriptor_update_template(&info, None) }
                .map_err(|e| {
                    // SAFETY: nothing uses the layouts yet.
                    unsafe {
                        device.raw.destroy_pipeline_layout(raw, None);
                        device.raw.destroy_descriptor_set_layout(set, None);
                    }
                    error::create("vkCreateDescriptorUpdateTemplate", "update template", 0)(e)
                })?;
        }
        let layout = Layout {
            raw,
            set,
            template,
            push,
            bindings,
            push_bytes,
        };
        self.layouts.insert((bindings, push_bytes), layout);
        Ok(layout)
    }

    /// A pipeline of `spirv` (entry point `main`) with `bindings` storage buffers and `push_bytes` bytes of push
    /// constants. An existing one if all of that is equal. Also returns whether it was compiled now. `born`: the
    /// timeline's next value.
    pub fn create(
        &mut self,
        spirv: &[u32],
        bindings: u32,
        push_bytes: u32,
        options: &Options,
        born: u64,
    ) -> Result<(Pipeline, bool)> {
        let key = Key::Spirv {
            spirv: spirv.into(),
            bindings,
            push_bytes,
            options: options.clone(),
        };
        let (compiled, fresh) = self.shared(key, |factory| {
            factory.compile(spirv, bindings, push_bytes, options, born)
        })?;
        let pipeline = Pipeline::new(compiled, bindings, push_bytes, options.name.clone());
        Ok((pipeline, fresh))
    }

    /// The live pipeline with this key, or a new one from `make`; and whether it was made now.
    fn shared(
        &mut self,
        key: Key,
        make: impl FnOnce(&mut Self) -> Result<Compiled>,
    ) -> Result<(Arc<Compiled>, bool)> {
        if let Some(known) = self.known.get(&key).and_then(Weak::upgrade) {
            return Ok((known, false));
        }
        let compiled = Arc::new(make(self)?);
        if self.known.len() >= self.most_known {
            self.known.retain(|_, known| known.strong_count() > 0);
            self.most_known = 64.max(2 * self.known.len());
        }
        self.known.insert(key, Arc::downgrade(&compiled));
        Ok((compiled, true))
    }

    /// Compiles a shader, and finds what it reads and writes.
    fn compile(
        &mut self,
        spirv: &[u32],
        bindings: u32,
        push_bytes: u32,
        options: &Options,
        born: u64,
    ) -> Result<Compiled> {
        let reflection = spirv_check::reflect_with(spirv, &options.specialization)?;
        let device = Arc::clone(&self.device);
        let limits = &device.snapshot.limits;
        if reflection.bindings > bindings {
            return Err(Error::range(
                "numBindings",
                format!(
                    "must cover the shader's bindings 0 to {}",
                    reflection.bindings - 1
                ),
                bindings,
            ));
        }
        // Without push bytes the shader reads zeros, as many as it declares.
        let zeros = push_bytes == 0 && reflection.push_block_bytes as usize <= NO_PUSH.len();
        if reflection.push_bytes > push_bytes && !zeros {
            return Err(Error::range(
                "pushBytes",
                format!("must cover the shader's {} bytes", reflection.push_bytes),
                push_bytes,
            ));
        }
        if reflection.push_block_bytes > limits.max_push_constants_size {
            return Err(Error::Unsupported(format!(
                "the shader declares {} bytes of push constants, {} has {}",
                reflection.push_block_bytes, device.snapshot.name, limits.max_push_constants_size
            )));
        }
        let newest = device.snapshot.newest_spirv();
        if spirv[1] > newest {
            let minor = |version: u32| version >> 8 & 0xff;
            return Err(Error::Unsupported(format!(
                "the shader is SPIR-V 1.{}, {} has Vulkan 1.{}, which takes 1.{} at most",
                minor(spirv[1]),
                device.snapshot.name,
                vk::api_version_minor(device.snapshot.api_version),
                minor(newest)
            )));
        }
        if let Some(what) = missing_capability(&reflection, &device) {
            return Err(Error::Unsupported(format!(
                "the shader needs {what}, which {} does not have",
                device.snapshot.name
            )));
        }
        let size = reflection.workgroup_size;
        for axis in 0..3 {
            if size[axis] == 0 || size[axis] > limits.max_compute_work_group_size[axis] {
                return Err(Error::range(
                    "spirv",
                    format!(
                        "has a workgroup size outside 1…{} in {}",
                        limits.max_compute_work_group_size[axis],
                        ["x", "y", "z"][axis]
                    ),
                    size[axis],
                ));
            }
        }
        let invocations: u64 = size.iter().map(|&s| u64::from(s)).product();
        if invocations > u64::from(limits.max_compute_work_group_invocations) {
            return Err(Error::range(
                "spirv",
                format!(
                    "has more than {} invocations a workgroup",
                    limits.max_compute_work_group_invocations
                ),
                invocations,
            ));
        }
        if let Some(shared) = reflection.shared_bytes
            && shared > u64::from(limits.max_compute_shared_memory_size)
        {
            return Err(Error::Unsupported(format!(
                "the shader needs {shared} bytes of shared memory, {} has {}",
                device.snapshot.name, limits.max_compute_shared_memory_size
            )));
        }
        let subgroup = &device.snapshot.subgroup;
        let requires_sizes = device.snapshot.features.subgroup_size_control
            && subgroup
                .required_size_stages
                .contains(vk::ShaderStageFlags::COMPUTE);
        if let Some(wanted) = options.required_subgroup_size {
            // Asking for the only possible size needs no feature.
            let (least, most) = match subgroup.min_size == subgroup.max_size {
                true => (subgroup.size, subgroup.size),
                false => (subgroup.min_size, subgroup.max_size),
            };
            let rule = match requires_sizes || least == most {
                true if wanted.is_power_of_two() && (least..=most).contains(&wanted) => None,
                true => Some("must be a power of two from"),
                false => Some("must be left out: no size can be required of"),
            };
            if let Some(rule) = rule {
                let rule = format!("{rule} {least} to {most} on this device");
                return Err(Error::range("options.requiredSubgroupSize", rule, wanted));
            }
        }
        // The layout's range must cover the block that the shader declares, used or not.
        let layout = self.layout(bindings, push_bytes.max(reflection.push_block_bytes))?;
        let secured;
        let spirv = match &device.shader_rules {
            None => spirv,
            Some(support) => {
                secured = validate::secure(spirv, &options.specialization, support)?;
                &secured
            }
        };
        let module_info = vk::ShaderModuleCreateInfo::default().code(spirv);
        // SAFETY: the words parsed as a module; in safe mode they keep the rules of SPIR-V. A driver may still
        // reject it.
        let module = unsafe { device.raw.create_shader_module(&module_info, None) }.map_err(
            error::create(
                "vkCreateShaderModule",
                "shader module",
                spirv.len() as u64 * 4,
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
        if options.required_subgroup_size.is_some() && requires_sizes {
            stage = stage.push_next(&mut required);
        }
        if options.full_subgroups && device.snapshot.features.compute_full_subgroups {
            stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
        }
        let info = vk::ComputePipelineCreateInfo::default()
            .stage(stage)
            .layout(layout.raw);
        let raw = &device.raw;
        // SAFETY: module, layout and specialization live until the call returns.
        let made = unsafe { raw.create_compute_pipelines(self.cache, &[info], None) };
        // SAFETY: the module is not needed once the pipeline exists.
        unsafe { device.raw.destroy_shader_module(module, None) };
        let raw = match made {
            Ok(list) => list[0],
            Err((list, e)) => {
                for raw in list.into_iter().filter(|p| *p != vk::Pipeline::null()) {
                    // SAFETY: nothing uses the pipeline.
                    unsafe { device.raw.destroy_pipeline(raw, None) };
                }
                return Err(device.observe(error::create(
                    "vkCreateComputePipelines",
                    "pipeline",
                    spirv.len() as u64 * 4,
                )(e)));
            }
        };
        self.created += 1;
        if let Some(name) = &options.name {
            device.name(raw, name);
        }
        let mut access = [Access {
            read: false,
            write: false,
        }; MAX_BINDINGS];
        for (binding, access) in access.iter_mut().enumerate() {
            access.read = reflection.reads & (1 << binding) != 0;
            access.write = reflection.writes & (1 << binding) != 0;
        }
        if self.debug {
            crate::device::diagnose(&format!(
                "helios-vk: pipeline {} bindings {bindings} push {push_bytes} reads {:#x} writes {:#x} \
                 workgroup {size:?}\n",
                options.name.as_deref().unwrap_or("(unnamed)"),
                reflection.reads,
                reflection.writes,
            ));
        }
        Ok(Compiled {
            device,
            program: Program {
                kernel: Kernel::Pipeline(raw),
                layout,
            },
            access,
            used: reflection.used,
            everything: Access {
                read: reflection.address_reads,
                write: reflection.address_writes,
            },
            born,
            _module: None,
        })
    }

    /// Writes the cache back and destroys the factory's objects.
    pub fn close(self) {
        if self.created > 0 && !self.device.lost() {
            self.save();
        }
    }

    /// Best effort: if the cache cannot be written, the next start compiles again.
    fn save(&self) {
        let Some(file) = &self.cache_file else {
            return;
        };
        // SAFETY: the cache is live.
        if let Ok(data) = unsafe { self.device.raw.get_pipeline_cache_data(self.cache) } {
            let _ = file.write(&data);
        }
    }
}

impl Drop for Factory {
    fn drop(&mut self) {
        let device = &self.device.raw;
        for layout in self.layouts.values() {
            // SAFETY: the context has destroyed all pipelines, and the queue is idle.
            unsafe {
                if layout.template != vk::DescriptorUpdateTemplate::null() {
                    device.destroy_descriptor_update_template(layout.template, None);
                }
                device.destroy_pipeline_layout(layout.raw, None);
                device.destroy_descriptor_set_layout(layout.set, None);
            }
        }
        // SAFETY: as above.
        unsafe { device.destroy_pipeline_cache(self.cache, None) };
    }
}

/// The file of this device and driver.
fn cache_file(device: &Device) -> Option<CacheFile> {
    let folder = device.config.pipeline_cache.as_ref()?;
    let s = &device.snapshot;
    let name = format!(
        "{:04x}-{:04x}-{:08x}-{}.bin",
        s.vendor_id,
        s.device_id,
        s.driver_version,
        s.uuid_text()
    );
    Some(CacheFile::new(folder, &name))
}

/// Whether `data` starts with the header that this driver would write (`VkPipelineCacheHeaderVersionOne`).
fn cache_matches(data: &[u8], device: &Device) -> bool {
    let word = |at: usize| {
        data.get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map(u32::from_le_bytes)
    };
    // SAFETY: the physical device is live.
    let properties = unsafe {
        device
            .instance
            .raw
            .get_physical_device_properties(device.physical)
    };
    word(0) == Some(32)
        && word(4) == Some(1)
        && word(8) == Some(properties.vendor_id)
        && word(12) == Some(properties.device_id)
        && data.get(16..32) == Some(properties.pipeline_cache_uuid.as_slice())
}

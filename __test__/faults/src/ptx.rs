//! A stand-in for the extensions that run kernels in PTX, for devices that have neither.
//!
//! A test kernel is in its module twice: in PTX, and as a comment in SPIR-V, which takes the same block of addresses and
//! words as push constants (`__test__/lib/ptx.mjs`). A launch is a dispatch of the SPIR-V, so its memory accesses and
//! their order are real. As the driver may, it leaves another pipeline and other push constants bound than before.

#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};

use ash::vk::{self, Handle};
use parking_lot::Mutex;

use crate::chain::{device_of, enter, instance_of};
use crate::control::STATE;

pub const KERNEL_LAUNCH: &CStr = ash::nv::cuda_kernel_launch::NAME;
pub const BINARY_IMPORT: &CStr = ash::nvx::binary_import::NAME;

/// A kernel of a module, as its comment describes it.
#[derive(Clone)]
struct Kernel {
    /// Bytes of each parameter.
    parameters: Vec<usize>,
    block: [u32; 3],
    spirv: Vec<u32>,
}

struct Function {
    kernel: Kernel,
    shader: vk::ShaderModule,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
}

#[derive(Default)]
struct Objects {
    last: u64,
    modules: BTreeMap<u64, BTreeMap<String, Kernel>>,
    functions: BTreeMap<u64, Function>,
}

static OBJECTS: Mutex<Objects> = Mutex::new(Objects {
    last: 0,
    modules: BTreeMap::new(),
    functions: BTreeMap::new(),
});

fn violation(text: impl Into<String>) {
    STATE.lock().violations.push(text.into());
}

fn kernel(line: &str) -> Option<(String, Kernel)> {
    let mut words = line.strip_prefix("//stand-in ")?.split(' ');
    let name = words.next()?.to_owned();
    let numbers =
        |text: &str| -> Vec<u32> { text.split(',').filter_map(|n| n.parse().ok()).collect() };
    let parameters = numbers(words.next()?)
        .into_iter()
        .map(|n| n as usize)
        .collect();
    let block = numbers(words.next()?).try_into().ok()?;
    let hex = words.next()?;
    let byte = |i: usize| u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..hex.len() / 2).map_while(byte).collect();
    let spirv = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect();
    Some((
        name,
        Kernel {
            parameters,
            block,
            spirv,
        },
    ))
}

/// A new module of that text.
fn create_module(
    call: &'static str,
    device: vk::Device,
    data: &[u8],
    module: &mut u64,
) -> vk::Result {
    if let Some(result) = enter(call, device) {
        return result;
    }
    let Some((0, text)) = data.split_last() else {
        violation(format!(
            "{call}: the data do not end with the NUL that ends the text"
        ));
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    if text.contains('\0') || text.contains("nonsense") {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    }
    let mut objects = OBJECTS.lock();
    objects.last += 1;
    *module = objects.last;
    objects
        .modules
        .insert(*module, text.lines().filter_map(kernel).collect());
    STATE.lock().created("PTX module", *module);
    vk::Result::SUCCESS
}

fn destroy_module(module: u64) {
    STATE.lock().destroyed("PTX module", module);
    OBJECTS.lock().modules.remove(&module);
}

fn create_function(
    call: &'static str,
    device: vk::Device,
    module: u64,
    name: &CStr,
    function: &mut u64,
) -> vk::Result {
    if let Some(result) = enter(call, device) {
        return result;
    }
    let next = device_of(device);
    let mut objects = OBJECTS.lock();
    let Some(module) = objects.modules.get(&module) else {
        violation(format!("{call}: the module is not live"));
        return vk::Result::ERROR_UNKNOWN;
    };
    let Some(kernel) = name
        .to_str()
        .ok()
        .and_then(|name| module.get(name))
        .cloned()
    else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let bytes: usize = kernel.parameters.iter().sum();
    let made = (|| {
        // SAFETY: the device is live, and the descriptions valid: the SPIR-V is the tests' own.
        unsafe {
            let info = vk::ShaderModuleCreateInfo::default().code(&kernel.spirv);
            let shader = next.create_shader_module(&info, None)?;
            let ranges = [vk::PushConstantRange::default()
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
                .size(bytes as u32)];
            let mut info = vk::PipelineLayoutCreateInfo::default();
            if bytes > 0 {
                info = info.push_constant_ranges(&ranges);
            }
            let layout = next.create_pipeline_layout(&info, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(shader)
                .name(c"main");
            let info = vk::ComputePipelineCreateInfo::default()
                .stage(stage)
                .layout(layout);
            let pipelines = next.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            let pipeline = pipelines.map_err(|(_, result)| result)?[0];
            Ok(Function {
                kernel,
                shader,
                layout,
                pipeline,
            })
        }
    })();
    match made {
        Ok(made) => {
            objects.last += 1;
            *function = objects.last;
            objects.functions.insert(*function, made);
            STATE.lock().created("PTX function", *function);
            vk::Result::SUCCESS
        }
        Err(result) => result,
    }
}

fn destroy_function(device: vk::Device, function: u64) {
    STATE.lock().destroyed("PTX function", function);
    let Some(function) = OBJECTS.lock().functions.remove(&function) else {
        return;
    };
    let next = device_of(device);
    // SAFETY: the caller says that the device has finished with the function.
    unsafe {
        next.destroy_pipeline(function.pipeline, None);
        next.destroy_pipeline_layout(function.layout, None);
        next.destroy_shader_module(function.shader, None);
    }
}

/// The parameters as one block: from a packed one, or from a pointer to each.
///
/// # Safety
/// The pointers of a launch, with what the kernel's parameters take behind them.
unsafe fn parameters(
    kernel: &Kernel,
    each: &[*const c_void],
    packed: Option<*const *const c_void>,
) -> Result<Vec<u8>, String> {
    let bytes: usize = kernel.parameters.iter().sum();
    // SAFETY: the caller's promise; the list of a packed block ends with 0.
    unsafe {
        if let Some(list) = packed {
            let (mut data, mut size, mut at) = (std::ptr::null(), 0, 0);
            while !(*list.add(at)).is_null() {
                let value = *list.add(at + 1);
                match (*list.add(at)).addr() {
                    1 => data = value.cast::<u8>(),
                    2 => size = *value.cast::<usize>(),
                    other => return Err(format!("an unknown key {other}")),
                }
                at += 2;
            }
            if size != bytes || data.addr() % 8 != 0 {
                return Err(format!(
                    "a block of {size} bytes at {data:?} where the kernel takes {bytes}"
                ));
            }
            return Ok(std::slice::from_raw_parts(data, size).to_vec());
        }
        if each.len() != kernel.parameters.len() {
            let takes = kernel.parameters.len();
            return Err(format!(
                "{} parameters where the kernel takes {takes}",
                each.len()
            ));
        }
        let copy = |(&at, &bytes): (&*const c_void, &usize)| {
            std::slice::from_raw_parts(at.cast::<u8>(), bytes).to_vec()
        };
        Ok(each.iter().zip(&kernel.parameters).flat_map(copy).collect())
    }
}

struct Launch<'a> {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    each: &'a [*const c_void],
    packed: Option<*const *const c_void>,
}

/// # Safety
/// The command buffer is recording; as [`parameters`].
unsafe fn launch(call: &'static str, commands: vk::CommandBuffer, launch: &Launch<'_>) {
    let objects = OBJECTS.lock();
    let Some(function) = objects.functions.get(&launch.function) else {
        return violation(format!("{call}: the function is not live"));
    };
    let kernel = &function.kernel;
    if launch.grid.contains(&0) || launch.block != kernel.block {
        return violation(format!(
            "{call}: grid {:?}, block {:?}",
            launch.grid, launch.block
        ));
    }
    // SAFETY: the caller's promise; the pipeline is this device's, and lives as long as the function.
    unsafe {
        let block = match parameters(kernel, launch.each, launch.packed) {
            Ok(block) => block,
            Err(text) => return violation(format!("{call}: {text}")),
        };
        *STATE.lock().counts.entry(call).or_default() += 1;
        let next = device_of(commands);
        let compute = vk::PipelineBindPoint::COMPUTE;
        next.cmd_bind_pipeline(commands, compute, function.pipeline);
        if !block.is_empty() {
            let stage = vk::ShaderStageFlags::COMPUTE;
            next.cmd_push_constants(commands, function.layout, stage, 0, &block);
        }
        let [x, y, z] = launch.grid;
        next.cmd_dispatch(commands, x, y, z);
    }
}

/// # Safety
/// As the caller of the extension's functions promises: an array of `count` elements.
unsafe fn list<'a>(at: *const *const c_void, count: usize) -> &'a [*const c_void] {
    match count {
        0 => &[],
        // SAFETY: the caller's promise.
        count => unsafe { std::slice::from_raw_parts(at, count) },
    }
}

macro_rules! extension {
    ($($create_module:ident($module_info:ty, $module:ty) $destroy_module:ident
        $create_function:ident($function_info:ty, $function:ty) $destroy_function:ident
        $launch:ident($launch_info:ty, $packs:expr);)*) => {$(
        pub unsafe extern "system" fn $create_module(
            device: vk::Device,
            info: *const $module_info,
            _: *const vk::AllocationCallbacks<'_>,
            module: *mut $module,
        ) -> vk::Result {
            let mut raw = 0;
            // SAFETY: the caller's structure and its data.
            let data = unsafe { std::slice::from_raw_parts((*info).p_data.cast(), (*info).data_size) };
            let result = create_module(stringify!($create_module), device, data, &mut raw);
            // SAFETY: the caller's place for the module.
            unsafe { *module = <$module>::from_raw(raw) };
            result
        }

        pub unsafe extern "system" fn $destroy_module(
            _: vk::Device,
            module: $module,
            _: *const vk::AllocationCallbacks<'_>,
        ) {
            destroy_module(module.as_raw());
        }

        pub unsafe extern "system" fn $create_function(
            device: vk::Device,
            info: *const $function_info,
            _: *const vk::AllocationCallbacks<'_>,
            function: *mut $function,
        ) -> vk::Result {
            let mut raw = 0;
            // SAFETY: the caller's structure and its name, which a NUL ends.
            let (module, name) = unsafe { ((*info).module.as_raw(), CStr::from_ptr((*info).p_name)) };
            let result = create_function(stringify!($create_function), device, module, name, &mut raw);
            // SAFETY: the caller's place for the function.
            unsafe { *function = <$function>::from_raw(raw) };
            result
        }

        pub unsafe extern "system" fn $destroy_function(
            device: vk::Device,
            function: $function,
            _: *const vk::AllocationCallbacks<'_>,
        ) {
            destroy_function(device, function.as_raw());
        }

        pub unsafe extern "system" fn $launch(commands: vk::CommandBuffer, info: *const $launch_info) {
            // SAFETY: the caller's structure, and what it leads to.
            unsafe {
                let info = &*info;
                let packed = (info.extra_count > 0).then_some(info.p_extras);
                if packed.is_some() && !$packs {
                    return violation(concat!(stringify!($launch), ": pExtras must be NULL"));
                }
                launch(stringify!($launch), commands, &Launch {
                    function: info.function.as_raw(),
                    grid: [info.grid_dim_x, info.grid_dim_y, info.grid_dim_z],
                    block: [info.block_dim_x, info.block_dim_y, info.block_dim_z],
                    each: list(info.p_params, info.param_count),
                    packed,
                });
            }
        }
    )*};
}

extension! {
    vkCreateCuModuleNVX(vk::CuModuleCreateInfoNVX<'_>, vk::CuModuleNVX) vkDestroyCuModuleNVX
        vkCreateCuFunctionNVX(vk::CuFunctionCreateInfoNVX<'_>, vk::CuFunctionNVX) vkDestroyCuFunctionNVX
        vkCmdCuLaunchKernelNVX(vk::CuLaunchInfoNVX<'_>, true);
    vkCreateCudaModuleNV(vk::CudaModuleCreateInfoNV<'_>, vk::CudaModuleNV) vkDestroyCudaModuleNV
        vkCreateCudaFunctionNV(vk::CudaFunctionCreateInfoNV<'_>, vk::CudaFunctionNV) vkDestroyCudaFunctionNV
        vkCmdCudaLaunchKernelNV(vk::CudaLaunchInfoNV<'_>, false);
}

/// Whether the name is that of an extension that this file answers for.
pub fn is_ours(name: *const c_char) -> bool {
    // SAFETY: names of extensions end with a NUL.
    let name = unsafe { CStr::from_ptr(name) };
    name == KERNEL_LAUNCH || name == BINARY_IMPORT || name == ash::nv::shader_sm_builtins::NAME
}

/// What `VK_NV_cuda_kernel_launch` and `VK_NV_shader_sm_builtins` tell.
pub unsafe extern "system" fn vkGetPhysicalDeviceProperties2(
    physical: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceProperties2<'_>,
) {
    let next = instance_of(physical);
    // SAFETY: the caller's arguments, passed on; every structure of a chain begins with type and next.
    unsafe {
        (next.fp_v1_1().get_physical_device_properties2)(physical, properties);
        let mut chain = (*properties).p_next.cast::<vk::BaseOutStructure<'_>>();
        while !chain.is_null() {
            match (*chain).s_type {
                vk::StructureType::PHYSICAL_DEVICE_CUDA_KERNEL_LAUNCH_PROPERTIES_NV => {
                    let launch = chain.cast::<vk::PhysicalDeviceCudaKernelLaunchPropertiesNV<'_>>();
                    (*launch).compute_capability_major = 9;
                    (*launch).compute_capability_minor = 0;
                }
                vk::StructureType::PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV => {
                    let builtins =
                        chain.cast::<vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV<'_>>();
                    (*builtins).shader_sm_count = 132;
                }
                _ => {}
            }
            chain = (*chain).p_next;
        }
    }
}

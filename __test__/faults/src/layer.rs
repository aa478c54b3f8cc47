//! The functions that wrap the driver's.

// The functions bear Vulkan's names.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_void};

use ash::vk;
use ash::vk::Handle;

use crate::account::{FAULT, vkGetDeviceFaultInfoEXT};
use crate::chain::{
    DEVICES, INSTANCES, Next, device_of, enter, enter_waiting, instance_of, key, next_device,
    next_instance,
};
use crate::control::{PORTABILITY, STATE};
use crate::loader::{self, DeviceLink, InstanceLink, NegotiateLayerInterface};
use crate::ptx::{self, *};
use crate::timelines::{self, *};

macro_rules! objects {
    ($($create:ident $destroy:ident $kind:literal $object:ty, $info:ty;
        $make:ident $end:ident)*) => {$(
        unsafe extern "system" fn $create(
            device: vk::Device,
            info: *const $info,
            allocator: *const vk::AllocationCallbacks<'_>,
            object: *mut $object,
        ) -> vk::Result {
            if let Some(result) = enter(stringify!($create), device) {
                return result;
            }
            let next = device_of(device);
            // SAFETY: the caller's arguments, passed on; a success has written the object.
            unsafe {
                // The driver need not know how to export what this layer exports.
                if timelines::offered() {
                    unlink((*info).p_next, vk::StructureType::EXPORT_SEMAPHORE_CREATE_INFO);
                }
                let result = table!(next, $make)(device, info, allocator, object);
                if result == vk::Result::SUCCESS {
                    STATE.lock().created($kind, (*object).as_raw());
                }
                result
            }
        }

        unsafe extern "system" fn $destroy(
            device: vk::Device,
            object: $object,
            allocator: *const vk::AllocationCallbacks<'_>,
        ) {
            STATE.lock().destroyed($kind, object.as_raw());
            if $kind == "memory" {
                STATE.lock().live.entry("mapping").or_default().remove(&object.as_raw());
            }
            // SAFETY: the caller's arguments, passed on.
            unsafe { table!(device_of(device), $end)(device, object, allocator) }
        }
    )*};
}

/// The driver's function, which may be of a later version.
macro_rules! table {
    ($device:expr, create_descriptor_update_template) => {
        $device.fp_v1_1().create_descriptor_update_template
    };
    ($device:expr, destroy_descriptor_update_template) => {
        $device.fp_v1_1().destroy_descriptor_update_template
    };
    ($device:expr, wait_semaphores) => {
        $device.fp_v1_2().wait_semaphores
    };
    ($device:expr, signal_semaphore) => {
        $device.fp_v1_2().signal_semaphore
    };
    ($device:expr, get_semaphore_counter_value) => {
        $device.fp_v1_2().get_semaphore_counter_value
    };
    ($device:expr, $name:ident) => {
        $device.fp_v1_0().$name
    };
}

objects! {
    vkCreateBuffer vkDestroyBuffer "buffer" vk::Buffer, vk::BufferCreateInfo<'_>;
        create_buffer destroy_buffer
    vkAllocateMemory vkFreeMemory "memory" vk::DeviceMemory, vk::MemoryAllocateInfo<'_>;
        allocate_memory free_memory
    vkCreateSemaphore vkDestroySemaphore "semaphore" vk::Semaphore, vk::SemaphoreCreateInfo<'_>;
        create_semaphore destroy_semaphore
    vkCreateCommandPool vkDestroyCommandPool "command pool" vk::CommandPool,
        vk::CommandPoolCreateInfo<'_>; create_command_pool destroy_command_pool
    vkCreateDescriptorPool vkDestroyDescriptorPool "descriptor pool" vk::DescriptorPool,
        vk::DescriptorPoolCreateInfo<'_>; create_descriptor_pool destroy_descriptor_pool
    vkCreateDescriptorSetLayout vkDestroyDescriptorSetLayout "descriptor set layout"
        vk::DescriptorSetLayout, vk::DescriptorSetLayoutCreateInfo<'_>;
        create_descriptor_set_layout destroy_descriptor_set_layout
    vkCreatePipelineLayout vkDestroyPipelineLayout "pipeline layout" vk::PipelineLayout,
        vk::PipelineLayoutCreateInfo<'_>; create_pipeline_layout destroy_pipeline_layout
    vkCreateDescriptorUpdateTemplate vkDestroyDescriptorUpdateTemplate "update template"
        vk::DescriptorUpdateTemplate, vk::DescriptorUpdateTemplateCreateInfo<'_>;
        create_descriptor_update_template destroy_descriptor_update_template
    vkCreatePipelineCache vkDestroyPipelineCache "pipeline cache" vk::PipelineCache,
        vk::PipelineCacheCreateInfo<'_>; create_pipeline_cache destroy_pipeline_cache
    vkCreateShaderModule vkDestroyShaderModule "shader module" vk::ShaderModule,
        vk::ShaderModuleCreateInfo<'_>; create_shader_module destroy_shader_module
    vkCreateQueryPool vkDestroyQueryPool "query pool" vk::QueryPool,
        vk::QueryPoolCreateInfo<'_>; create_query_pool destroy_query_pool
}

unsafe extern "system" fn vkDestroyPipeline(
    device: vk::Device,
    pipeline: vk::Pipeline,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    STATE.lock().destroyed("pipeline", pipeline.as_raw());
    // SAFETY: the caller's arguments, passed on.
    unsafe { table!(device_of(device), destroy_pipeline)(device, pipeline, allocator) }
}

unsafe extern "system" fn vkCreateComputePipelines(
    device: vk::Device,
    cache: vk::PipelineCache,
    count: u32,
    infos: *const vk::ComputePipelineCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    pipelines: *mut vk::Pipeline,
) -> vk::Result {
    if let Some(result) = enter("vkCreateComputePipelines", device) {
        for i in 0..count as usize {
            // SAFETY: the caller's array has `count` elements; what failed is null.
            unsafe { *pipelines.add(i) = vk::Pipeline::null() };
        }
        return result;
    }
    let next = device_of(device);
    // SAFETY: the caller's arguments, passed on; a success has written all pipelines.
    unsafe {
        let result = table!(next, create_compute_pipelines)(
            device, cache, count, infos, allocator, pipelines,
        );
        if result == vk::Result::SUCCESS {
            for i in 0..count as usize {
                STATE
                    .lock()
                    .created("pipeline", (*pipelines.add(i)).as_raw());
            }
        }
        result
    }
}

unsafe extern "system" fn vkMapMemory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    offset: vk::DeviceSize,
    size: vk::DeviceSize,
    flags: vk::MemoryMapFlags,
    data: *mut *mut c_void,
) -> vk::Result {
    if let Some(result) = enter("vkMapMemory", device) {
        return result;
    }
    // SAFETY: the caller's arguments, passed on.
    let result =
        unsafe { table!(device_of(device), map_memory)(device, memory, offset, size, flags, data) };
    if result == vk::Result::SUCCESS {
        STATE.lock().created("mapping", memory.as_raw());
    }
    result
}

unsafe extern "system" fn vkUnmapMemory(device: vk::Device, memory: vk::DeviceMemory) {
    STATE.lock().destroyed("mapping", memory.as_raw());
    // SAFETY: the caller's arguments, passed on.
    unsafe { table!(device_of(device), unmap_memory)(device, memory) }
}

/// Calls that make no object: they fail or pass.
macro_rules! plain {
    ($($enter:ident $call:ident $make:ident($first:ident: $kind:ty $(, $name:ident: $type:ty)*);)*) => {$(
        unsafe extern "system" fn $call($first: $kind $(, $name: $type)*) -> vk::Result {
            if let Some(result) = $enter(stringify!($call), $first) {
                return result;
            }
            // SAFETY: the caller's arguments, passed on.
            unsafe { table!(device_of($first), $make)($first $(, $name)*) }
        }
    )*};
}

plain! {
    enter vkBindBufferMemory bind_buffer_memory(
        device: vk::Device, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: vk::DeviceSize);
    enter vkAllocateCommandBuffers allocate_command_buffers(
        device: vk::Device, info: *const vk::CommandBufferAllocateInfo<'_>,
        buffers: *mut vk::CommandBuffer);
    enter vkAllocateDescriptorSets allocate_descriptor_sets(
        device: vk::Device, info: *const vk::DescriptorSetAllocateInfo<'_>,
        sets: *mut vk::DescriptorSet);
    enter vkResetDescriptorPool reset_descriptor_pool(
        device: vk::Device, pool: vk::DescriptorPool, flags: vk::DescriptorPoolResetFlags);
    enter vkResetCommandPool reset_command_pool(
        device: vk::Device, pool: vk::CommandPool, flags: vk::CommandPoolResetFlags);
    enter vkBeginCommandBuffer begin_command_buffer(
        buffer: vk::CommandBuffer, info: *const vk::CommandBufferBeginInfo<'_>);
    enter vkEndCommandBuffer end_command_buffer(buffer: vk::CommandBuffer);
    enter vkGetPipelineCacheData get_pipeline_cache_data(
        device: vk::Device, cache: vk::PipelineCache, size: *mut usize, data: *mut c_void);
    enter_waiting vkGetQueryPoolResults get_query_pool_results(
        device: vk::Device, pool: vk::QueryPool, first: u32, count: u32, size: usize,
        data: *mut c_void, stride: vk::DeviceSize, flags: vk::QueryResultFlags);
    enter_waiting vkQueueSubmit queue_submit(
        queue: vk::Queue, count: u32, infos: *const vk::SubmitInfo<'_>, fence: vk::Fence);
    enter_waiting vkWaitSemaphores wait_semaphores(
        device: vk::Device, info: *const vk::SemaphoreWaitInfo<'_>, timeout: u64);
    enter vkSignalSemaphore signal_semaphore(
        device: vk::Device, info: *const vk::SemaphoreSignalInfo<'_>);
    enter_waiting vkGetSemaphoreCounterValue get_semaphore_counter_value(
        device: vk::Device, semaphore: vk::Semaphore, value: *mut u64);
    enter_waiting vkDeviceWaitIdle device_wait_idle(device: vk::Device);
}

unsafe extern "system" fn vkCreateInstance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    if let Some(result) = STATE.lock().enter("vkCreateInstance") {
        return result;
    }
    let s_type = vk::StructureType::LOADER_INSTANCE_CREATE_INFO;
    // SAFETY: the loader's chain holds this layer's link; the next layer finds its own behind it.
    unsafe {
        let Some(link) = loader::link::<InstanceLink>((*info).p_next, s_type) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let get = (*(*link).link).get_instance_proc_addr;
        (*link).link = (*(*link).link).p_next;
        let Some(create) = get(vk::Instance::null(), c"vkCreateInstance".as_ptr()) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let create: vk::PFN_vkCreateInstance = std::mem::transmute(create);
        let result = create(info, allocator, instance);
        if result == vk::Result::SUCCESS {
            let raw = *instance;
            let find = |name: &CStr| get(raw, name.as_ptr()).map_or(std::ptr::null(), |f| f as _);
            let next = Next {
                raw: ash::Instance::load_with(find, raw),
                get,
            };
            INSTANCES.lock().insert(key(raw), Box::leak(Box::new(next)));
            STATE.lock().created("instance", raw.as_raw());
        }
        result
    }
}

unsafe extern "system" fn vkDestroyInstance(
    instance: vk::Instance,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    STATE.lock().destroyed("instance", instance.as_raw());
    let next = instance_of(instance);
    // SAFETY: the caller's arguments, passed on.
    unsafe { (next.fp_v1_0().destroy_instance)(instance, allocator) }
}

/// Takes the structures of that type out of the chain, but for its first.
///
/// # Safety
/// A chain of structures, which nobody else looks at.
unsafe fn unlink(chain: *const c_void, s_type: vk::StructureType) {
    let mut at = chain.cast_mut().cast::<vk::BaseOutStructure<'_>>();
    // SAFETY: every structure of a chain begins with type and next; they are the caller's own.
    unsafe {
        while !at.is_null() {
            let next = (*at).p_next;
            if !next.is_null() && (*next).s_type == s_type {
                (*at).p_next = (*next).p_next;
            } else {
                at = next;
            }
        }
    }
}

unsafe extern "system" fn vkCreateDevice(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    device: *mut vk::Device,
) -> vk::Result {
    if let Some(result) = STATE.lock().enter("vkCreateDevice") {
        return result;
    }
    let s_type = vk::StructureType::LOADER_DEVICE_CREATE_INFO;
    // SAFETY: as in `vkCreateInstance`.
    unsafe {
        let Some(link) = loader::link::<DeviceLink>((*info).p_next, s_type) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let get_instance = (*(*link).link).get_instance_proc_addr;
        let get = (*(*link).link).get_device_proc_addr;
        (*link).link = (*(*link).link).p_next;
        let instance = instance_of(physical).handle();
        let Some(create) = get_instance(instance, c"vkCreateDevice".as_ptr()) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let create: vk::PFN_vkCreateDevice = std::mem::transmute(create);
        // The driver need not know of the extension that this layer answers for.
        let info = &*info;
        let names = match info.enabled_extension_count {
            0 => &[],
            count => std::slice::from_raw_parts(info.pp_enabled_extension_names, count as usize),
        };
        let mut names = names.to_vec();
        let ours = |name| {
            let timelines = CStr::from_ptr(name) == EXTERNAL_SEMAPHORE && timelines::offered();
            CStr::from_ptr(name) == FAULT || ptx::is_ours(name) || timelines
        };
        names.retain(|name| !ours(*name));
        if STATE.lock().offers(PORTABILITY) {
            let before = names.len();
            names.retain(|name| CStr::from_ptr(*name) != PORTABILITY);
            if names.len() == before {
                // VUID-VkDeviceCreateInfo-pProperties-04451
                let text = "a device with VK_KHR_portability_subset was made without it";
                STATE.lock().violations.push(text.to_owned());
                return vk::Result::ERROR_INITIALIZATION_FAILED;
            }
        }
        let info = info.enabled_extension_names(&names);
        unlink(
            info.p_next,
            vk::StructureType::PHYSICAL_DEVICE_FAULT_FEATURES_EXT,
        );
        unlink(
            info.p_next,
            vk::StructureType::PHYSICAL_DEVICE_CUDA_KERNEL_LAUNCH_FEATURES_NV,
        );
        let result = create(physical, &info, allocator, device);
        if result == vk::Result::SUCCESS {
            let raw = *device;
            let find = |name: &CStr| get(raw, name.as_ptr()).map_or(std::ptr::null(), |f| f as _);
            let next = Next {
                raw: ash::Device::load_with(find, raw),
                get,
            };
            DEVICES.lock().insert(key(raw), Box::leak(Box::new(next)));
            STATE.lock().created("device", raw.as_raw());
        }
        result
    }
}

unsafe extern "system" fn vkDestroyDevice(
    device: vk::Device,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    let next = device_of(device);
    {
        let mut state = STATE.lock();
        state.destroyed("device", device.as_raw());
        state.forget_device(key(device));
    }
    // SAFETY: the caller's arguments, passed on.
    unsafe { (next.fp_v1_0().destroy_device)(device, allocator) }
}

unsafe extern "system" fn vkEnumeratePhysicalDevices(
    instance: vk::Instance,
    count: *mut u32,
    devices: *mut vk::PhysicalDevice,
) -> vk::Result {
    let (fault, none) = {
        let mut state = STATE.lock();
        (
            state.enter("vkEnumeratePhysicalDevices"),
            state.withholds("devices"),
        )
    };
    if let Some(result) = fault {
        return result;
    }
    let next = instance_of(instance);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        if none {
            *count = 0;
            return vk::Result::SUCCESS;
        }
        (next.fp_v1_0().enumerate_physical_devices)(instance, count, devices)
    }
}

unsafe extern "system" fn vkEnumerateDeviceExtensionProperties(
    physical: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    if let Some(result) = STATE.lock().enter("vkEnumerateDeviceExtensionProperties") {
        return result;
    }
    let next = instance_of(physical);
    if !layer.is_null() {
        // SAFETY: the caller's arguments, passed on.
        return unsafe {
            (next.fp_v1_0().enumerate_device_extension_properties)(
                physical, layer, count, properties,
            )
        };
    }
    // SAFETY: the physical device is the caller's.
    let all = match unsafe { next.enumerate_device_extension_properties(physical) } {
        Ok(all) => all,
        Err(result) => return result,
    };
    let state = STATE.lock();
    let is_fault = |e: &vk::ExtensionProperties| e.extension_name_as_c_str() == Ok(FAULT);
    let mut kept: Vec<_> = all
        .into_iter()
        .filter(|e| {
            let name = e.extension_name_as_c_str().unwrap_or_default();
            !state.withholds(&name.to_string_lossy()) && !is_fault(e)
        })
        .collect();
    if state.tells_faults {
        let fault = vk::ExtensionProperties::default().spec_version(2);
        kept.extend(fault.extension_name(FAULT));
    }
    for name in [
        KERNEL_LAUNCH,
        BINARY_IMPORT,
        EXTERNAL_SEMAPHORE,
        PORTABILITY,
    ] {
        if state.offers(name) {
            kept.extend(
                vk::ExtensionProperties::default()
                    .spec_version(2)
                    .extension_name(name),
            );
            if name == KERNEL_LAUNCH {
                let builtins = ash::nv::shader_sm_builtins::NAME;
                kept.extend(
                    vk::ExtensionProperties::default()
                        .spec_version(1)
                        .extension_name(builtins),
                );
            }
        }
    }
    // SAFETY: the caller's array has `count` elements, or is null.
    unsafe {
        if properties.is_null() {
            *count = kept.len() as u32;
            return vk::Result::SUCCESS;
        }
        let room = *count as usize;
        let given = room.min(kept.len());
        std::ptr::copy_nonoverlapping(kept.as_ptr(), properties, given);
        *count = given as u32;
        if given < kept.len() {
            vk::Result::INCOMPLETE
        } else {
            vk::Result::SUCCESS
        }
    }
}

unsafe extern "system" fn vkGetPhysicalDeviceQueueFamilyProperties(
    physical: vk::PhysicalDevice,
    count: *mut u32,
    families: *mut vk::QueueFamilyProperties,
) {
    let next = instance_of(physical);
    // SAFETY: the caller's arguments, passed on; it wrote `count` families.
    unsafe {
        (next.fp_v1_0().get_physical_device_queue_family_properties)(physical, count, families);
        if families.is_null() {
            return;
        }
        let state = STATE.lock();
        for family in std::slice::from_raw_parts_mut(families, *count as usize) {
            if state.withholds("queue") {
                family.queue_flags = vk::QueueFlags::TRANSFER;
            }
            if state.withholds("timestamps") {
                family.timestamp_valid_bits = 0;
            }
        }
    }
}

unsafe extern "system" fn vkGetPhysicalDeviceMemoryProperties(
    physical: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceMemoryProperties,
) {
    let next = instance_of(physical);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        (next.fp_v1_0().get_physical_device_memory_properties)(physical, properties);
        if STATE.lock().withholds("hostCached") {
            for kind in &mut (*properties).memory_types {
                kind.property_flags &= !vk::MemoryPropertyFlags::HOST_CACHED;
            }
        }
    }
}

unsafe extern "system" fn vkGetPhysicalDeviceFeatures2(
    physical: vk::PhysicalDevice,
    features: *mut vk::PhysicalDeviceFeatures2<'_>,
) {
    let next = instance_of(physical);
    // SAFETY: the caller's arguments, passed on; every structure of a chain begins with type and next.
    unsafe {
        (next.fp_v1_1().get_physical_device_features2)(physical, features);
        let state = STATE.lock();
        let mut chain = (*features).p_next.cast::<vk::BaseOutStructure<'_>>();
        while !chain.is_null() {
            match (*chain).s_type {
                vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_1_FEATURES => {
                    let v11 = &mut *chain.cast::<vk::PhysicalDeviceVulkan11Features<'_>>();
                    if state.withholds("storageBuffer16BitAccess") {
                        v11.storage_buffer16_bit_access = vk::FALSE;
                        v11.uniform_and_storage_buffer16_bit_access = vk::FALSE;
                    }
                }
                vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES => {
                    let v12 = &mut *chain.cast::<vk::PhysicalDeviceVulkan12Features<'_>>();
                    for (name, feature) in [
                        ("timelineSemaphore", &mut v12.timeline_semaphore),
                        ("bufferDeviceAddress", &mut v12.buffer_device_address),
                        ("shaderFloat16", &mut v12.shader_float16),
                    ] {
                        if state.withholds(name) {
                            *feature = vk::FALSE;
                        }
                    }
                }
                vk::StructureType::PHYSICAL_DEVICE_FAULT_FEATURES_EXT if state.tells_faults => {
                    let fault = chain.cast::<vk::PhysicalDeviceFaultFeaturesEXT<'_>>();
                    (*fault).device_fault = vk::TRUE;
                }
                vk::StructureType::PHYSICAL_DEVICE_CUDA_KERNEL_LAUNCH_FEATURES_NV => {
                    let launch = chain.cast::<vk::PhysicalDeviceCudaKernelLaunchFeaturesNV<'_>>();
                    let on = !state.withholds("cudaKernelLaunchFeatures");
                    (*launch).cuda_kernel_launch_features = on.into();
                }
                _ => {}
            }
            chain = (*chain).p_next;
        }
    }
}

/// As Vulkan returns any of its functions.
fn untyped(function: *const ()) -> vk::PFN_vkVoidFunction {
    // SAFETY: all function pointers have one representation; the caller of `vkGet*ProcAddr` knows the
    // signature of what it asked for.
    Some(unsafe { std::mem::transmute::<*const (), unsafe extern "system" fn()>(function) })
}

/// The table of the functions above.
macro_rules! functions {
    ($($name:ident),* $(,)?) => {
        fn intercepted(name: &CStr) -> vk::PFN_vkVoidFunction {
            match name.to_bytes() {
                b"vkGetInstanceProcAddr" => untyped(get_instance_proc_addr as *const ()),
                b"vkGetDeviceProcAddr" => untyped(get_device_proc_addr as *const ()),
                $(n if n == stringify!($name).as_bytes() => untyped($name as *const ()),)*
                _ => None,
            }
        }

        /// All functions of this layer.
        pub fn names() -> impl Iterator<Item = &'static str> {
            [$(stringify!($name)),*].into_iter()
        }
    };
}

functions! {
    vkCreateInstance, vkDestroyInstance, vkEnumeratePhysicalDevices,
    vkEnumerateDeviceExtensionProperties, vkGetPhysicalDeviceQueueFamilyProperties,
    vkGetPhysicalDeviceMemoryProperties, vkGetPhysicalDeviceFeatures2,
    vkCreateDevice, vkDestroyDevice,
    vkCreateBuffer, vkDestroyBuffer, vkAllocateMemory, vkFreeMemory, vkMapMemory, vkUnmapMemory,
    vkBindBufferMemory, vkCreateSemaphore, vkDestroySemaphore, vkCreateCommandPool,
    vkDestroyCommandPool, vkAllocateCommandBuffers, vkResetCommandPool, vkBeginCommandBuffer,
    vkEndCommandBuffer, vkCreateDescriptorPool, vkDestroyDescriptorPool, vkAllocateDescriptorSets,
    vkResetDescriptorPool, vkCreateDescriptorSetLayout, vkDestroyDescriptorSetLayout,
    vkCreatePipelineLayout, vkDestroyPipelineLayout, vkCreateDescriptorUpdateTemplate,
    vkDestroyDescriptorUpdateTemplate, vkCreatePipelineCache, vkDestroyPipelineCache,
    vkGetPipelineCacheData, vkCreateShaderModule, vkDestroyShaderModule, vkCreateComputePipelines,
    vkDestroyPipeline, vkCreateQueryPool, vkDestroyQueryPool, vkGetQueryPoolResults, vkQueueSubmit,
    vkWaitSemaphores, vkSignalSemaphore, vkGetSemaphoreCounterValue, vkDeviceWaitIdle, vkGetDeviceFaultInfoEXT,
    vkGetPhysicalDeviceProperties2,
    vkCreateCuModuleNVX, vkDestroyCuModuleNVX, vkCreateCuFunctionNVX, vkDestroyCuFunctionNVX,
    vkCmdCuLaunchKernelNVX,
    vkCreateCudaModuleNV, vkDestroyCudaModuleNV, vkCreateCudaFunctionNV, vkDestroyCudaFunctionNV,
    vkCmdCudaLaunchKernelNV, vkGetSemaphoreFdKHR, vkGetPhysicalDeviceExternalSemaphoreProperties,
}

unsafe extern "system" fn get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the loader passes a nul-terminated name, and an instance that is live or null.
    unsafe {
        intercepted(CStr::from_ptr(name)).or_else(|| {
            let known = instance != vk::Instance::null();
            known.then(|| (next_instance(instance).get)(instance, name))?
        })
    }
}

unsafe extern "system" fn get_device_proc_addr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the loader passes a nul-terminated name and a live device.
    unsafe {
        let text = CStr::from_ptr(name);
        if STATE.lock().withholds(&text.to_string_lossy()) {
            return None;
        }
        intercepted(text).or_else(|| (next_device(device).get)(device, name))
    }
}

/// The entry point of the layer: the loader calls it first.
///
/// # Safety
/// The loader passes its structure.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(
    interface: *mut NegotiateLayerInterface,
) -> vk::Result {
    // SAFETY: the caller's promise.
    let interface = unsafe { &mut *interface };
    if interface.version < 2 {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    }
    interface.version = 2;
    interface.get_instance_proc_addr = Some(get_instance_proc_addr);
    interface.get_device_proc_addr = Some(get_device_proc_addr);
    interface.get_physical_device_proc_addr = None;
    vk::Result::SUCCESS
}

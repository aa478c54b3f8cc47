//! The chain of feature structures that is queried, and that the device is created with.

use std::ffi::CStr;

use ash::{ext, khr, nv, vk};
use spirv_check::validate::Support;

use crate::device::choice::{self, Isolation, Snapshot};
use crate::vk_ext;

/// The feature structures: queried first, then passed back to enable the features.
#[derive(Default, Clone)]
pub(super) struct FeatureChain {
    core: vk::PhysicalDeviceFeatures,
    v11: vk::PhysicalDeviceVulkan11Features<'static>,
    v12: vk::PhysicalDeviceVulkan12Features<'static>,
    v13: vk::PhysicalDeviceVulkan13Features<'static>,
    coop: vk::PhysicalDeviceCooperativeMatrixFeaturesKHR<'static>,
    coop2: vk_ext::CooperativeMatrix2Features,
    bf16: vk_ext::Bfloat16Features,
    atomic_float: vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT<'static>,
    explicit_layout: vk::PhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR<'static>,
    robustness: vk::PhysicalDeviceRobustness2FeaturesEXT<'static>,
    launch: vk::PhysicalDeviceCudaKernelLaunchFeaturesNV<'static>,
    with: Optional,
}

/// Which optional structures belong in the chain.
#[derive(Default, Clone, Copy)]
struct Optional {
    v13: bool,
    coop: bool,
    coop2: bool,
    bf16: bool,
    atomic_float: bool,
    explicit_layout: bool,
    robustness: bool,
}

impl FeatureChain {
    pub(super) fn query(
        &mut self,
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        version: u32,
        has: &dyn Fn(&CStr) -> bool,
    ) -> choice::Features {
        if version < vk::API_VERSION_1_2 {
            return choice::Features::default();
        }
        self.with = Optional {
            v13: version >= vk::API_VERSION_1_3,
            coop: has(khr::cooperative_matrix::NAME),
            coop2: has(khr::cooperative_matrix::NAME) && has(vk_ext::NV_COOPERATIVE_MATRIX2),
            bf16: has(vk_ext::KHR_SHADER_BFLOAT16),
            atomic_float: has(ext::shader_atomic_float::NAME),
            explicit_layout: has(khr::workgroup_memory_explicit_layout::NAME),
            robustness: has(ext::robustness2::NAME),
        };
        let has_launch = has(nv::cuda_kernel_launch::NAME);
        let with = self.with;
        let mut features = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut self.v11)
            .push_next(&mut self.v12);
        if with.v13 {
            features = features.push_next(&mut self.v13);
        }
        if with.coop {
            features = features.push_next(&mut self.coop);
        }
        if with.coop2 {
            features = features.push_next(&mut self.coop2);
        }
        if with.bf16 {
            features = features.push_next(&mut self.bf16);
        }
        if with.atomic_float {
            features = features.push_next(&mut self.atomic_float);
        }
        if with.explicit_layout {
            features = features.push_next(&mut self.explicit_layout);
        }
        if with.robustness {
            features = features.push_next(&mut self.robustness);
        }
        if has_launch {
            features = features.push_next(&mut self.launch);
        }
        // SAFETY: the chain holds structures that the device's version and extensions define.
        unsafe { instance.get_physical_device_features2(physical, &mut features) };
        let core = features.features;
        let robust_access2 = with.robustness && self.robustness.robust_buffer_access2 == vk::TRUE;
        // On only in safe mode: robust access costs time on every load.
        self.with.robustness = false;
        // Only what compute shaders can use.
        self.core = vk::PhysicalDeviceFeatures {
            shader_float64: core.shader_float64,
            shader_int64: core.shader_int64,
            shader_int16: core.shader_int16,
            shader_storage_buffer_array_dynamic_indexing: core
                .shader_storage_buffer_array_dynamic_indexing,
            ..Default::default()
        };
        // A feature that depends on another extension or on graphics stays off.
        let v11 = self.v11;
        self.v11 = vk::PhysicalDeviceVulkan11Features {
            storage_buffer16_bit_access: v11.storage_buffer16_bit_access,
            uniform_and_storage_buffer16_bit_access: v11.uniform_and_storage_buffer16_bit_access,
            storage_push_constant16: v11.storage_push_constant16,
            variable_pointers: v11.variable_pointers,
            variable_pointers_storage_buffer: v11.variable_pointers_storage_buffer,
            ..Default::default()
        };
        let v12 = self.v12;
        self.v12 = vk::PhysicalDeviceVulkan12Features {
            storage_buffer8_bit_access: v12.storage_buffer8_bit_access,
            uniform_and_storage_buffer8_bit_access: v12.uniform_and_storage_buffer8_bit_access,
            storage_push_constant8: v12.storage_push_constant8,
            shader_buffer_int64_atomics: v12.shader_buffer_int64_atomics,
            shader_shared_int64_atomics: v12.shader_shared_int64_atomics,
            shader_float16: v12.shader_float16,
            shader_int8: v12.shader_int8,
            scalar_block_layout: v12.scalar_block_layout,
            uniform_buffer_standard_layout: v12.uniform_buffer_standard_layout,
            shader_subgroup_extended_types: v12.shader_subgroup_extended_types,
            host_query_reset: v12.host_query_reset,
            timeline_semaphore: v12.timeline_semaphore,
            buffer_device_address: v12.buffer_device_address,
            vulkan_memory_model: v12.vulkan_memory_model,
            vulkan_memory_model_device_scope: v12.vulkan_memory_model_device_scope,
            ..Default::default()
        };
        let v13 = self.v13;
        self.v13 = vk::PhysicalDeviceVulkan13Features {
            subgroup_size_control: v13.subgroup_size_control,
            compute_full_subgroups: v13.compute_full_subgroups,
            synchronization2: v13.synchronization2,
            shader_zero_initialize_workgroup_memory: v13.shader_zero_initialize_workgroup_memory,
            shader_integer_dot_product: v13.shader_integer_dot_product,
            maintenance4: v13.maintenance4,
            ..Default::default()
        };
        self.coop.p_next = std::ptr::null_mut();
        self.coop2.p_next = std::ptr::null_mut();
        self.bf16.p_next = std::ptr::null_mut();
        self.atomic_float.p_next = std::ptr::null_mut();
        self.explicit_layout.p_next = std::ptr::null_mut();
        let on = |b: vk::Bool32| b == vk::TRUE;
        choice::Features {
            timeline_semaphore: on(v12.timeline_semaphore),
            buffer_device_address: on(v12.buffer_device_address),
            float16: on(v12.shader_float16),
            storage16: on(v11.storage_buffer16_bit_access),
            subgroup_size_control: with.v13 && on(v13.subgroup_size_control),
            compute_full_subgroups: with.v13 && on(v13.compute_full_subgroups),
            cooperative_matrix: with.coop && on(self.coop.cooperative_matrix),
            cooperative_matrix2: with.coop2
                && on(self.coop2.workgroup_scope)
                && on(self.coop2.flexible_dimensions),
            bfloat16: with.bf16 && on(self.bf16.bfloat16_type),
            bfloat16_cooperative_matrix: with.bf16 && on(self.bf16.bfloat16_cooperative_matrix),
            cuda_kernel_launch: has_launch && on(self.launch.cuda_kernel_launch_features),
            robust_access: on(core.robust_buffer_access),
            robust_access2,
            zeroed_workgroup_memory: with.v13 && on(v13.shader_zero_initialize_workgroup_memory),
        }
    }

    /// Turns bounds checks on, and turns off what they do not cover.
    pub(super) fn secure(&mut self, isolation: Isolation) {
        self.core.robust_buffer_access = vk::TRUE;
        if isolation == Isolation::Range {
            self.with.robustness = true;
            self.robustness =
                vk::PhysicalDeviceRobustness2FeaturesEXT::default().robust_buffer_access2(true);
        }
        self.v12.buffer_device_address = vk::FALSE;
        self.v11.variable_pointers = vk::FALSE;
        self.v11.variable_pointers_storage_buffer = vk::FALSE;
        self.with.coop = false;
        self.with.coop2 = false;
        self.with.bf16 = false;
        self.with.explicit_layout = false;
    }

    /// The enabled features that shaders may use.
    pub(super) fn shader_rules(&self, snapshot: &Snapshot) -> Support {
        use vk::SubgroupFeatureFlags as S;
        let (v11, v12, core) = (&self.v11, &self.v12, &self.core);
        let compute = vk::ShaderStageFlags::COMPUTE;
        // Subgroup capabilities are numbered like the bits of their operations.
        let subgroup = (0..8).map(|bit| {
            let has = snapshot.subgroup.stages.contains(compute)
                && (snapshot.subgroup.operations).contains(S::from_raw(1 << bit));
            (61 + bit, vk::Bool32::from(has))
        });
        let [nan_preserve, denorm_preserve, denorm_flush] = snapshot.float_controls;
        let dot = self.v13.shader_integer_dot_product;
        let atomics64 = v12.shader_buffer_int64_atomics & v12.shader_shared_int64_atomics;
        let float = &self.atomic_float;
        let float_add = float.shader_buffer_float32_atomic_add
            & float.shader_shared_float32_atomic_add
            & vk::Bool32::from(self.with.atomic_float);
        // SPIR-V's capability numbers.
        let capabilities = [
            (0, vk::TRUE),
            (1, vk::TRUE),
            (9, v12.shader_float16),
            (10, core.shader_float64),
            (11, core.shader_int64),
            (12, atomics64),
            (22, core.shader_int16),
            (30, core.shader_storage_buffer_array_dynamic_indexing),
            (39, v12.shader_int8),
            (4433, v11.storage_buffer16_bit_access),
            (4434, v11.uniform_and_storage_buffer16_bit_access),
            (4435, v11.storage_push_constant16),
            (4448, v12.storage_buffer8_bit_access),
            (4449, v12.uniform_and_storage_buffer8_bit_access),
            (4450, v12.storage_push_constant8),
            (5345, v12.vulkan_memory_model),
            (5346, v12.vulkan_memory_model_device_scope),
            (4464, denorm_preserve),
            (4465, denorm_flush),
            (4466, nan_preserve),
            (6033, float_add),
        ];
        Support {
            version: snapshot.newest_spirv(),
            capabilities: capabilities
                .into_iter()
                .chain(subgroup)
                .chain((6016..6020).map(|capability| (capability, dot)))
                .filter_map(|(capability, on)| (on == vk::TRUE).then_some(capability))
                .collect(),
            shared_bytes: u64::from(snapshot.limits.max_compute_shared_memory_size),
        }
    }

    /// The extensions of the chain's structures.
    pub(super) fn extensions(&self) -> Vec<&'static CStr> {
        let with = self.with;
        [
            (with.coop, khr::cooperative_matrix::NAME),
            (with.coop2, vk_ext::NV_COOPERATIVE_MATRIX2),
            (with.bf16, vk_ext::KHR_SHADER_BFLOAT16),
            (with.atomic_float, ext::shader_atomic_float::NAME),
            (
                with.explicit_layout,
                khr::workgroup_memory_explicit_layout::NAME,
            ),
            (with.robustness, ext::robustness2::NAME),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect()
    }

    pub(super) fn enable<'a>(
        &'a mut self,
        mut info: vk::DeviceCreateInfo<'a>,
    ) -> vk::DeviceCreateInfo<'a> {
        let with = self.with;
        info = info
            .enabled_features(&self.core)
            .push_next(&mut self.v11)
            .push_next(&mut self.v12);
        if with.v13 {
            info = info.push_next(&mut self.v13);
        }
        if with.coop {
            info = info.push_next(&mut self.coop);
        }
        if with.coop2 {
            info = info.push_next(&mut self.coop2);
        }
        if with.bf16 {
            info = info.push_next(&mut self.bf16);
        }
        if with.atomic_float {
            info = info.push_next(&mut self.atomic_float);
        }
        if with.explicit_layout {
            info = info.push_next(&mut self.explicit_layout);
        }
        if with.robustness {
            info = info.push_next(&mut self.robustness);
        }
        info
    }
}

/// The structure that enables the fault extension, if the device has it.
pub(super) fn fault(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    present: bool,
) -> Option<vk::PhysicalDeviceFaultFeaturesEXT<'static>> {
    if !present {
        return None;
    }
    let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default();
    let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut fault);
    // SAFETY: the device has the extension.
    unsafe { instance.get_physical_device_features2(physical, &mut features) };
    (fault.device_fault == vk::TRUE)
        .then(|| vk::PhysicalDeviceFaultFeaturesEXT::default().device_fault(true))
}

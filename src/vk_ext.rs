//! Vulkan structures newer than `ash` 0.38, declared by hand.
//!
//! Source: the Vulkan specification's registry (`vk.xml`), extensions `VK_NV_cooperative_matrix2`
//! (number 594) and `VK_KHR_shader_bfloat16` (number 142). Structure type values follow the
//! registry's rule 1000000000 + (number - 1) * 1000 + offset.

use std::ffi::{CStr, c_void};

use ash::vk;

pub const NV_COOPERATIVE_MATRIX2: &CStr = c"VK_NV_cooperative_matrix2";
pub const KHR_SHADER_BFLOAT16: &CStr = c"VK_KHR_shader_bfloat16";

/// `VkPhysicalDeviceCooperativeMatrix2FeaturesNV`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CooperativeMatrix2Features {
    pub s_type: vk::StructureType,
    pub p_next: *mut c_void,
    pub workgroup_scope: vk::Bool32,
    pub flexible_dimensions: vk::Bool32,
    pub reductions: vk::Bool32,
    pub conversions: vk::Bool32,
    pub per_element_operations: vk::Bool32,
    pub tensor_addressing: vk::Bool32,
    pub block_loads: vk::Bool32,
}

impl Default for CooperativeMatrix2Features {
    fn default() -> Self {
        Self {
            s_type: vk::StructureType::from_raw(1_000_593_000),
            p_next: std::ptr::null_mut(),
            workgroup_scope: 0,
            flexible_dimensions: 0,
            reductions: 0,
            conversions: 0,
            per_element_operations: 0,
            tensor_addressing: 0,
            block_loads: 0,
        }
    }
}

// SAFETY: layout and structure type are the registry's, and the registry allows the structure in
// these chains.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for CooperativeMatrix2Features {}
// SAFETY: as above.
unsafe impl vk::ExtendsDeviceCreateInfo for CooperativeMatrix2Features {}
// SAFETY: `repr(C)` with `s_type` and `p_next` first.
unsafe impl vk::TaggedStructure for CooperativeMatrix2Features {
    const STRUCTURE_TYPE: vk::StructureType = vk::StructureType::from_raw(1_000_593_000);
}

/// `VkPhysicalDeviceCooperativeMatrix2PropertiesNV`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CooperativeMatrix2Properties {
    pub s_type: vk::StructureType,
    pub p_next: *mut c_void,
    pub workgroup_scope_max_workgroup_size: u32,
    pub flexible_dimensions_max_dimension: u32,
    pub workgroup_scope_reserved_shared_memory: u32,
}

impl Default for CooperativeMatrix2Properties {
    fn default() -> Self {
        Self {
            s_type: vk::StructureType::from_raw(1_000_593_002),
            p_next: std::ptr::null_mut(),
            workgroup_scope_max_workgroup_size: 0,
            flexible_dimensions_max_dimension: 0,
            workgroup_scope_reserved_shared_memory: 0,
        }
    }
}

// SAFETY: layout and structure type are the registry's; the chain is allowed.
unsafe impl vk::ExtendsPhysicalDeviceProperties2 for CooperativeMatrix2Properties {}
// SAFETY: `repr(C)` with `s_type` and `p_next` first.
unsafe impl vk::TaggedStructure for CooperativeMatrix2Properties {
    const STRUCTURE_TYPE: vk::StructureType = vk::StructureType::from_raw(1_000_593_002);
}

/// `VkCooperativeMatrixFlexibleDimensionsPropertiesNV`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FlexibleDimensions {
    pub s_type: vk::StructureType,
    pub p_next: *mut c_void,
    pub m_granularity: u32,
    pub n_granularity: u32,
    pub k_granularity: u32,
    pub a_type: i32,
    pub b_type: i32,
    pub c_type: i32,
    pub result_type: i32,
    pub saturating_accumulation: vk::Bool32,
    pub scope: i32,
    pub workgroup_invocations: u32,
}

impl Default for FlexibleDimensions {
    fn default() -> Self {
        Self {
            s_type: vk::StructureType::from_raw(1_000_593_001),
            p_next: std::ptr::null_mut(),
            m_granularity: 0,
            n_granularity: 0,
            k_granularity: 0,
            a_type: 0,
            b_type: 0,
            c_type: 0,
            result_type: 0,
            saturating_accumulation: 0,
            scope: 0,
            workgroup_invocations: 0,
        }
    }
}

/// `vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV`
pub type GetFlexibleDimensions =
    unsafe extern "system" fn(vk::PhysicalDevice, *mut u32, *mut FlexibleDimensions) -> vk::Result;

/// `VkPhysicalDeviceShaderBfloat16FeaturesKHR`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bfloat16Features {
    pub s_type: vk::StructureType,
    pub p_next: *mut c_void,
    pub bfloat16_type: vk::Bool32,
    pub bfloat16_dot_product: vk::Bool32,
    pub bfloat16_cooperative_matrix: vk::Bool32,
}

impl Default for Bfloat16Features {
    fn default() -> Self {
        Self {
            s_type: vk::StructureType::from_raw(1_000_141_000),
            p_next: std::ptr::null_mut(),
            bfloat16_type: 0,
            bfloat16_dot_product: 0,
            bfloat16_cooperative_matrix: 0,
        }
    }
}

// SAFETY: layout and structure type are the registry's; the chains are allowed.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for Bfloat16Features {}
// SAFETY: as above.
unsafe impl vk::ExtendsDeviceCreateInfo for Bfloat16Features {}
// SAFETY: `repr(C)` with `s_type` and `p_next` first.
unsafe impl vk::TaggedStructure for Bfloat16Features {
    const STRUCTURE_TYPE: vk::StructureType = vk::StructureType::from_raw(1_000_141_000);
}

/// Name of a `VkComponentTypeKHR` value.
pub fn component_name(raw: i32) -> &'static str {
    match raw {
        0 => "float16",
        1 => "float32",
        2 => "float64",
        3 => "sint8",
        4 => "sint16",
        5 => "sint32",
        6 => "sint64",
        7 => "uint8",
        8 => "uint16",
        9 => "uint32",
        10 => "uint64",
        1_000_141_000 => "bfloat16",
        1_000_491_000 => "sint8packed",
        1_000_491_001 => "uint8packed",
        1_000_491_002 => "float8e4m3",
        1_000_491_003 => "float8e5m2",
        _ => "unknown",
    }
}

/// Name of a `VkScopeKHR` value.
pub fn scope_name(raw: i32) -> &'static str {
    match raw {
        1 => "device",
        2 => "workgroup",
        3 => "subgroup",
        5 => "queueFamily",
        _ => "unknown",
    }
}

//! The loader and the instance: validation messages, and what every physical device reports.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::{ext, khr, nv, vk};
use parking_lot::Mutex;

use super::choice::{self, Snapshot};
use super::features::FeatureChain;
use crate::config::Config;
use crate::error::{self, Error, Result};
use crate::vk_ext;

const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";
/// Largest number of validation messages kept until somebody asks; more would only repeat.
const MAX_MESSAGES: usize = 64;

/// Validation messages. The layer adds them on whatever thread made the call.
#[derive(Default)]
pub struct Messages {
    queue: Mutex<VecDeque<String>>,
    any: AtomicBool,
}

impl Messages {
    /// The oldest messages, if there are any.
    pub fn take(&self) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.queue.lock();
        self.any.store(false, Ordering::Release);
        let all: Vec<String> = queue.drain(..).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }
}

unsafe extern "system" fn on_message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    if data.is_null() || user.is_null() {
        return vk::FALSE;
    }
    // Nothing below panics: texts are copied and a lock is taken.
    // SAFETY: the layer passes a valid structure for the time of the call, and `user` is the
    // `Messages` that `Instance` keeps alive for longer than its messenger.
    let (data, messages) = unsafe { (&*data, &*user.cast::<Messages>()) };
    // SAFETY: the layer's strings are nul-terminated.
    let (id, text) = unsafe { (data.message_id_name_as_c_str(), data.message_as_c_str()) };
    let owned = |s: Option<&CStr>| s.map_or(String::new(), |t| t.to_string_lossy().into_owned());
    let (id, text) = (owned(id), owned(text));
    // Newer layers leave the id out of the text.
    let text = if text.contains(&id) {
        text
    } else {
        format!("{id}: {text}")
    };
    let mut queue = messages.queue.lock();
    if queue.len() < MAX_MESSAGES {
        queue.push_back(text);
    }
    messages.any.store(true, Ordering::Release);
    vk::FALSE
}

/// The loaded Vulkan instance.
pub struct Instance {
    pub raw: ash::Instance,
    pub(super) debug: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    pub messages: Arc<Messages>,
    /// Keeps the loader's library open.
    entry: ash::Entry,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: nothing made from the instance is left: `Device` owns its lease and drops it last.
        unsafe {
            if let Some((debug, messenger)) = self.debug.take() {
                debug.destroy_debug_utils_messenger(messenger, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

const NO_DRIVER: &str = "a Vulkan loader is installed, but no driver that works: install the GPU's driver with its \
    Vulkan part (for NVIDIA on Debian and Ubuntu: libnvidia-gl or nvidia-driver; in a container also \
    NVIDIA_DRIVER_CAPABILITIES=all), or the software device (apt-get install mesa-vulkan-drivers; Fedora: dnf \
    install mesa-vulkan-drivers; Arch: pacman -S vulkan-swrast; Alpine: apk add mesa-vulkan-swrast), and check that \
    VK_DRIVER_FILES and VK_ICD_FILENAMES, if set, name existing files";

fn no_driver(call: &str, result: vk::Result) -> Error {
    Error::NoDevice(format!("{NO_DRIVER} ({call}: {result:?})"))
}

impl Instance {
    pub fn entry(&self) -> &ash::Entry {
        &self.entry
    }

    /// Use a [`Lease`](super::lease::Lease) to get an instance for a device.
    pub(super) fn new(config: &Config) -> Result<Self> {
        // SAFETY: loading the system's Vulkan loader runs its initialisers, which is its purpose.
        let entry = unsafe {
            match &config.loader {
                Some(path) => ash::Entry::load_from(path),
                None => ash::Entry::load().or_else(|error| {
                    let paths = config.loader_elsewhere.iter();
                    let mut found = paths.filter_map(|path| ash::Entry::load_from(path).ok());
                    found.next().ok_or(error)
                }),
            }
        }
        .map_err(|e| {
            Error::NoLoader(format!(
                "no Vulkan loader found ({e}); install it (Debian and Ubuntu: apt-get install libvulkan1; Fedora: \
                 dnf install vulkan-loader; Arch: pacman -S vulkan-icd-loader; Alpine: apk add vulkan-loader \
                 mesa-vulkan-swrast; macOS: brew install vulkan-loader molten-vk; Windows: it comes with the GPU's driver)"
            ))
        })?;
        // SAFETY: the entry is loaded.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .ok()
            .flatten()
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_2 {
            return Err(Error::NoLoader(format!(
                "the Vulkan loader is of version {}.{}, 1.2 or later is needed",
                vk::api_version_major(version),
                vk::api_version_minor(version)
            )));
        }
        let app = vk::ApplicationInfo::default()
            .application_name(c"helios-vk")
            .engine_name(c"helios-vk")
            .api_version(vk::API_VERSION_1_3);
        // SAFETY: the entry is loaded.
        let available = unsafe { entry.enumerate_instance_extension_properties(None) }
            .map_err(error::vulkan("vkEnumerateInstanceExtensionProperties"))?;
        let has = |list: &[vk::ExtensionProperties], name: &CStr| {
            list.iter()
                .any(|e| e.extension_name_as_c_str().is_ok_and(|n| n == name))
        };
        let mut extensions: Vec<*const c_char> = Vec::new();
        let mut flags = vk::InstanceCreateFlags::empty();
        // The loader lists MoltenVK only if this extension is enabled.
        if has(&available, khr::portability_enumeration::NAME) {
            extensions.push(khr::portability_enumeration::NAME.as_ptr());
            flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        let mut layers: Vec<*const c_char> = Vec::new();
        let mut layer_extensions = Vec::new();
        if config.validation {
            // SAFETY: the entry is loaded.
            let installed = unsafe { entry.enumerate_instance_layer_properties() }
                .map_err(error::vulkan("vkEnumerateInstanceLayerProperties"))?;
            let layer = installed
                .iter()
                .find(|l| l.layer_name_as_c_str().is_ok_and(|n| n == VALIDATION_LAYER));
            if layer.is_none() {
                return Err(Error::Unsupported(
                    "HELIOS_VALIDATION=1 needs VK_LAYER_KHRONOS_validation (Debian and Ubuntu: apt-get install \
                     vulkan-validationlayers)"
                        .to_owned(),
                ));
            }
            layers.push(VALIDATION_LAYER.as_ptr());
            // SAFETY: the layer is installed.
            layer_extensions =
                unsafe { entry.enumerate_instance_extension_properties(Some(VALIDATION_LAYER)) }
                    .map_err(error::vulkan("vkEnumerateInstanceExtensionProperties"))?;
        }
        let debug_utils = config.validation
            && (has(&available, ext::debug_utils::NAME)
                || has(&layer_extensions, ext::debug_utils::NAME));
        if debug_utils {
            extensions.push(ext::debug_utils::NAME.as_ptr());
        }
        let enables = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features =
            vk::ValidationFeaturesEXT::default().enabled_validation_features(&enables);
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&app)
            .flags(flags);
        // Newer layers check shader accesses and the order between submissions only if these settings ask for it; older
        // ones do not know the settings.
        let on = vk::TRUE.to_ne_bytes();
        let setting = |name: &'static CStr| {
            vk::LayerSettingEXT::default()
                .layer_name(VALIDATION_LAYER)
                .setting_name(name)
                .ty(vk::LayerSettingTypeEXT::BOOL32)
                .values(&on)
        };
        let mut list = [
            setting(c"validate_sync"),
            setting(c"syncval_shader_accesses_heuristic"),
            setting(c"syncval_full_validation"),
        ];
        for entry in &mut list {
            // The builder counts bytes, the extension counts values.
            entry.value_count = 1;
        }
        let mut layer_settings = vk::LayerSettingsCreateInfoEXT::default().settings(&list);
        if config.validation && has(&layer_extensions, ext::layer_settings::NAME) {
            extensions.push(ext::layer_settings::NAME.as_ptr());
            info = info.push_next(&mut layer_settings);
        } else if config.validation && has(&layer_extensions, ext::validation_features::NAME) {
            extensions.push(ext::validation_features::NAME.as_ptr());
            info = info.push_next(&mut features);
        }
        let info = info
            .enabled_extension_names(&extensions)
            .enabled_layer_names(&layers);
        // SAFETY: all pointers in `info` live until the call returns.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|result| match result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => no_driver("vkCreateInstance", result),
            other => error::vulkan("vkCreateInstance")(other),
        })?;
        let messages = Arc::new(Messages::default());
        let mut instance = Self {
            raw,
            debug: None,
            messages,
            entry,
        };
        if debug_utils {
            let loader = ext::debug_utils::Instance::new(&instance.entry, &instance.raw);
            let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
                .message_severity(
                    vk::DebugUtilsMessageSeverityFlagsEXT::ERROR
                        | vk::DebugUtilsMessageSeverityFlagsEXT::WARNING,
                )
                .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
                .pfn_user_callback(Some(on_message))
                .user_data(Arc::as_ptr(&instance.messages).cast_mut().cast());
            // SAFETY: the callback's user data outlives the messenger (see `Drop`).
            let messenger = unsafe { loader.create_debug_utils_messenger(&info, None) }.map_err(
                error::create("vkCreateDebugUtilsMessengerEXT", "messenger", 0),
            )?;
            instance.debug = Some((loader, messenger));
        }
        Ok(instance)
    }

    /// Every physical device with what it reports, in the loader's order.
    pub fn snapshots(&self) -> Result<Vec<(vk::PhysicalDevice, Snapshot)>> {
        // SAFETY: the instance is live.
        let devices = match unsafe { self.raw.enumerate_physical_devices() } {
            Ok(devices) => devices,
            Err(result @ vk::Result::ERROR_INITIALIZATION_FAILED) => {
                return Err(no_driver("vkEnumeratePhysicalDevices", result));
            }
            Err(other) => return Err(error::vulkan("vkEnumeratePhysicalDevices")(other)),
        };
        devices
            .into_iter()
            .map(|d| Ok((d, self.snapshot(d)?)))
            .collect()
    }

    fn snapshot(&self, physical: vk::PhysicalDevice) -> Result<Snapshot> {
        // SAFETY: `physical` belongs to the live instance, here and below.
        let basic = unsafe { self.raw.get_physical_device_properties(physical) };
        // SAFETY: as above.
        let extensions: Vec<String> = unsafe {
            self.raw
                .enumerate_device_extension_properties(physical)
                .map_err(error::vulkan("vkEnumerateDeviceExtensionProperties"))?
        }
        .iter()
        .filter_map(|e| {
            Some(
                e.extension_name_as_c_str()
                    .ok()?
                    .to_string_lossy()
                    .into_owned(),
            )
        })
        .collect();
        let has = |name: &CStr| extensions.iter().any(|e| e.as_bytes() == name.to_bytes());
        let v12 = basic.api_version >= vk::API_VERSION_1_2;
        let v13 = basic.api_version >= vk::API_VERSION_1_3;

        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut float = vk::PhysicalDeviceFloatControlsProperties::default();
        let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
        let mut size_control = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
        let mut maintenance3 = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut push = vk::PhysicalDevicePushDescriptorPropertiesKHR::default();
        let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
        let mut coop2 = vk_ext::CooperativeMatrix2Properties::default();
        let mut multiprocessors = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
        let mut launch = vk::PhysicalDeviceCudaKernelLaunchPropertiesNV::default();
        let mut properties = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut id)
            .push_next(&mut subgroup)
            .push_next(&mut maintenance3);
        if v12 {
            properties = properties.push_next(&mut driver).push_next(&mut float);
        }
        if v13 {
            properties = properties
                .push_next(&mut size_control)
                .push_next(&mut maintenance4);
        }
        if has(khr::push_descriptor::NAME) {
            properties = properties.push_next(&mut push);
        }
        if has(ext::pci_bus_info::NAME) {
            properties = properties.push_next(&mut pci);
        }
        if has(vk_ext::NV_COOPERATIVE_MATRIX2) {
            properties = properties.push_next(&mut coop2);
        }
        if has(nv::shader_sm_builtins::NAME) {
            properties = properties.push_next(&mut multiprocessors);
        }
        let has_launch = has(nv::cuda_kernel_launch::NAME);
        if has_launch {
            properties = properties.push_next(&mut launch);
        }
        // SAFETY: the chain holds structures that the device's version and extensions define.
        unsafe {
            self.raw
                .get_physical_device_properties2(physical, &mut properties)
        };

        let mut chain = FeatureChain::default();
        let supported = chain.query(&self.raw, physical, basic.api_version, &has);

        // SAFETY: as above.
        let families = unsafe {
            self.raw
                .get_physical_device_queue_family_properties(physical)
        };
        // SAFETY: as above.
        let memory = unsafe { self.raw.get_physical_device_memory_properties(physical) };
        let budget = has(ext::memory_budget::NAME).then(|| memory_budget(&self.raw, physical));
        let text = |s: std::result::Result<&CStr, _>| {
            s.map_or(String::new(), |t| t.to_string_lossy().into_owned())
        };
        let (coop_shapes, flexible_shapes) =
            self.coop_shapes(physical, supported.cooperative_matrix, &has);
        Ok(Snapshot {
            name: text(basic.device_name_as_c_str()),
            device_type: basic.device_type,
            vendor_id: basic.vendor_id,
            device_id: basic.device_id,
            uuid: id.device_uuid,
            api_version: basic.api_version,
            driver_version: basic.driver_version,
            driver_name: text(driver.driver_name_as_c_str()),
            driver_info: text(driver.driver_info_as_c_str()),
            pci: has(ext::pci_bus_info::NAME).then(|| {
                format!(
                    "{:04x}:{:02x}:{:02x}.{:x}",
                    pci.pci_domain, pci.pci_bus, pci.pci_device, pci.pci_function
                )
            }),
            queue_families: families
                .iter()
                .map(|f| choice::QueueFamily {
                    flags: f.queue_flags,
                    count: f.queue_count,
                    timestamp_valid_bits: f.timestamp_valid_bits,
                })
                .collect(),
            memory_types: memory
                .memory_types_as_slice()
                .iter()
                .map(|t| choice::MemoryType {
                    flags: t.property_flags,
                    heap: t.heap_index,
                })
                .collect(),
            memory_heaps: memory
                .memory_heaps_as_slice()
                .iter()
                .enumerate()
                .map(|(i, h)| choice::MemoryHeap {
                    size: h.size,
                    device_local: h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
                    budget: budget.map(|b| (b.heap_usage[i], b.heap_budget[i])),
                })
                .collect(),
            features: supported,
            limits: basic.limits,
            subgroup: choice::Subgroup {
                size: subgroup.subgroup_size,
                stages: subgroup.supported_stages,
                operations: subgroup.supported_operations,
                quad_in_all_stages: subgroup.quad_operations_in_all_stages == vk::TRUE,
                min_size: size_control.min_subgroup_size,
                max_size: size_control.max_subgroup_size,
                max_workgroup_subgroups: size_control.max_compute_workgroup_subgroups,
                required_size_stages: size_control.required_subgroup_size_stages,
            },
            float_controls: [
                float.shader_signed_zero_inf_nan_preserve_float32,
                float.shader_denorm_preserve_float32,
                float.shader_denorm_flush_to_zero_float32,
            ],
            coop_shapes,
            flexible_shapes,
            coop2_max_shared: coop2.workgroup_scope_reserved_shared_memory,
            max_push_descriptors: push.max_push_descriptors,
            max_allocation_size: maintenance3.max_memory_allocation_size,
            max_buffer_size: if v13 && maintenance4.max_buffer_size > 0 {
                maintenance4.max_buffer_size
            } else {
                maintenance3.max_memory_allocation_size
            },
            multiprocessors: multiprocessors.shader_sm_count,
            compute_capability: has_launch.then_some([
                launch.compute_capability_major,
                launch.compute_capability_minor,
            ]),
            extensions,
        })
    }

    fn coop_shapes(
        &self,
        physical: vk::PhysicalDevice,
        supported: bool,
        has: &dyn Fn(&CStr) -> bool,
    ) -> (Vec<choice::CoopShape>, Vec<choice::FlexibleShape>) {
        if !supported {
            return (Vec::new(), Vec::new());
        }
        let loader = khr::cooperative_matrix::Instance::new(&self.entry, &self.raw);
        // SAFETY: the device has the extension.
        let shapes = unsafe { loader.get_physical_device_cooperative_matrix_properties(physical) }
            .unwrap_or_default()
            .iter()
            .map(|s| choice::CoopShape {
                m: s.m_size,
                n: s.n_size,
                k: s.k_size,
                a: s.a_type.as_raw(),
                b: s.b_type.as_raw(),
                c: s.c_type.as_raw(),
                result: s.result_type.as_raw(),
                saturating: s.saturating_accumulation == vk::TRUE,
                scope: s.scope.as_raw(),
            })
            .collect();
        let mut flexible = Vec::new();
        if has(vk_ext::NV_COOPERATIVE_MATRIX2) {
            let name = c"vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV";
            // SAFETY: the instance is live.
            let pointer = unsafe {
                self.entry
                    .get_instance_proc_addr(self.raw.handle(), name.as_ptr())
            };
            if let Some(pointer) = pointer {
                // SAFETY: the loader returns the named function, whose signature the registry gives.
                let get: vk_ext::GetFlexibleDimensions = unsafe { std::mem::transmute(pointer) };
                let mut count = 0;
                // SAFETY: a null array asks for the count.
                let counted = unsafe { get(physical, &mut count, std::ptr::null_mut()) };
                if counted == vk::Result::SUCCESS {
                    let mut list = vec![vk_ext::FlexibleDimensions::default(); count as usize];
                    // SAFETY: `list` holds `count` initialised structures.
                    let got = unsafe { get(physical, &mut count, list.as_mut_ptr()) };
                    if got == vk::Result::SUCCESS {
                        list.truncate(count as usize);
                        flexible = list
                            .iter()
                            .map(|s| choice::FlexibleShape {
                                m_granularity: s.m_granularity,
                                n_granularity: s.n_granularity,
                                k_granularity: s.k_granularity,
                                a: s.a_type,
                                b: s.b_type,
                                c: s.c_type,
                                result: s.result_type,
                                saturating: s.saturating_accumulation == vk::TRUE,
                                scope: s.scope,
                                workgroup_invocations: s.workgroup_invocations,
                            })
                            .collect();
                    }
                }
            }
        }
        (shapes, flexible)
    }
}

/// Use and budget of every heap. The device must have `VK_EXT_memory_budget`.
pub(super) fn memory_budget(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
) -> vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'static> {
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
    // SAFETY: the caller's promise above.
    unsafe { instance.get_physical_device_memory_properties2(physical, &mut properties) };
    budget.p_next = std::ptr::null_mut();
    budget
}

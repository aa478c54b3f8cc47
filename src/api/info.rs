//! `initDevice`, `listDevices`, statistics, shaders, and what happens when the module loads.

use std::ptr;

use ash::vk;
use ash_version::{major, minor, patch};
use napi::{Env, sys};
use napi_derive::napi;

use super::convert::{Arg, Object, Out, array, array_buffer, number, typed_array};
use super::raise::{build, call};
use super::state;
use crate::context::Context;
use crate::device::{self, Settings};
use crate::error::Result;
use crate::plan::{self, Snapshot};
use crate::shaders::{SHADERS, Shader};
use crate::share;
use crate::timing::PHASES;
use crate::vk_ext;

/// Vulkan's packed version numbers.
mod ash_version {
    pub const fn major(v: u32) -> u32 {
        (v >> 22) & 0x7f
    }
    pub const fn minor(v: u32) -> u32 {
        (v >> 12) & 0x3ff
    }
    pub const fn patch(v: u32) -> u32 {
        v & 0xfff
    }
}

fn version(v: u32) -> String {
    format!("{}.{}.{}", major(v), minor(v), patch(v))
}

fn coop_list(env: sys::napi_env, snapshot: &Snapshot) -> sys::napi_value {
    let items: Vec<_> = snapshot
        .coop_shapes
        .iter()
        .map(|s| {
            Object::new(env)
                .integer("M", u64::from(s.m))
                .integer("N", u64::from(s.n))
                .integer("K", u64::from(s.k))
                .string("AType", vk_ext::component_name(s.a))
                .string("BType", vk_ext::component_name(s.b))
                .string("CType", vk_ext::component_name(s.c))
                .string("ResultType", vk_ext::component_name(s.result))
                .boolean("saturatingAccumulation", s.saturating)
                .string("scope", vk_ext::scope_name(s.scope))
                .raw
        })
        .collect();
    array(env, &items)
}

fn flexible_list(env: sys::napi_env, snapshot: &Snapshot) -> sys::napi_value {
    let items: Vec<_> = snapshot
        .flexible_shapes
        .iter()
        .map(|s| {
            Object::new(env)
                .integer("MGranularity", u64::from(s.m_granularity))
                .integer("NGranularity", u64::from(s.n_granularity))
                .integer("KGranularity", u64::from(s.k_granularity))
                .string("AType", vk_ext::component_name(s.a))
                .string("BType", vk_ext::component_name(s.b))
                .string("CType", vk_ext::component_name(s.c))
                .string("ResultType", vk_ext::component_name(s.result))
                .boolean("saturatingAccumulation", s.saturating)
                .string("scope", vk_ext::scope_name(s.scope))
                .integer("workgroupInvocations", u64::from(s.workgroup_invocations))
                .raw
        })
        .collect();
    array(env, &items)
}

fn device_info(env: sys::napi_env, context: &Context) -> Object {
    let device = &context.device;
    let s = &device.snapshot;
    let plan = &device.plan;
    let limits = &s.limits;
    let (m, n, k) = plan.coop_tile.unwrap_or((0, 0, 0));
    let sharing = device.sharing.as_ref().map(share::Sharing::properties);
    let sharing = sharing.unwrap_or_default();
    let int = u64::from;
    Object::new(env)
        .string("deviceName", &s.name)
        .integer("vendorId", int(s.vendor_id))
        .integer("deviceId", int(s.device_id))
        .string("deviceType", plan::type_name(s.device_type))
        .string("deviceUuid", &s.uuid_text())
        .string("apiVersion", &version(s.api_version))
        .integer("driverVersion", int(s.driver_version))
        .string("driverName", &s.driver_name)
        .string("driverInfo", &s.driver_info)
        .integer("deviceLocalMemoryBytes", device.device_local_bytes())
        .integer(
            "maxBufferBytes",
            s.max_buffer_size.min(s.max_allocation_size),
        )
        .integer(
            "maxStorageBufferRange",
            int(limits.max_storage_buffer_range),
        )
        .integer("maxPushConstantsSize", int(limits.max_push_constants_size))
        .integer("maxBindings", int(device.max_bindings()))
        .integer(
            "maxComputeSharedMemorySize",
            int(limits.max_compute_shared_memory_size),
        )
        .integer(
            "maxComputeWorkGroupInvocations",
            int(limits.max_compute_work_group_invocations),
        )
        .integer(
            "maxComputeWorkGroupSizeX",
            int(limits.max_compute_work_group_size[0]),
        )
        .integer(
            "maxComputeWorkGroupSizeY",
            int(limits.max_compute_work_group_size[1]),
        )
        .integer(
            "maxComputeWorkGroupSizeZ",
            int(limits.max_compute_work_group_size[2]),
        )
        .integer(
            "maxComputeWorkGroupCountX",
            int(limits.max_compute_work_group_count[0]),
        )
        .integer(
            "maxComputeWorkGroupCountY",
            int(limits.max_compute_work_group_count[1]),
        )
        .integer(
            "maxComputeWorkGroupCountZ",
            int(limits.max_compute_work_group_count[2]),
        )
        .integer("subgroupSize", int(s.subgroup.size))
        .integer("subgroupSupportedStages", int(s.subgroup.stages.as_raw()))
        .integer(
            "subgroupSupportedOperations",
            int(s.subgroup.operations.as_raw()),
        )
        .boolean(
            "subgroupQuadOperationsInAllStages",
            s.subgroup.quad_in_all_stages,
        )
        .boolean(
            "subgroupSizeControlSupported",
            s.features.subgroup_size_control,
        )
        .boolean(
            "computeFullSubgroupsSupported",
            s.features.compute_full_subgroups,
        )
        .integer("minSubgroupSize", int(s.subgroup.min_size))
        .integer("maxSubgroupSize", int(s.subgroup.max_size))
        .integer(
            "maxComputeWorkgroupSubgroups",
            int(s.subgroup.max_workgroup_subgroups),
        )
        .integer(
            "requiredSubgroupSizeStages",
            int(s.subgroup.required_size_stages.as_raw()),
        )
        .integer("timestampValidBits", int(plan.timestamp_valid_bits))
        .number("timestampPeriodNs", f64::from(limits.timestamp_period))
        .boolean("f16Supported", s.features.float16 && s.features.storage16)
        .boolean("bf16Supported", s.features.bfloat16)
        .boolean("hasAsyncTransfer", plan.transfer_family)
        .boolean(
            "coopMatSupported",
            s.features.cooperative_matrix && plan.coop_tile.is_some(),
        )
        .boolean("coopMat2Supported", s.features.cooperative_matrix2)
        .boolean(
            "coopMatBf16Supported",
            s.features.bfloat16_cooperative_matrix,
        )
        .integer("coopMatM", int(m))
        .integer("coopMatN", int(n))
        .integer("coopMatK", int(k))
        .value("cooperativeMatrixProperties", coop_list(env, s))
        .value("cooperativeMatrixFlexibleDimensions", flexible_list(env, s))
        .integer("coopMat2ReservedSharedMemory", int(s.coop2_max_shared))
        .boolean("hasPushDescriptors", device.push.is_some())
        .boolean("hasBDA", plan.device_address)
        .boolean("hasDGC", plan.device_address)
        .boolean("bufferExportSupported", sharing.exportable)
        .boolean("bufferImportSupported", sharing.importable)
}

/// Creates the device on the first call; later calls, from any thread, return the same information.
///
/// Prefers discrete over integrated over virtual over CPU devices; `HELIOS_DEVICE` or `options.device`
/// names another by index, UUID, PCI address or part of its name.
///
/// Throws `ERR_HELIOS_NO_LOADER` without a Vulkan loader, `ERR_HELIOS_NO_DEVICE` without a driver or a
/// device that can be used; the message says what to install.
#[napi(
    js_name = "initDevice",
    ts_args_type = "options?: { device?: string | number }",
    ts_return_type = "DeviceInfo"
)]
pub fn init_device(env: &Env, options: Arg) -> napi::Result<Out> {
    call(env, "initDevice", || {
        let wish = if options.missing() {
            None
        } else {
            let device = options.property("device")?;
            match device.kind() {
                napi::ValueType::Undefined => None,
                napi::ValueType::Number => Some(device.u32("options.device")?.to_string()),
                _ => Some(device.string("options.device")?),
            }
        };
        state::init(
            || {
                let mut settings = Settings::from_env();
                if wish.is_some() {
                    settings.wishes.device = wish;
                }
                Ok(settings)
            },
            |context| Ok(Out(device_info(env.raw(), context).raw)),
        )
    })
}

/// Every device that the drivers list, usable or not, without opening one. `usable` says whether
/// `initDevice` could take it, `reason` why not; `chosen` and `why` what `initDevice` without options would
/// do. Devices of one name differ in `index`, `uuid` and, where the driver tells, `pci`.
#[napi(js_name = "listDevices", ts_return_type = "Array<DeviceSummary>")]
pub fn list_devices(env: &Env) -> napi::Result<Out> {
    call(env, "listDevices", || {
        let raw = env.raw();
        let settings = Settings::from_env();
        let list = device::list(&settings)?;
        let choices = plan::choices(&list, settings.wishes.device.as_deref());
        let items: Vec<_> = list
            .iter()
            .enumerate()
            .map(|(index, s)| {
                let reason = s.unusable();
                let heaps: Vec<_> = s
                    .memory_heaps
                    .iter()
                    .map(|h| {
                        let heap = Object::new(raw)
                            .integer("bytes", h.size)
                            .boolean("deviceLocal", h.device_local);
                        match h.budget {
                            Some((usage, budget)) => {
                                heap.integer("usageBytes", usage)
                                    .integer("budgetBytes", budget)
                                    .raw
                            }
                            None => heap.raw,
                        }
                    })
                    .collect();
                let queues: Vec<_> = s
                    .queue_families
                    .iter()
                    .map(|f| {
                        let has = |flag| f.flags.contains(flag);
                        Object::new(raw)
                            .integer("count", u64::from(f.count))
                            .boolean("compute", has(vk::QueueFlags::COMPUTE))
                            .boolean("graphics", has(vk::QueueFlags::GRAPHICS))
                            .boolean("transfer", has(vk::QueueFlags::TRANSFER))
                            .integer("timestampValidBits", u64::from(f.timestamp_valid_bits))
                            .raw
                    })
                    .collect();
                let (chosen, why) = &choices[index];
                let mut object = Object::new(raw)
                    .integer("index", index as u64)
                    .string("name", &s.name)
                    .string("type", plan::type_name(s.device_type))
                    .integer("vendorId", u64::from(s.vendor_id))
                    .integer("deviceId", u64::from(s.device_id))
                    .string("uuid", &s.uuid_text())
                    .string("apiVersion", &version(s.api_version))
                    .string("driverName", &s.driver_name)
                    .string("driverInfo", &s.driver_info)
                    .integer("driverVersion", u64::from(s.driver_version))
                    .integer("subgroupSize", u64::from(s.subgroup.size))
                    .value("memoryHeaps", array(raw, &heaps))
                    .value("queueFamilies", array(raw, &queues))
                    .value("cooperativeMatrixProperties", coop_list(raw, s))
                    .value("cooperativeMatrixFlexibleDimensions", flexible_list(raw, s))
                    .boolean("usable", reason.is_none())
                    .boolean("chosen", *chosen)
                    .string("why", why);
                if let Some(pci) = &s.pci {
                    object = object.string("pci", pci);
                }
                if let Some(reason) = &reason {
                    object = object.string("reason", reason);
                }
                object.raw
            })
            .collect();
        Ok(Out(array(raw, &items)))
    })
}

/// Counters since `initDevice`: dispatches, barriers, submits, uploads, reads and their bytes, waits
/// for a command slot or staging space (`stalls`), graph launches. `readsAhead` are reads whose copy was made
/// before they were called, `unreadAhead` such copies that no read took.
#[napi(js_name = "getStats", ts_return_type = "Stats")]
pub fn get_stats(env: &Env) -> napi::Result<Out> {
    call(env, "getStats", || {
        state::with(|context| {
            let s = context.stats;
            Ok(Out(Object::new(env.raw())
                .integer("dispatches", s.dispatches)
                .integer("barriers", s.barriers)
                .integer("submits", s.submits)
                .integer("uploads", s.uploads)
                .integer("uploadBytes", s.upload_bytes)
                .integer("directUploads", s.direct_uploads)
                .integer("reads", s.reads)
                .integer("readBytes", s.read_bytes)
                .integer("directReads", s.direct_reads)
                .integer("readsAhead", context.reads_ahead().0)
                .integer("unreadAhead", context.reads_ahead().1)
                .integer("graphLaunches", s.graph_launches)
                .integer("stalls", s.stalls + context.recorder.stalls())
                .integer("buffersCreated", s.buffers_created)
                .integer("peakBufferBytes", s.peak_buffer_bytes)
                .integer("peakBlockBytes", s.peak_block_bytes)
                .raw))
        })
    })
}

/// What the allocator holds. A "slab" is a shared block of device memory; counts that have no meaning
/// here are 0.
#[napi(js_name = "getAllocatorStats", ts_return_type = "AllocatorStats")]
pub fn get_allocator_stats(env: &Env) -> napi::Result<Out> {
    call(env, "getAllocatorStats", || {
        state::with(|context| {
            let usage = context.memory.usage();
            let (recycled, recycled_bytes, reuses, evictions) = context.recycled();
            let live = context.buffers.len() as u64;
            let (alone, alone_bytes) = context.individual_buffers();
            let (host, host_bytes) = context.staging();
            Ok(Out(Object::new(env.raw())
                .integer("activeBuffers", live)
                .integer("activeBufferBytes", context.live_bytes)
                .integer("slabBuffers", live - alone)
                .integer("slabBufferBytes", context.live_bytes - alone_bytes)
                .integer("individualBuffers", alone)
                .integer("individualBufferBytes", alone_bytes)
                .integer("tempSlabCount", 0)
                .integer("tempSlabCapacityBytes", 0)
                .integer("tempSlabUsedBytes", 0)
                .integer("tempSlabLiveBytes", 0)
                .integer("tempSlabLiveRefs", 0)
                .integer("tempSlabResets", 0)
                .integer("tempSlabsDisabled", 0)
                .integer("hostSlabCount", host)
                .integer("hostSlabCapacityBytes", host_bytes)
                .integer("trackedVkMemoryAllocations", usage.blocks)
                .integer("temporaryBufferRequests", context.stats.temporary_requests)
                .integer("slabFallbacks", 0)
                .integer("slabFreeRangeReuses", reuses)
                .integer("slabFreeRangeOverflows", evictions)
                .integer("blockBytes", usage.block_bytes)
                .integer("allocatedBytes", usage.allocated_bytes)
                .integer("recycledBuffers", recycled)
                .integer("recycledBytes", recycled_bytes)
                .integer("retiredBuffers", context.retired_count() as u64)
                .integer("readbackLeasedBytes", context.leased_bytes().0)
                .integer("readbackAheadBytes", context.leased_bytes().1)
                .integer("readbackIdleBytes", context.readback.idle_bytes())
                .raw))
        })
    })
}

/// Host time by phase since the last reset, in microseconds; phases are disjoint, and waiting for the
/// GPU is `ring_wait`. Filled only with `HELIOS_HOST_TIMING=1`.
#[napi(js_name = "getHostTiming", ts_return_type = "HostTiming")]
pub fn get_host_timing(env: &Env) -> napi::Result<Out> {
    call(env, "getHostTiming", || {
        state::with(|context| {
            let timing = &context.timing;
            let mut phases = Object::new(env.raw());
            for (phase, name) in PHASES {
                let total = timing.totals[phase as usize];
                let entry = Object::new(env.raw())
                    .number("us", total.nanoseconds as f64 / 1e3)
                    .integer("calls", total.calls);
                phases = phases.value(name, entry.raw);
            }
            Ok(Out(Object::new(env.raw())
                .boolean("enabled", timing.enabled)
                .integer("batches", timing.batches)
                .integer("dispatches", timing.dispatches)
                .integer("clockReads", timing.clock_reads)
                .value("phases", phases.raw)
                .raw))
        })
    })
}

/// Sets the host timing back to zero.
#[napi(js_name = "resetHostTiming")]
pub fn reset_host_timing(env: &Env) -> napi::Result<()> {
    call(env, "resetHostTiming", || {
        state::with(|context| {
            context.timing.reset();
            Ok(())
        })
    })
}

/// Waits for everything and releases the device with all that lives on it. `initDevice` makes a new one.
#[napi]
pub fn destroy(env: &Env) -> napi::Result<()> {
    call(env, "destroy", || {
        state::destroy();
        Ok(())
    })
}

fn shader_object(env: sys::napi_env, shader: &Shader) -> Result<sys::napi_value> {
    let reflection = Context::reflect(shader.spirv)?;
    let bytes = size_of_val(shader.spirv);
    let (buffer, data) = array_buffer(env, bytes)?;
    // SAFETY: the new ArrayBuffer has `bytes` bytes, as the shader has.
    unsafe { ptr::copy_nonoverlapping(shader.spirv.as_ptr().cast(), data, bytes) };
    let words = typed_array(
        env,
        sys::TypedarrayType::uint32_array,
        shader.spirv.len(),
        buffer,
    );
    let size: Vec<_> = reflection
        .workgroup_size
        .iter()
        .map(|&n| number(env, f64::from(n)))
        .collect();
    Ok(Object::new(env)
        .value("spirv", words)
        .integer("bindings", u64::from(reflection.bindings))
        .integer("pushBytes", u64::from(reflection.push_block_bytes))
        .value("workgroupSize", array(env, &size))
        .integer("reads", u64::from(reflection.reads))
        .integer("writes", u64::from(reflection.writes))
        .raw)
}

/// Getter of one property of `shaders`.
unsafe extern "C" fn get_shader(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let mut data = ptr::null_mut();
    // SAFETY: the engine calls with a live environment; only the data pointer is asked for.
    unsafe {
        sys::napi_get_cb_info(
            env,
            info,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            &mut data,
        )
    };
    let Some(shader) = SHADERS.get(data as usize) else {
        return ptr::null_mut();
    };
    match shader_object(env, shader) {
        Ok(object) => object,
        Err(error) => {
            let error = build(env, shader.name, &error, "");
            // SAFETY: `error` is an error object of `env`.
            unsafe { sys::napi_throw(env, error) };
            ptr::null_mut()
        }
    }
}

/// Runs once for every JS environment that loads the addon.
#[napi(module_exports)]
pub fn module_exports(exports: napi::bindgen_prelude::Object, env: Env) -> napi::Result<()> {
    use napi::JsValue;
    let raw = env.raw();
    // Objects of the shaders are made when first looked at: there are many, and most go unused.
    let table = Object::new(raw);
    let names: Vec<_> = SHADERS
        .iter()
        .map(|s| std::ffi::CString::new(s.name).unwrap_or_default())
        .collect();
    let properties: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(i, name)| sys::napi_property_descriptor {
            utf8name: name.as_ptr(),
            name: ptr::null_mut(),
            method: None,
            getter: Some(get_shader),
            setter: None,
            value: ptr::null_mut(),
            attributes: sys::PropertyAttributes::enumerable,
            data: i as *mut std::ffi::c_void,
        })
        .collect();
    // SAFETY: names and descriptors live until the call returns.
    unsafe {
        sys::napi_define_properties(raw, table.raw, properties.len(), properties.as_ptr());
        sys::napi_set_named_property(raw, exports.raw(), c"shaders".as_ptr(), table.raw);
    }
    super::class::export(raw, exports.raw());
    state::environment_enters();
    env.add_env_cleanup_hook((), |()| state::environment_leaves())?;
    Ok(())
}

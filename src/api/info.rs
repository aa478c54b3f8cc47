//! `initDevice`, `listDevices`, statistics, shaders, and what happens when the module loads.

use std::fmt::Display;
use std::ptr;

use ash::vk;
use napi::{Env, sys};
use napi_derive::napi;

use super::codegen::shader_object;
use super::convert::Arg;
use super::raise::{call, throw};
use super::unwind::{caught, guard};
use super::values::{
    Made, Object, Out, array, check, clear_exception, data, function, made, set, string, undefined,
};
use super::{garbage, results, state};
use crate::config::Config;
use crate::context::Context;
use crate::device;
use crate::device::choice::{self, Isolation, Snapshot};
use crate::error::{Error, Result};
use crate::shaders::SHADERS;
use crate::timing::PHASES;
use crate::vk_ext;

/// The largest `initDevice({ commandBuffers })`.
const MAX_COMMAND_BUFFERS: u64 = 64;

fn version(v: u32) -> String {
    format!(
        "{}.{}.{}",
        vk::api_version_major(v),
        vk::api_version_minor(v),
        vk::api_version_patch(v)
    )
}

/// Component types of the operands and scope, as Vulkan's numbers and by name, and whether sums saturate.
fn operands(object: Object, types: [i32; 4], scope: i32, saturating: bool) -> Object {
    let names = ["AType", "BType", "CType", "ResultType"];
    let mut object = object;
    for (name, raw) in names.into_iter().zip(types) {
        object = object
            .number(name, f64::from(raw))
            .string(&format!("{name}Name"), vk_ext::component_name(raw));
    }
    object
        .boolean("saturatingAccumulation", saturating)
        .number("scope", f64::from(scope))
        .string("scopeName", vk_ext::scope_name(scope))
}

fn coop_list(env: sys::napi_env, snapshot: &Snapshot) -> Made {
    let items = snapshot.coop_shapes.iter().map(|s| {
        let object = Object::new(env)
            .integer("MSize", u64::from(s.m))
            .integer("NSize", u64::from(s.n))
            .integer("KSize", u64::from(s.k));
        operands(object, [s.a, s.b, s.c, s.result], s.scope, s.saturating).done()
    });
    array(env, items)
}

fn flexible_list(env: sys::napi_env, snapshot: &Snapshot) -> Made {
    let items = snapshot.flexible_shapes.iter().map(|s| {
        let object = Object::new(env)
            .integer("MGranularity", u64::from(s.m_granularity))
            .integer("NGranularity", u64::from(s.n_granularity))
            .integer("KGranularity", u64::from(s.k_granularity));
        operands(object, [s.a, s.b, s.c, s.result], s.scope, s.saturating)
            .integer("workgroupInvocations", u64::from(s.workgroup_invocations))
            .done()
    });
    array(env, items)
}

fn device_info(env: sys::napi_env, context: &Context) -> Object {
    let device = &context.device;
    let s = &device.snapshot;
    let plan = &device.plan;
    let limits = &s.limits;
    let (m, n, k) = plan.coop_tile.unwrap_or((0, 0, 0));
    let sharing = device.sharing.as_ref().map(|sharing| sharing.properties);
    let sharing = sharing.unwrap_or_default();
    let int = u64::from;
    let capability = s
        .compute_capability
        .map_or(String::new(), |[major, minor]| format!("{major}.{minor}"));
    Object::new(env)
        .string("deviceName", &s.name)
        .integer("vendorId", int(s.vendor_id))
        .integer("deviceId", int(s.device_id))
        .number("deviceType", f64::from(s.device_type.as_raw()))
        .string("deviceTypeName", choice::type_name(s.device_type))
        .string("deviceUuid", &s.uuid_text())
        .integer("apiVersion", int(s.api_version))
        .string("apiVersionText", &version(s.api_version))
        .integer("driverVersion", int(s.driver_version))
        .string("driverName", &s.driver_name)
        .string("driverInfo", &s.driver_info)
        .string(
            "cacheFolder",
            &(device.config.pipeline_cache.as_ref())
                .map_or(String::new(), |folder| folder.display().to_string()),
        )
        .integer("deviceLocalMemoryBytes", device.device_local_bytes())
        .integer("maxBufferBytes", device.largest_buffer())
        .integer(
            "maxStorageBufferRange",
            int(limits.max_storage_buffer_range),
        )
        .integer(
            "minStorageBufferOffsetAlignment",
            limits.min_storage_buffer_offset_alignment,
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
        .boolean("nanPreserveF32", s.float_controls[0] == vk::TRUE)
        .boolean("denormPreserveF32", s.float_controls[1] == vk::TRUE)
        .boolean("denormFlushF32", s.float_controls[2] == vk::TRUE)
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
        .boolean("hasPtx", device.cuda.is_ok())
        .string(
            "ptxExtension",
            (device.cuda.as_ref()).map_or("", |cuda| cuda.extension.text()),
        )
        .integer("multiprocessors", int(s.multiprocessors))
        .string("computeCapability", &capability)
        .boolean("safe", plan.safe.is_some())
        .string("robustness", plan.safe.map_or("", Isolation::feature))
        .boolean("bufferExportSupported", sharing.exportable)
        .boolean("bufferImportSupported", sharing.importable)
}

/// Creates the device on the first call; later calls, from any thread, return the same information.
///
/// Prefers discrete to integrated to virtual to CPU devices; `HELIOS_DEVICE` or `options.device` selects another by
/// index, UUID, PCI address or part of its name.
///
/// `options.safe` (or `HELIOS_SAFE=1`) is for shaders that are not trusted: see docs/safe-mode.md. Throws
/// `ERR_HELIOS_UNSUPPORTED` if the device has no bounds checks, and `ERR_HELIOS_INVALID_ARGUMENT` if there is already a
/// device with the other setting.
///
/// `options.commandBuffers` (1 to 64, by default 8) is how many submissions may be in flight before a call waits for
/// the device. Graphs have their own command buffers: up to 256 launches may be in flight. Throws a RangeError if there
/// is already a device with another number.
///
/// Throws `ERR_HELIOS_NO_LOADER` without a Vulkan loader, `ERR_HELIOS_NO_DEVICE` without a driver or a usable device;
/// the message says what to install.
#[napi(
    js_name = "initDevice",
    ts_args_type = "options?: InitOptions",
    ts_return_type = "DeviceInfo"
)]
pub fn init_device(env: &Env, options: Arg) -> napi::Result<Out> {
    call(env, "initDevice", || {
        let (mut selector, mut safe, mut command_buffers) = (None, None, None);
        if !options.missing() {
            let device = options.property("device")?;
            selector = match device.kind() {
                napi::ValueType::Undefined => None,
                napi::ValueType::Number => Some(device.u32("options.device")?.to_string()),
                _ => Some(device.string("options.device")?),
            };
            let asked = options.property("safe")?;
            if asked.kind() != napi::ValueType::Undefined {
                safe = Some(asked.flag_or("options.safe", false)?);
            }
            let asked = options.property("commandBuffers")?;
            if asked.kind() != napi::ValueType::Undefined {
                command_buffers = Some(
                    asked.integer_from("options.commandBuffers", 1..=MAX_COMMAND_BUFFERS)? as usize,
                );
            }
        }
        state::init(
            || {
                let mut config = Config::from_env(undisturbed())?;
                if selector.is_some() {
                    config.device = selector;
                }
                config.command_buffers = command_buffers;
                match safe {
                    // Whoever starts the program decides, not code that runs in it.
                    Some(false) if config.safe => {
                        return Err(Error::range(
                            "options.safe",
                            "cannot be turned off where HELIOS_SAFE is set",
                            false,
                        ));
                    }
                    Some(safe) => config.safe = safe,
                    None => {}
                }
                Ok(config)
            },
            |context| {
                let safe_is = context.device.plan.safe.is_some();
                as_it_is("options.safe", safe, safe_is)?;
                let slots = context.command_buffers;
                as_it_is("options.commandBuffers", command_buffers, slots)?;
                device_info(env.raw(), context).done().map(Out)
            },
        )
    })
}

/// Fails if an option asks for something other than what the existing device has.
fn as_it_is<T: PartialEq + Display>(option: &str, asked: Option<T>, is: T) -> Result<()> {
    let Some(asked) = asked.filter(|asked| *asked != is) else {
        return Ok(());
    };
    let problem = format!("must be {is}, as for the device that there is: call destroy() first");
    Err(Error::range(option, problem, asked))
}

/// Whether no other thread can set an environment variable now. In Node only the main thread does, so that is true on
/// it; Windows synchronizes its environment itself.
fn undisturbed() -> bool {
    cfg!(windows) || results::on_main_thread()
}

/// Lists every device that the drivers report, usable or not, without opening one. `usable` says whether `initDevice`
/// could take it, and `reason` why not. `chosen` and `why` say what `initDevice` without options would do. Devices with
/// the same name differ in `index`, `uuid` and, where the driver reports it, `pci`.
#[napi(js_name = "listDevices", ts_return_type = "Array<DeviceSummary>")]
pub fn list_devices(env: &Env) -> napi::Result<Out> {
    call(env, "listDevices", || {
        let raw = env.raw();
        let config = Config::from_env(undisturbed())?;
        let list = device::list(&config)?;
        let choices = choice::choices(&list, config.device.as_deref());
        let items = list.iter().enumerate().map(|(index, s)| {
            let reason = s.unusable();
            let heaps = s.memory_heaps.iter().map(|h| {
                let heap = Object::new(raw)
                    .integer("bytes", h.size)
                    .boolean("deviceLocal", h.device_local);
                match h.budget {
                    Some((usage, budget)) => heap
                        .integer("usageBytes", usage)
                        .integer("budgetBytes", budget)
                        .done(),
                    None => heap.done(),
                }
            });
            let queues = s.queue_families.iter().map(|f| {
                let has = |flag| f.flags.contains(flag);
                Object::new(raw)
                    .integer("count", u64::from(f.count))
                    .boolean("compute", has(vk::QueueFlags::COMPUTE))
                    .boolean("graphics", has(vk::QueueFlags::GRAPHICS))
                    .boolean("transfer", has(vk::QueueFlags::TRANSFER))
                    .integer("timestampValidBits", u64::from(f.timestamp_valid_bits))
                    .done()
            });
            let (chosen, why) = &choices[index];
            let mut object = Object::new(raw)
                .integer("index", index as u64)
                .string("name", &s.name)
                .number("deviceType", f64::from(s.device_type.as_raw()))
                .string("deviceTypeName", choice::type_name(s.device_type))
                .integer("vendorId", u64::from(s.vendor_id))
                .integer("deviceId", u64::from(s.device_id))
                .string("uuid", &s.uuid_text())
                .integer("apiVersion", u64::from(s.api_version))
                .string("apiVersionText", &version(s.api_version))
                .string("driverName", &s.driver_name)
                .string("driverInfo", &s.driver_info)
                .integer("driverVersion", u64::from(s.driver_version))
                .integer("subgroupSize", u64::from(s.subgroup.size))
                .value("memoryHeaps", array(raw, heaps))
                .value("queueFamilies", array(raw, queues))
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
            object.done()
        });
        array(raw, items).map(Out)
    })
}

/// Counters since `initDevice`: dispatches, barriers, submissions, uploads, reads and their bytes, graph launches, and
/// `stalls`: waits for a command slot, for staging space, or because too many launches were in flight.
#[napi(js_name = "getStats", ts_return_type = "Stats")]
pub fn get_stats(env: &Env) -> napi::Result<Out> {
    call(env, "getStats", || {
        state::with(|context| {
            let s = context.stats;
            Object::new(env.raw())
                .integer("dispatches", s.dispatches)
                .integer("barriers", s.barriers)
                .integer("submits", s.submits)
                .integer("uploads", s.uploads)
                .integer("uploadBytes", s.upload_bytes)
                .integer("directUploads", s.direct_uploads)
                .integer("reads", s.reads)
                .integer("readBytes", s.read_bytes)
                .integer("directReads", s.direct_reads)
                .integer("graphLaunches", s.graph_launches)
                .integer("stalls", s.stalls + context.recorder.stalls())
                .integer("buffersCreated", s.buffers_created)
                .integer("peakBufferBytes", s.peak_buffer_bytes)
                .integer("peakBlockBytes", s.peak_block_bytes)
                .done()
                .map(Out)
        })
    })
}

/// State of the allocator. A "slab" is a shared block of device memory. Counts that do not apply to this allocator are
/// 0.
#[napi(js_name = "getAllocatorStats", ts_return_type = "AllocatorStats")]
pub fn get_allocator_stats(env: &Env) -> napi::Result<Out> {
    call(env, "getAllocatorStats", || {
        state::with(|context| {
            let usage = context.memory.usage();
            let (recycled, recycled_bytes, reuses, evictions) = context.recycled();
            let live = context.buffers.len() as u64;
            let (alone, alone_bytes) = context.individual_buffers();
            let (host, host_bytes) = context.staging();
            Object::new(env.raw())
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
                .integer("readbackLeasedBytes", context.readback.leased_bytes())
                .integer("readbackIdleBytes", context.readback.idle_bytes())
                .done()
                .map(Out)
        })
    })
}

/// Host time by phase since the last reset, in microseconds. Phases are disjoint; waiting for the GPU is `ring_wait`.
/// All zero without `HELIOS_HOST_TIMING=1`.
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
                phases = phases.value(name, entry.done());
            }
            Object::new(env.raw())
                .boolean("enabled", timing.enabled)
                .integer("batches", timing.batches)
                .integer("dispatches", timing.dispatches)
                .integer("clockReads", timing.clock_reads)
                .value("phases", phases.done())
                .done()
                .map(Out)
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

/// Waits for all work, then releases the device and everything on it. `initDevice` makes a new one.
#[napi]
pub fn destroy(env: &Env) -> napi::Result<()> {
    call(env, "destroy", || {
        state::destroy(None);
        Ok(())
    })
}

/// Getter of one property of `shaders`.
unsafe extern "C" fn get_shader(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let Some(shader) = data(env, info).and_then(|i| SHADERS.get(i as usize)) else {
        return ptr::null_mut();
    };
    caught(|| shader_object(env, shader.spirv)).unwrap_or_else(|error| {
        throw(env, shader.name, &error, "");
        ptr::null_mut()
    })
}

fn load_error(error: Error) -> napi::Error {
    napi::Error::from_reason(error.to_string())
}

/// Calls back when a worker's program ends without an error. A worker that is terminated emits no event.
const ON_END: &str = "(ended) => process.once('exit', (code) => { if (!code) ended(); })";

/// Lets the state know when a worker's program has come to its end.
fn tell_end(env: sys::napi_env) -> Result<()> {
    unsafe extern "C" fn ended(_: sys::napi_env, _: sys::napi_callback_info) -> sys::napi_value {
        guard((), || state::program_runs(false));
        ptr::null_mut()
    }
    let source = string(env, ON_END)?;
    let (this, listener) = (undefined(env)?, function(env, ended, 0)?);
    // SAFETY: `env` is live, here and below, and the values are of it.
    let run = |value| unsafe { sys::napi_run_script(env, source, value) };
    let watch = made(env, "napi_run_script", run)?;
    // SAFETY: as above.
    let call = |value| unsafe { sys::napi_call_function(env, this, watch, 1, &listener, value) };
    made(env, "napi_call_function", call).map(drop)
}

/// Runs once for every JS environment that loads the addon.
#[napi(module_exports)]
pub fn module_exports(exports: napi::bindgen_prelude::Object, env: Env) -> napi::Result<()> {
    use napi::JsValue;
    let raw = env.raw();
    // The objects of the shaders are made on first access: there are many, and most go unused.
    let table = Object::new(raw).done().map_err(load_error)?;
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
    let status =
        unsafe { sys::napi_define_properties(raw, table, properties.len(), properties.as_ptr()) };
    check(raw, "napi_define_properties", status)
        .and_then(|()| set(raw, exports.raw(), "shaders", Ok(table)))
        .and_then(|()| super::class::export(raw, exports.raw()))
        .and_then(|()| super::direct::export(raw, exports.raw()))
        .map_err(load_error)?;
    // Reads the environment now for workers that call before this thread does. Errors in it are reported by the call.
    if undisturbed() {
        let _ = Config::from_env(true);
    }
    results::enter(env.raw());
    state::environment_enters();
    if !results::on_main_thread() {
        // If this fails we do not learn of the worker's end, and what it made stays.
        let told = tell_end(raw).inspect_err(|_| clear_exception(raw));
        state::program_runs(told.is_ok());
    }
    let _hook = env.add_env_cleanup_hook((), |()| {
        guard((), || {
            results::leave();
            garbage::leave();
            state::environment_leaves();
        });
    })?;
    Ok(())
}

//! The handles of the chosen device.

pub mod choice;
pub mod cuda;
mod features;
pub mod instance;
pub mod lease;
pub mod sharing;

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::{ext, khr, vk};
use parking_lot::Mutex;
use spirv_check::validate::Support;

use choice::{Plan, Snapshot};
use cuda::{Cuda, Extension};
use features::FeatureChain;
use instance::memory_budget;
use lease::Lease;
use sharing::Sharing;

use crate::config::Config;
use crate::error::{self, Error, Result};
use crate::plan::decode::BindingLimits;
use crate::test_faults::{self, Loss};

/// Writes to standard error. If that is closed or full, the text is lost and nothing else happens.
pub fn diagnose(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The logical device, with everything that was decided about it.
pub struct Device {
    pub raw: ash::Device,
    pub push: Option<khr::push_descriptor::Device>,
    /// Runs kernels in PTX; an error says why nothing does.
    pub cuda: Result<Cuda, String>,
    /// Present if memory can be shared through file descriptors.
    pub sharing: Option<Sharing>,
    names: Option<ext::debug_utils::Device>,
    pub queue: vk::Queue,
    pub physical: vk::PhysicalDevice,
    pub snapshot: Snapshot,
    pub plan: Plan,
    /// The rules for shaders in safe mode.
    pub shader_rules: Option<Support>,
    /// Set by the first call that reports a lost device; every later call fails with it.
    lost: AtomicBool,
    /// Why the device was lost, from the first such call.
    cause: OnceLock<String>,
    pub has_budget: bool,
    /// The calls that ask the driver about a lost device, if it has them.
    pub fault: Option<ext::device_fault::Device>,
    /// Buffers used for copies from and to the host.
    pub staging: BufferSet,
    loss: Loss,
    /// The environment when the device was made.
    pub config: Config,
    pub instance: Lease,
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `Context` waited for the queue and destroyed all objects; the last `Arc` is here.
        unsafe { self.raw.destroy_device(None) };
        if self.lost() {
            self.instance.discard();
        }
    }
}

impl Device {
    pub fn new(config: &Config) -> Result<Self> {
        let mut instance = Lease::new(config)?;
        let (handles, snapshots): (Vec<_>, Vec<_>) = instance.snapshots()?.into_iter().unzip();
        let plan = choice::choose(&snapshots, config)?;
        let mut snapshot = snapshots[plan.device].clone();
        if let Some(most) = config.test_max_buffer {
            snapshot.max_buffer_size = most.min(snapshot.max_buffer_size);
        }
        if let Some(most) = config.test_max_storage_range {
            let range = &mut snapshot.limits.max_storage_buffer_range;
            *range = most.min(*range);
        }
        if plan.safe.is_some() {
            snapshot.without_unchecked_access();
        }
        let physical = handles[plan.device];
        if config.debug_coop {
            let mut text = String::new();
            for shape in &snapshot.coop_shapes {
                text += &format!("helios-vk: cooperative matrix {shape:?}\n");
            }
            for shape in &snapshot.flexible_shapes {
                text += &format!("helios-vk: cooperative matrix 2 {shape:?}\n");
            }
            diagnose(&text);
        }
        let has = |name: &CStr| {
            snapshot
                .extensions
                .iter()
                .any(|e| e.as_bytes() == name.to_bytes())
        };
        let mut chain = FeatureChain::default();
        chain.query(&instance.raw, physical, snapshot.api_version, &has);
        if let Some(isolation) = plan.safe {
            chain.secure(isolation);
        }
        let shader_rules = plan.safe.map(|_| chain.shader_rules(&snapshot));
        let mut extensions = chain.extensions();
        if plan.push_descriptors {
            extensions.push(khr::push_descriptor::NAME);
        }
        for optional in [ext::memory_budget::NAME, khr::portability_subset::NAME] {
            if has(optional) {
                extensions.push(optional);
            }
        }
        extensions.extend(calibrated_timestamps(&has));
        let fault = features::fault(&instance.raw, physical, has(ext::device_fault::NAME));
        if fault.is_some() {
            extensions.push(ext::device_fault::NAME);
        }
        // A test switch may disable it.
        let sharing = cfg!(unix) && has(khr::external_memory_fd::NAME) && !config.test_no_sharing;
        let sharing = sharing.then(|| {
            extensions.push(khr::external_memory_fd::NAME);
            let usage = buffer_usage(plan.device_address);
            let semaphores = has(khr::external_semaphore_fd::NAME);
            let found = sharing::Properties::probe(&instance.raw, physical, usage, semaphores);
            if found.timelines {
                extensions.push(khr::external_semaphore_fd::NAME);
            }
            found
        });
        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(plan.queue_family)
            .queue_priorities(&priorities)];
        let has_fault = fault.is_some();
        let create = |ptx: Option<Extension>| {
            let names: Vec<*const c_char> = extensions
                .iter()
                .copied()
                .chain(ptx.map(Extension::name))
                .map(CStr::as_ptr)
                .collect();
            let mut chain = chain.clone();
            let mut fault = fault;
            let mut launch = cuda::features();
            let mut info = chain.enable(
                vk::DeviceCreateInfo::default()
                    .queue_create_infos(&queues)
                    .enabled_extension_names(&names),
            );
            if let Some(fault) = &mut fault {
                info = info.push_next(fault);
            }
            if ptx == Some(Extension::KernelLaunch) {
                info = info.push_next(&mut launch);
            }
            // SAFETY: features and extensions are those the device reported; pointers outlive the call.
            unsafe { instance.raw.create_device(physical, &info, None) }
        };
        let mut ptx = plan.ptx.clone();
        let mut created = create(ptx.clone().ok());
        if let (Ok(extension), Err(result)) = (&ptx, &created)
            && !error::is_shortage(*result)
        {
            // No other call needs the extension, and one of the two has no specification.
            let refused = format!(
                "{} makes no device with {} ({result:?})",
                snapshot.name,
                extension.text()
            );
            created = create(None);
            ptx = Err(refused);
        }
        let raw = created.map_err(|result| {
            instance.discard();
            error::create("vkCreateDevice", "device", 0)(result)
        })?;
        let cuda = ptx.and_then(|extension| {
            Cuda::load(&instance.raw, raw.handle(), extension).ok_or_else(|| {
                format!(
                    "{} lists {} and lacks functions of it",
                    snapshot.name,
                    extension.text()
                )
            })
        });
        // SAFETY: the queue was asked for above.
        let queue = unsafe { raw.get_device_queue(plan.queue_family, 0) };
        let push = plan
            .push_descriptors
            .then(|| khr::push_descriptor::Device::new(&instance.raw, &raw));
        let sharing = sharing.map(|found| Sharing::new(&instance.raw, &raw, found));
        let names = instance
            .debug
            .is_some()
            .then(|| ext::debug_utils::Device::new(&instance.raw, &raw));
        // A test switch selects the other path.
        let has_budget = has(ext::memory_budget::NAME) && !config.test_no_budget;
        let fault = has_fault.then(|| ext::device_fault::Device::new(&instance.raw, &raw));
        Ok(Self {
            raw,
            push,
            cuda,
            sharing,
            names,
            queue,
            physical,
            snapshot,
            plan,
            shader_rules,
            lost: AtomicBool::new(false),
            cause: OnceLock::new(),
            has_budget,
            fault,
            staging: BufferSet::default(),
            loss: Loss::of_next_device(&config.test_lose_device),
            config: config.clone(),
            instance,
        })
    }

    pub fn lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Notes a lost device, so that every later call fails with it.
    pub fn observe(&self, error: Error) -> Error {
        if matches!(error, Error::DeviceLost(_)) {
            self.fail(&error);
        }
        error
    }

    /// Makes a failure final: every later call fails as on a lost device, with this cause.
    pub fn fail(&self, cause: &Error) {
        self.cause.get_or_init(|| match cause {
            Error::DeviceLost(what) => what.clone(),
            other => other.to_string(),
        });
        self.lost.store(true, Ordering::Release);
    }

    /// Test switch: fails as on a lost device at the submission that it names.
    #[inline]
    pub fn lose_if_told(&self) -> Result<()> {
        test_faults::panic_if_asked("submit");
        self.loss.check().map_err(|error| self.observe(error))
    }

    /// Whether the device computes on the host's processors.
    pub fn is_cpu(&self) -> bool {
        self.snapshot.device_type == vk::PhysicalDeviceType::CPU
    }

    pub fn check_alive(&self) -> Result<()> {
        if self.lost() {
            let cause = self.cause.get().map_or("", String::as_str);
            return Err(Error::DeviceLost(format!("in an earlier call: {cause}")));
        }
        Ok(())
    }

    /// Names an object for validation messages and debuggers.
    pub fn name<T: vk::Handle>(&self, object: T, name: &str) {
        let (Some(names), Ok(name)) = (&self.names, CString::new(name)) else {
            return;
        };
        let info = vk::DebugUtilsObjectNameInfoEXT::default()
            .object_handle(object)
            .object_name(&name);
        // SAFETY: the object belongs to this device. A failure only loses the name.
        let _ = unsafe { names.set_debug_utils_object_name(&info) };
    }

    /// Bytes in use and allowed for each heap, if the driver reports them (`VK_EXT_memory_budget`).
    pub fn budget(&self) -> Option<Vec<(u64, u64)>> {
        if !self.has_budget {
            return None;
        }
        let budget = memory_budget(&self.instance.raw, self.physical);
        let heaps = self.snapshot.memory_heaps.len();
        Some(
            (0..heaps)
                .map(|i| (budget.heap_usage[i], budget.heap_budget[i]))
                .collect(),
        )
    }

    /// Bytes of the largest buffer. Each buffer may be a block of its own.
    pub fn largest_buffer(&self) -> u64 {
        let snapshot = &self.snapshot;
        snapshot.max_buffer_size.min(snapshot.max_allocation_size)
    }

    /// Largest number of storage buffers that a pipeline may bind.
    pub fn max_bindings(&self) -> u32 {
        let limits = &self.snapshot.limits;
        limits
            .max_per_stage_descriptor_storage_buffers
            .min(limits.max_descriptor_set_storage_buffers)
            .min(crate::plan::decode::MAX_BINDINGS as u32)
    }

    /// Largest number of bytes of a buffer that one descriptor can cover.
    pub fn binding_limits(&self) -> BindingLimits {
        let limits = &self.snapshot.limits;
        BindingLimits {
            largest: u64::from(limits.max_storage_buffer_range),
            alignment: limits.min_storage_buffer_offset_alignment.max(1),
        }
    }

    /// Bytes of the largest device-local heap.
    pub fn device_local_bytes(&self) -> u64 {
        self.snapshot
            .memory_heaps
            .iter()
            .filter(|h| h.device_local)
            .map(|h| h.size)
            .max()
            .unwrap_or(0)
    }
}

/// Lists all devices that the drivers report, without opening one.
pub fn list(config: &Config) -> Result<Vec<Snapshot>> {
    let mut instance = Lease::new(config)?;
    Ok(instance.snapshots()?.into_iter().map(|(_, s)| s).collect())
}

/// The usage of every buffer.
pub fn buffer_usage(device_address: bool) -> vk::BufferUsageFlags {
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST;
    if device_address {
        return usage | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
    }
    usage
}

/// A set of buffers by handle.
#[derive(Default)]
pub struct BufferSet(Mutex<HashSet<vk::Buffer>>);

impl BufferSet {
    pub fn insert(&self, buffer: vk::Buffer) {
        self.0.lock().insert(buffer);
    }

    pub fn remove(&self, buffer: vk::Buffer) {
        self.0.lock().remove(&buffer);
    }

    pub fn holds(&self, buffer: vk::Buffer) -> bool {
        self.0.lock().contains(&buffer)
    }
}

/// The extension that reads the device's and the host's clock at once, if the device has it.
pub fn calibrated_timestamps(has: &dyn Fn(&CStr) -> bool) -> Option<&'static CStr> {
    // Only if the extension can read the host clock that we use.
    [
        khr::calibrated_timestamps::NAME,
        ext::calibrated_timestamps::NAME,
    ]
    .into_iter()
    .find(|name| cfg!(target_os = "linux") && has(name))
}

//! Chooses device, queue, extensions and features: a pure function of what the devices report.
//!
//! [`choose`] takes made-up snapshots as well as real ones, so every decision is tested without a GPU.
#![deny(unsafe_code)]

use ash::vk;

use crate::config::{Config, CoopTile};
use crate::device::cuda::Extension;
use crate::error::{Error, Result};

/// What one queue family offers.
#[derive(Debug, Clone, Copy)]
pub struct QueueFamily {
    pub flags: vk::QueueFlags,
    pub count: u32,
    pub timestamp_valid_bits: u32,
}

#[derive(Debug, Clone, Copy)]
pub struct MemoryType {
    pub flags: vk::MemoryPropertyFlags,
    pub heap: u32,
}

#[derive(Debug, Clone, Copy)]
pub struct MemoryHeap {
    pub size: u64,
    pub device_local: bool,
    /// Bytes that this process uses and may use, if `VK_EXT_memory_budget` reports them.
    pub budget: Option<(u64, u64)>,
}

/// One cooperative-matrix shape that a device lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoopShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    /// Component types by their Vulkan numbers (`VkComponentTypeKHR`).
    pub a: i32,
    pub b: i32,
    pub c: i32,
    pub result: i32,
    pub saturating: bool,
    pub scope: i32,
}

/// A workgroup-scope shape of `VK_NV_cooperative_matrix2`, by granularity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlexibleShape {
    pub m_granularity: u32,
    pub n_granularity: u32,
    pub k_granularity: u32,
    pub a: i32,
    pub b: i32,
    pub c: i32,
    pub result: i32,
    pub saturating: bool,
    pub scope: i32,
    pub workgroup_invocations: u32,
}

/// The features that matter to compute, as the device reports them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Features {
    pub timeline_semaphore: bool,
    pub buffer_device_address: bool,
    pub float16: bool,
    pub storage16: bool,
    pub subgroup_size_control: bool,
    pub compute_full_subgroups: bool,
    pub cooperative_matrix: bool,
    pub cooperative_matrix2: bool,
    pub bfloat16: bool,
    pub bfloat16_cooperative_matrix: bool,
    /// Of `VK_NV_cuda_kernel_launch`.
    pub cuda_kernel_launch: bool,
    /// `robustBufferAccess`: no access leaves the memory of the `VkBuffer`.
    pub robust_access: bool,
    /// `robustBufferAccess2`: no access leaves the bound range.
    pub robust_access2: bool,
    /// Workgroup memory may be declared as zeroed.
    pub zeroed_workgroup_memory: bool,
}

/// Everything about a physical device that a decision may depend on.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub name: String,
    pub device_type: vk::PhysicalDeviceType,
    pub vendor_id: u32,
    pub device_id: u32,
    pub uuid: [u8; 16],
    pub api_version: u32,
    pub driver_version: u32,
    pub driver_name: String,
    pub driver_info: String,
    /// `domain:bus:device.function`, if `VK_EXT_pci_bus_info` reports it.
    pub pci: Option<String>,
    pub extensions: Vec<String>,
    pub queue_families: Vec<QueueFamily>,
    pub memory_types: Vec<MemoryType>,
    pub memory_heaps: Vec<MemoryHeap>,
    pub features: Features,
    pub limits: vk::PhysicalDeviceLimits,
    pub subgroup: Subgroup,
    /// For f32, whether shaders may ask to keep NaN, infinities and signs of zeros; to keep denormals; to flush
    /// denormals.
    pub float_controls: [vk::Bool32; 3],
    pub coop_shapes: Vec<CoopShape>,
    pub flexible_shapes: Vec<FlexibleShape>,
    pub coop2_max_shared: u32,
    pub max_push_descriptors: u32,
    pub max_allocation_size: u64,
    pub max_buffer_size: u64,
    /// 0 if the device does not report it (`VK_NV_shader_sm_builtins`).
    pub multiprocessors: u32,
    /// Major and minor, if the device reports them (`VK_NV_cuda_kernel_launch`).
    pub compute_capability: Option<[u32; 2]>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Subgroup {
    pub size: u32,
    pub stages: vk::ShaderStageFlags,
    pub operations: vk::SubgroupFeatureFlags,
    pub quad_in_all_stages: bool,
    pub min_size: u32,
    pub max_size: u32,
    pub max_workgroup_subgroups: u32,
    pub required_size_stages: vk::ShaderStageFlags,
}

impl Snapshot {
    pub fn has_extension(&self, name: &str) -> bool {
        self.extensions.iter().any(|e| e == name)
    }

    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|b| format!("{b:02x}")).collect();
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// Removes what safe mode leaves off because nothing bounds its accesses.
    pub fn without_unchecked_access(&mut self) {
        let features = &mut self.features;
        features.buffer_device_address = false;
        features.cooperative_matrix = false;
        features.cooperative_matrix2 = false;
        features.bfloat16 = false;
        features.bfloat16_cooperative_matrix = false;
        self.coop_shapes.clear();
        self.flexible_shapes.clear();
    }

    /// The newest version of SPIR-V that the device takes, as a module's second word has it.
    pub fn newest_spirv(&self) -> u32 {
        if self.api_version >= vk::API_VERSION_1_3 {
            0x1_0600
        } else {
            0x1_0500
        }
    }

    /// Why the device cannot be used; none if it can.
    pub fn unusable(&self) -> Option<String> {
        if self.api_version < vk::API_VERSION_1_2 {
            return Some(format!(
                "Vulkan {}.{} (1.2 is needed)",
                vk::api_version_major(self.api_version),
                vk::api_version_minor(self.api_version)
            ));
        }
        if !self.features.timeline_semaphore {
            return Some("no timeline semaphores".to_owned());
        }
        if compute_family(&self.queue_families).is_none() {
            return Some("no compute queue".to_owned());
        }
        None
    }
}

/// What confines a shader to its bound buffers in safe mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// The device stops accesses beyond the bound range (`robustBufferAccess2`).
    Range,
    /// The device stops accesses beyond the memory of the `VkBuffer` (`robustBufferAccess`), so every buffer gets one
    /// of its own.
    Buffer,
}

impl Isolation {
    /// The device feature behind it.
    pub const fn feature(self) -> &'static str {
        match self {
            Self::Range => "robustBufferAccess2",
            Self::Buffer => "robustBufferAccess",
        }
    }
}

/// How the chosen device will be used.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Index into the snapshots.
    pub device: usize,
    pub queue_family: u32,
    pub timestamp_valid_bits: u32,
    pub push_descriptors: bool,
    pub device_address: bool,
    /// Whether there is a queue family only for transfers. Reported but not used: one queue runs everything.
    pub transfer_family: bool,
    /// Memory type of buffers that only the device accesses.
    pub device_memory: u32,
    /// Memory type of buffers that the host may write directly.
    pub visible_memory: u32,
    /// Host memory for uploads, and host-cached memory for readbacks.
    pub upload_memory: u32,
    pub readback_memory: u32,
    /// The f16 × f16 → f32 subgroup shape with the largest M·N·K, or the configured one.
    pub coop_tile: Option<(u32, u32, u32)>,
    /// None unless safe mode is on.
    pub safe: Option<Isolation>,
    /// The extension that runs kernels in PTX; an error says why there is none.
    pub ptx: Result<Extension, String>,
}

/// Lower is better.
fn rank(kind: vk::PhysicalDeviceType) -> u32 {
    match kind {
        vk::PhysicalDeviceType::DISCRETE_GPU => 0,
        vk::PhysicalDeviceType::INTEGRATED_GPU => 1,
        vk::PhysicalDeviceType::VIRTUAL_GPU => 2,
        vk::PhysicalDeviceType::CPU => 3,
        _ => 4,
    }
}

pub fn type_name(kind: vk::PhysicalDeviceType) -> &'static str {
    match kind {
        vk::PhysicalDeviceType::DISCRETE_GPU => "discrete",
        vk::PhysicalDeviceType::INTEGRATED_GPU => "integrated",
        vk::PhysicalDeviceType::VIRTUAL_GPU => "virtual",
        vk::PhysicalDeviceType::CPU => "cpu",
        _ => "other",
    }
}

/// A family with compute, and with graphics if there is one: on an H200 (driver 580.159.04) a device with such a queue
/// takes 29.2 MiB of device memory, one with a compute-only queue 33.5, and training is no faster.
fn compute_family(families: &[QueueFamily]) -> Option<u32> {
    let with = |flags: vk::QueueFlags| {
        families
            .iter()
            .position(|f| f.count > 0 && f.flags.contains(flags))
            .map(|i| i as u32)
    };
    with(vk::QueueFlags::COMPUTE | vk::QueueFlags::GRAPHICS)
        .or_else(|| with(vk::QueueFlags::COMPUTE))
}

/// Whether `selector` names the device: its index, its UUID, its PCI address, or part of its name.
pub fn matches(selector: &str, index: usize, snapshot: &Snapshot) -> bool {
    let selector = selector.trim();
    if let Ok(number) = selector.parse::<usize>() {
        return number == index;
    }
    let lower = selector.to_lowercase();
    let bare: String = lower.chars().filter(|c| *c != '-').collect();
    let uuid: String = snapshot.uuid_text().chars().filter(|c| *c != '-').collect();
    bare == uuid
        || snapshot.pci.as_deref().is_some_and(|pci| {
            let pci = pci.to_lowercase();
            pci == lower || pci.strip_prefix("0000:") == Some(lower.as_str())
        })
        || snapshot.name.to_lowercase().contains(&lower)
}

fn pick(snapshots: &[Snapshot], selector: Option<&str>) -> Result<usize> {
    let listing = || {
        snapshots
            .iter()
            .enumerate()
            .map(|(i, s)| {
                let reason = s.unusable().map_or(String::new(), |r| format!(": {r}"));
                format!(
                    "{i}: {} ({}, {}{reason})",
                    s.name,
                    type_name(s.device_type),
                    s.uuid_text()
                )
            })
            .collect::<Vec<_>>()
            .join("; ")
    };
    if snapshots.is_empty() {
        return Err(Error::NoDevice(
            "the Vulkan drivers found list no device; check that the GPU is visible to this process (in a \
             container: --gpus all with NVIDIA_DRIVER_CAPABILITIES=all, or /dev/dri), or install a software device \
             (Debian and Ubuntu: apt-get install mesa-vulkan-drivers)"
                .to_owned(),
        ));
    }
    let selector = selector.map(str::trim).filter(|w| !w.is_empty());
    let candidates: Vec<usize> = (0..snapshots.len())
        .filter(|&i| selector.is_none_or(|w| matches(w, i, &snapshots[i])))
        .collect();
    if candidates.is_empty() {
        return Err(Error::NoDevice(format!(
            "no device matches {:?} (HELIOS_DEVICE or the device option takes an index, a UUID, a PCI address or \
             part of a name); found {}",
            selector.unwrap_or_default(),
            listing()
        )));
    }
    candidates
        .iter()
        .copied()
        .filter(|&i| snapshots[i].unusable().is_none())
        .min_by_key(|&i| (rank(snapshots[i].device_type), i))
        .ok_or_else(|| Error::NoDevice(format!("no device can be used: {}", listing())))
}

/// For each device, whether [`choose`] would take it, and why or why not.
pub fn choices(snapshots: &[Snapshot], selector: Option<&str>) -> Vec<(bool, String)> {
    let selector = selector.map(str::trim).filter(|w| !w.is_empty());
    let chosen = pick(snapshots, selector).ok();
    let why = |(i, s): (usize, &Snapshot)| {
        if let Some(reason) = s.unusable() {
            return (false, format!("cannot be used: {reason}"));
        }
        if let Some(selector) = selector.filter(|w| !matches(w, i, s)) {
            return (false, format!("HELIOS_DEVICE={selector} names another"));
        }
        if chosen == Some(i) {
            let named = selector.map_or(String::new(), |w| {
                format!("HELIOS_DEVICE={w} names it, and ")
            });
            let kind = type_name(s.device_type);
            return (
                true,
                format!("{named}it is the first {kind} device; none of a better type can be used"),
            );
        }
        let first = chosen.unwrap_or_default();
        let better = type_name(snapshots[first].device_type);
        let reason = if rank(s.device_type) > rank(snapshots[first].device_type) {
            format!(
                "device {first} is {better}, which goes before {}",
                type_name(s.device_type)
            )
        } else {
            format!("device {first} is {better}, too, and comes first")
        };
        (false, reason)
    };
    snapshots.iter().enumerate().map(why).collect()
}

/// The first memory type with all of `wanted`, trying each set in turn. Of several, the one with the fewest other
/// properties, so that plain device memory is preferred to host-visible device memory.
fn memory_type(types: &[MemoryType], wanted: &[vk::MemoryPropertyFlags]) -> Option<u32> {
    // AMD's device-coherent types are uncached, so never for general use. Protected and lazily allocated memory cannot
    // back a storage buffer.
    let unwanted = vk::MemoryPropertyFlags::PROTECTED
        | vk::MemoryPropertyFlags::LAZILY_ALLOCATED
        | vk::MemoryPropertyFlags::DEVICE_COHERENT_AMD
        | vk::MemoryPropertyFlags::DEVICE_UNCACHED_AMD;
    wanted.iter().find_map(|&flags| {
        types
            .iter()
            .enumerate()
            .filter(|(_, t)| t.flags.contains(flags) && !t.flags.intersects(unwanted))
            .min_by_key(|(i, t)| ((t.flags & !flags).as_raw().count_ones(), *i))
            .map(|(i, _)| i as u32)
    })
}

/// Component type numbers of `VkComponentTypeKHR`.
const FLOAT16: i32 = 0;
const FLOAT32: i32 = 1;
const SCOPE_SUBGROUP: i32 = 3;

fn coop_tile(shapes: &[CoopShape], selector: Option<CoopTile>) -> Option<(u32, u32, u32)> {
    let usable = || {
        shapes.iter().filter(|s| {
            s.a == FLOAT16
                && s.b == FLOAT16
                && s.c == FLOAT32
                && s.result == FLOAT32
                && s.scope == SCOPE_SUBGROUP
                && !s.saturating
        })
    };
    match selector {
        Some(CoopTile::None) => return None,
        Some(CoopTile::Shape(m, n, k)) if usable().any(|s| (s.m, s.n, s.k) == (m, n, k)) => {
            return Some((m, n, k));
        }
        // A tile that the device does not list must not fail a run on a smaller machine.
        _ => {}
    }
    // Of equal products the most square one, then the first listed.
    let mut best: Option<(u64, u32, (u32, u32, u32))> = None;
    for s in usable() {
        let product = u64::from(s.m) * u64::from(s.n) * u64::from(s.k);
        let skew = s.m.max(s.n).max(s.k) - s.m.min(s.n).min(s.k);
        if best.is_none_or(|(p, w, _)| product > p || (product == p && skew < w)) {
            best = Some((product, skew, (s.m, s.n, s.k)));
        }
    }
    best.map(|(_, _, tile)| tile)
}

/// What bounds accesses in safe mode; an error says why this device has no safe mode.
fn isolation(snapshot: &Snapshot) -> Result<Isolation> {
    let features = &snapshot.features;
    let missing = |what: &str| {
        Error::Unsupported(format!(
            "safe mode needs {what}, which {} does not have",
            snapshot.name
        ))
    };
    if !features.zeroed_workgroup_memory {
        return Err(missing("shaderZeroInitializeWorkgroupMemory"));
    }
    match (features.robust_access2, features.robust_access) {
        (true, _) => Ok(Isolation::Range),
        (false, true) => Ok(Isolation::Buffer),
        (false, false) => Err(missing("robustBufferAccess2 or robustBufferAccess")),
    }
}

/// The extension that runs kernels in PTX, preferably the documented one.
fn ptx(snapshot: &Snapshot, config: &Config) -> Result<Extension, String> {
    if config.safe {
        return Err("safe mode runs no PTX: nothing bounds what it reaches".to_owned());
    }
    if config.ptx == Some(false) {
        return Err("HELIOS_PTX turns PTX off".to_owned());
    }
    if !snapshot.features.buffer_device_address {
        return Err(format!(
            "PTX takes device addresses (bufferDeviceAddress), which {} does not have",
            snapshot.name
        ));
    }
    let has = |extension: Extension| snapshot.has_extension(extension.text());
    if has(Extension::KernelLaunch) && snapshot.features.cuda_kernel_launch {
        return Ok(Extension::KernelLaunch);
    }
    if has(Extension::BinaryImport) {
        return Ok(Extension::BinaryImport);
    }
    Err(format!(
        "{} runs no PTX: it has neither {} nor {}",
        snapshot.name,
        Extension::KernelLaunch.text(),
        Extension::BinaryImport.text()
    ))
}

/// Decides device, queue, memory types and optional features.
pub fn choose(snapshots: &[Snapshot], config: &Config) -> Result<Plan> {
    let device = pick(snapshots, config.device.as_deref())?;
    let snapshot = &snapshots[device];
    let safe = config.safe.then(|| isolation(snapshot)).transpose()?;
    let queue_family = compute_family(&snapshot.queue_families)
        .ok_or_else(|| Error::NoDevice("no compute queue".to_owned()))?;
    use vk::MemoryPropertyFlags as M;
    let visible = M::HOST_VISIBLE | M::HOST_COHERENT;
    let none = |what: &str| Error::Unsupported(format!("{} has no {what} memory", snapshot.name));
    let types = &snapshot.memory_types;
    let device_memory =
        memory_type(types, &[M::DEVICE_LOCAL, M::empty()]).ok_or_else(|| none("device-local"))?;
    // The host-visible window of some cards is 256 MiB: too small for a trainer's buffers.
    let window = types
        .iter()
        .filter(|t| t.flags.contains(visible | M::DEVICE_LOCAL))
        .filter_map(|t| snapshot.memory_heaps.get(t.heap as usize))
        .map(|h| h.size)
        .max()
        .unwrap_or(0);
    let visible_memory = if window > 1 << 30 {
        memory_type(types, &[visible | M::DEVICE_LOCAL, visible])
    } else {
        memory_type(types, &[visible])
    }
    .ok_or_else(|| none("host-visible"))?;
    let upload_memory = memory_type(types, &[visible]).ok_or_else(|| none("host-visible"))?;
    let readback_memory = memory_type(types, &[visible | M::HOST_CACHED, visible])
        .ok_or_else(|| none("host-visible"))?;
    Ok(Plan {
        device,
        queue_family,
        timestamp_valid_bits: snapshot.queue_families[queue_family as usize].timestamp_valid_bits,
        push_descriptors: !config.no_push_descriptors
            && snapshot.max_push_descriptors > 0
            && snapshot.has_extension("VK_KHR_push_descriptor"),
        // No device bounds an access through an address.
        device_address: snapshot.features.buffer_device_address && safe.is_none(),
        transfer_family: snapshot.queue_families.iter().any(|f| {
            f.flags.contains(vk::QueueFlags::TRANSFER)
                && !f
                    .flags
                    .intersects(vk::QueueFlags::COMPUTE | vk::QueueFlags::GRAPHICS)
        }),
        device_memory,
        visible_memory,
        upload_memory,
        readback_memory,
        // Loads and stores of whole matrices are not bounds-checked, so safe mode has none.
        coop_tile: match safe {
            None => coop_tile(&snapshot.coop_shapes, config.coop_tile),
            Some(_) => None,
        },
        safe,
        ptx: ptx(snapshot, config),
    })
}

#[cfg(test)]
mod tests;

//! The black box: what the last command buffers held, written to a file when something goes wrong.
//!
//! While commands are recorded, a [`Log`] takes a few words of each. Complete logs wait in a ring for
//! as long as they may be of interest; names are looked up only when a report is written.

use std::collections::{HashMap, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ash::vk::Handle;
use ash::{ext, vk};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::device::Device;

/// Complete command buffers that are remembered.
const BATCHES: usize = 8;
/// Words that one command buffer's log may take; what comes after is only counted.
const MOST_WORDS: usize = 1 << 16;
/// Reports that one process writes.
const MOST_REPORTS: u64 = 16;

/// What a command buffer holds, in words: a header, then by kind.
pub struct Log {
    words: Vec<u64>,
    /// Words that it may take: none where no reports are written.
    most: usize,
    /// Commands that found no room.
    left_out: u64,
}

const DISPATCH: u64 = 0;
const COPY: u64 = 1;
const FILL: u64 = 2;

/// A buffer that JavaScript knows: the Vulkan buffer that holds it, and the offset in there.
pub type Place = [u64; 2];

/// One command of a log; pipelines by their Vulkan handles.
#[derive(Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Dispatch {
        pipeline: u64,
        groups: [u32; 3],
        buffers: &'a [Place],
    },
    Copy {
        source: Place,
        target: Place,
        bytes: u64,
    },
    Fill {
        target: Place,
        bytes: u64,
    },
}

impl Log {
    fn new(most: usize) -> Self {
        Self {
            words: Vec::new(),
            most,
            left_out: 0,
        }
    }

    pub fn clear(&mut self) {
        self.words.clear();
        self.left_out = 0;
    }

    #[inline]
    fn room(&mut self) -> bool {
        if self.words.len() < self.most {
            return true;
        }
        self.left_out += 1;
        false
    }

    /// `buffers`: what is bound, binding 0 first; at most 255.
    #[inline]
    pub fn dispatch(
        &mut self,
        pipeline: vk::Pipeline,
        buffers: impl ExactSizeIterator<Item = Place>,
        groups: [u32; 3],
    ) {
        if !self.room() {
            return;
        }
        let [x, y, z] = groups.map(u64::from);
        self.words.reserve(3 + buffers.len());
        self.words.extend_from_slice(&[
            DISPATCH | (buffers.len() as u64) << 8 | z << 32,
            pipeline.as_raw(),
            x | y << 32,
        ]);
        self.words.extend(buffers.flatten());
    }

    pub fn copy(&mut self, [source, from]: Place, [target, to]: Place, bytes: u64) {
        if self.room() {
            self.words
                .extend_from_slice(&[COPY, source, from, target, to, bytes]);
        }
    }

    pub fn fill(&mut self, [target, offset]: Place, bytes: u64) {
        if self.room() {
            self.words.extend_from_slice(&[FILL, target, offset, bytes]);
        }
    }

    /// The commands in order.
    pub fn commands(&self) -> impl Iterator<Item = Command<'_>> {
        let mut words = self.words.as_slice();
        std::iter::from_fn(move || {
            let (&header, rest) = words.split_first()?;
            let count = (header >> 8 & 0xff) as usize;
            let length = match header & 0xff {
                DISPATCH => 2 + 2 * count,
                COPY => 5,
                _ => 3,
            };
            let (body, rest) = rest.split_at_checked(length)?;
            words = rest;
            Some(match header & 0xff {
                DISPATCH => Command::Dispatch {
                    pipeline: body[0],
                    groups: [
                        body[1] as u32,
                        (body[1] >> 32) as u32,
                        (header >> 32) as u32,
                    ],
                    buffers: body[2..].as_chunks().0,
                },
                COPY => Command::Copy {
                    source: [body[0], body[1]],
                    target: [body[2], body[3]],
                    bytes: body[4],
                },
                _ => Command::Fill {
                    target: [body[0], body[1]],
                    bytes: body[2],
                },
            })
        })
    }

    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// The log of a command buffer that was submitted or is about to be.
pub struct Batch {
    commands: vk::CommandBuffer,
    /// The timeline's value when it is done; none if it was not submitted.
    pub value: Option<u64>,
    pub graph: bool,
    pub log: Arc<Log>,
}

#[derive(Default)]
struct Ring {
    batches: VecDeque<Batch>,
    graphs: HashMap<vk::CommandBuffer, Arc<Log>>,
}

/// What is remembered of a device's last work.
pub struct BlackBox {
    /// Words that a log may take.
    most: usize,
    ring: Mutex<Ring>,
    /// The report on the loss of this device, once it is written.
    pub lost: Mutex<Option<PathBuf>>,
}

impl Default for BlackBox {
    fn default() -> Self {
        Self {
            most: if folder().is_some() { MOST_WORDS } else { 0 },
            ring: Mutex::default(),
            lost: Mutex::default(),
        }
    }
}

impl BlackBox {
    /// An empty log for a command buffer.
    pub fn log(&self) -> Log {
        Log::new(self.most)
    }

    /// Takes the log of a command buffer that is complete, and leaves an empty one.
    pub fn recorded(&self, commands: vk::CommandBuffer, log: &mut Log, once: bool) {
        let mut ring = self.ring.lock();
        if !once {
            let whole = std::mem::replace(log, self.log());
            ring.graphs.insert(commands, Arc::new(whole));
            return;
        }
        // The oldest log's memory serves the next commands.
        let mut spare = self.log();
        while ring.batches.len() >= BATCHES {
            let oldest = ring.batches.pop_front();
            if let Some(old) = oldest.and_then(|batch| Arc::into_inner(batch.log)) {
                spare = old;
                spare.clear();
            }
        }
        let log = Arc::new(std::mem::replace(log, spare));
        ring.batches.push_back(Batch {
            commands,
            value: None,
            graph: false,
            log,
        });
    }

    pub fn submitted(&self, commands: &[vk::CommandBuffer], value: u64) {
        let mut ring = self.ring.lock();
        for &commands in commands {
            if let Some(log) = ring.graphs.get(&commands) {
                let log = Arc::clone(log);
                if ring.batches.len() >= BATCHES {
                    ring.batches.pop_front();
                }
                ring.batches.push_back(Batch {
                    commands,
                    value: Some(value),
                    graph: true,
                    log,
                });
                continue;
            }
            let batch = ring
                .batches
                .iter_mut()
                .rev()
                .find(|b| b.commands == commands && b.value.is_none());
            if let Some(batch) = batch {
                batch.value = Some(value);
            }
        }
    }

    /// The command buffer is gone.
    pub fn forget(&self, commands: vk::CommandBuffer) {
        self.ring.lock().graphs.remove(&commands);
    }

    /// What is remembered, oldest first.
    pub fn each(&self, mut visit: impl FnMut(&Batch)) {
        for batch in &self.ring.lock().batches {
            visit(batch);
        }
    }
}

/// The structure that switches the fault extension on, if the device has it.
pub fn fault_feature(
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

/// What the driver says about the loss of the device (`VK_EXT_device_fault`).
pub fn fault(device: &Device, calls: &ext::device_fault::Device) -> Value {
    let get = calls.fp().get_device_fault_info_ext;
    let raw = device.raw.handle();
    let mut counts = vk::DeviceFaultCountsEXT::default();
    // SAFETY: the extension is on; a null pointer asks for the counts.
    let counted = unsafe { get(raw, &mut counts, std::ptr::null_mut()) };
    if counted != vk::Result::SUCCESS {
        return json!({ "error": format!("{counted:?}") });
    }
    // The vendor's dump may be large, and only the vendor can read it.
    counts.vendor_binary_size = 0;
    let mut addresses =
        vec![vk::DeviceFaultAddressInfoEXT::default(); counts.address_info_count as usize];
    let mut vendors =
        vec![vk::DeviceFaultVendorInfoEXT::default(); counts.vendor_info_count as usize];
    let mut info = vk::DeviceFaultInfoEXT {
        p_address_infos: addresses.as_mut_ptr(),
        p_vendor_infos: vendors.as_mut_ptr(),
        ..Default::default()
    };
    // SAFETY: the arrays have as many elements as `counts` says.
    let got = unsafe { get(raw, &mut counts, &mut info) };
    if got != vk::Result::SUCCESS && got != vk::Result::INCOMPLETE {
        return json!({ "error": format!("{got:?}") });
    }
    addresses.truncate(counts.address_info_count as usize);
    vendors.truncate(counts.vendor_info_count as usize);
    let text = |chars: &[std::ffi::c_char]| -> String {
        chars
            .iter()
            .take_while(|&&c| c != 0)
            .map(|&c| c as u8 as char)
            .collect()
    };
    json!({
        "description": text(&info.description),
        "addresses": addresses.iter().map(|a| json!({
            "kind": format!("{:?}", a.address_type),
            "address": format!("{:#x}", a.reported_address),
            "precision": a.address_precision,
        })).collect::<Vec<_>>(),
        "vendor": vendors.iter().map(|v| json!({
            "description": text(&v.description),
            "code": format!("{:#x}", v.vendor_fault_code),
            "data": format!("{:#x}", v.vendor_fault_data),
        })).collect::<Vec<_>>(),
    })
}

/// Variables that change what the addon or the drivers do.
pub fn environment() -> Value {
    let variables: serde_json::Map<String, Value> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| {
            ["HELIOS_", "VK_", "NVIDIA_", "CUDA_", "MESA_", "LP_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .map(|(name, value)| (name, Value::from(value.to_string_lossy())))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "platform": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "process": std::process::id(),
        "variables": variables,
    })
}

/// Seconds since 1970.
pub fn clock() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// Where reports go, unless they are switched off.
fn folder() -> Option<PathBuf> {
    match std::env::var_os("HELIOS_REPORT_DIR").filter(|f| !f.is_empty()) {
        Some(folder) if folder == "0" => None,
        Some(folder) => Some(PathBuf::from(folder)),
        None => Some(std::env::temp_dir()),
    }
}

static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Whether a report would be written: what it says takes long to gather.
pub fn has_room() -> bool {
    WRITTEN.load(Ordering::Relaxed) < MOST_REPORTS && folder().is_some()
}

/// Writes a report into `HELIOS_REPORT_DIR`, or the system's folder for temporary files; its path. None
/// if reports are switched off (`HELIOS_REPORT_DIR=0`) or there were many already.
pub fn write(report: &Value) -> io::Result<Option<PathBuf>> {
    let Some(folder) = folder() else {
        return Ok(None);
    };
    std::fs::create_dir_all(&folder)?;
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    if number >= MOST_REPORTS {
        return Ok(None);
    }
    let name = format!(
        "helios-report-{}-{}-{number}.json",
        clock(),
        std::process::id()
    );
    let path = folder.join(name);
    // Never through a link that somebody else has put there.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    file.write_all(serde_json::to_string_pretty(report)?.as_bytes())?;
    file.write_all(b"\n")?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gives_back_what_it_took() {
        let mut log = Log::new(MOST_WORDS);
        let groups = [u32::MAX, 7, 65_535];
        log.dispatch(
            vk::Pipeline::from_raw(5),
            [[10, 0], [11, 256]].into_iter(),
            groups,
        );
        let (source, target) = ([1, 512], [2, 0]);
        log.copy(source, target, 3);
        log.dispatch(vk::Pipeline::from_raw(6), std::iter::empty(), [1, 1, 1]);
        log.fill([4, 0], 8);
        let commands: Vec<_> = log.commands().collect();
        assert_eq!(
            commands,
            [
                Command::Dispatch {
                    pipeline: 5,
                    groups,
                    buffers: &[[10, 0], [11, 256]]
                },
                Command::Copy {
                    source,
                    target,
                    bytes: 3
                },
                Command::Dispatch {
                    pipeline: 6,
                    groups: [1, 1, 1],
                    buffers: &[]
                },
                Command::Fill {
                    target: [4, 0],
                    bytes: 8
                },
            ]
        );
    }

    #[test]
    fn a_log_is_bounded_and_says_what_it_left_out() {
        let mut log = Log::new(MOST_WORDS);
        for _ in 0..MOST_WORDS {
            log.fill([4, 0], 8);
        }
        assert_eq!(log.commands().count() + log.left_out() as usize, MOST_WORDS);
        assert!(log.left_out() > 0);
    }

    #[test]
    fn the_ring_keeps_the_last_and_knows_what_was_submitted() {
        let black_box = BlackBox::default();
        let mut log = Log::new(MOST_WORDS);
        for i in 0..3 * BATCHES as u64 {
            log.clear();
            log.fill([4, 0], i);
            let commands = vk::CommandBuffer::from_raw(i % 5 + 1);
            black_box.recorded(commands, &mut log, true);
            if i + 1 < 3 * BATCHES as u64 {
                black_box.submitted(&[commands], 100 + i);
            }
        }
        let graph = vk::CommandBuffer::from_raw(77);
        black_box.recorded(graph, &mut log, false);
        black_box.submitted(&[graph], 900);
        let mut values = Vec::new();
        black_box.each(|batch| values.push((batch.value, batch.graph)));
        assert_eq!(values.len(), BATCHES);
        assert_eq!(values[BATCHES - 1], (Some(900), true));
        assert_eq!(values[BATCHES - 2], (None, false));
        assert_eq!(values[0], (Some(100 + 2 * BATCHES as u64 + 1), false));
        black_box.forget(graph);
        black_box.submitted(&[graph], 901);
        black_box.each(|batch| assert_ne!(batch.value, Some(901)));
    }
}

//! The black box: what the last command buffers contained, written to a file when something fails.
//!
//! While commands are recorded, a [`Log`] keeps their words. A ring keeps the last complete logs. Words are decoded and
//! names looked up only when a report is written.

use std::collections::{HashMap, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ash::{ext, vk};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::config;
use crate::device::Device;
use crate::pipeline::Kernel;

/// Number of complete command buffers remembered.
const BATCHES: usize = 8;
/// Largest number of words in one command buffer's log; later commands are only counted.
const MAX_WORDS: usize = 1 << 16;
/// Largest number of reports that one process writes.
const MAX_REPORTS: u64 = 16;

/// The contents of a command buffer: the words of its dispatches, copies and fills, as recorded.
pub struct Log {
    words: Vec<u64>,
    /// What each dispatch ran.
    pipelines: Vec<Kernel>,
    /// Largest number of words; 0 if no reports are written.
    max: usize,
    /// Commands that did not fit.
    left_out: u64,
}

impl Log {
    fn new(max: usize) -> Self {
        Self {
            words: Vec::new(),
            pipelines: Vec::new(),
            max,
            left_out: 0,
        }
    }

    pub fn clear(&mut self) {
        self.words.clear();
        self.pipelines.clear();
        self.left_out = 0;
    }

    /// Keeps the words of a dispatch.
    #[inline]
    pub fn dispatch(&mut self, kernel: Kernel, words: &[u64]) {
        if self.keep(words) {
            self.pipelines.push(kernel);
        }
    }

    /// Keeps the words of a copy or a fill.
    pub fn transfer(&mut self, words: &[u64]) {
        self.keep(words);
    }

    #[inline]
    fn keep(&mut self, words: &[u64]) -> bool {
        if self.words.len() < self.max {
            self.words.extend_from_slice(words);
            return true;
        }
        self.left_out += 1;
        false
    }

    /// Words of the commands, in order.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// What each of these dispatches ran.
    pub fn pipelines(&self) -> &[Kernel] {
        &self.pipelines
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
    /// Largest number of words in a log.
    max: usize,
    ring: Mutex<Ring>,
    /// The report on the loss of this device, once it is written.
    pub lost: Mutex<Option<PathBuf>>,
}

impl BlackBox {
    /// `on`: whether failure reports are written.
    pub fn new(on: bool) -> Self {
        Self {
            max: if on { MAX_WORDS } else { 0 },
            ring: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    /// An empty log for a command buffer.
    pub fn log(&self) -> Log {
        Log::new(self.max)
    }

    /// Takes the log of a complete command buffer and leaves an empty one.
    pub fn recorded(&self, commands: vk::CommandBuffer, log: &mut Log, once: bool) {
        let mut ring = self.ring.lock();
        if !once {
            let whole = std::mem::replace(log, self.log());
            ring.graphs.insert(commands, Arc::new(whole));
            return;
        }
        // Reuse the oldest log's memory for the next commands.
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

    /// Forgets a command buffer that is being freed.
    pub fn forget(&self, commands: vk::CommandBuffer) {
        self.ring.lock().graphs.remove(&commands);
    }

    /// Calls `each` with every remembered batch, oldest first.
    pub fn each(&self, mut each: impl FnMut(&Batch)) {
        for batch in &self.ring.lock().batches {
            each(batch);
        }
    }
}

/// What the driver reports about the loss of the device (`VK_EXT_device_fault`).
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
    let variables: serde_json::Map<String, Value> = config::for_reports()
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

static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Whether another report would be written; its contents are slow to gather.
pub fn has_room() -> bool {
    WRITTEN.load(Ordering::Relaxed) < MAX_REPORTS
}

/// Writes a report into the folder. Returns its path; none if the limit is reached.
pub fn write(folder: &Path, report: &Value) -> io::Result<Option<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    if number >= MAX_REPORTS {
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
    use ash::vk::Handle;

    use super::*;

    fn kernel(number: u64) -> Kernel {
        Kernel::Pipeline(vk::Pipeline::from_raw(number))
    }

    #[test]
    fn a_log_gives_back_what_it_took() {
        let mut log = Log::new(MAX_WORDS);
        log.dispatch(kernel(5), &[1, 2, 3]);
        log.transfer(&[4, 5]);
        log.dispatch(kernel(6), &[7]);
        assert_eq!(log.words(), [1, 2, 3, 4, 5, 7]);
        assert_eq!(log.pipelines(), [kernel(5), kernel(6)]);
        log.clear();
        assert!(log.words().is_empty() && log.pipelines().is_empty());
    }

    #[test]
    fn a_log_is_bounded_and_says_what_it_left_out() {
        let mut log = Log::new(MAX_WORDS);
        for _ in 0..MAX_WORDS {
            log.dispatch(kernel(5), &[1, 2, 3]);
        }
        assert_eq!(log.words().len(), 3 * log.pipelines().len());
        assert_eq!(log.pipelines().len() + log.left_out() as usize, MAX_WORDS);
        assert!(log.left_out() > 0);
    }

    #[test]
    fn the_ring_keeps_the_last_and_knows_what_was_submitted() {
        let black_box = BlackBox::new(true);
        let mut log = Log::new(MAX_WORDS);
        for i in 0..3 * BATCHES as u64 {
            log.clear();
            log.transfer(&[i]);
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

//! Every environment variable of the addon, read once for each device by one rule:
//!
//! - unset, empty or blank is the default;
//! - a switch is on with `1`, `true`, `on` or `yes`, and off with `0`, `false`, `off` or `no`, in any case;
//! - a number is whole and in its range;
//! - anything else is an error that names the variable, what it may be, and what it was.
//!
//! The table for users is `docs/environment.md`; a test compares the two.
#![deny(unsafe_code)]

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::test_faults::PLACES;

/// `HELIOS_COOP_TILE`: which cooperative-matrix shape `initDevice` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoopTile {
    /// Report no matrix units, for trainers whose kernels for them crash this device's driver.
    None,
    Shape(u32, u32, u32),
}

/// The environment and the options of `initDevice` at the time the device was made. The default is that of an empty
/// environment, but without the two folders.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Index, UUID, PCI address or part of the name.
    pub device: Option<String>,
    pub coop_tile: Option<CoopTile>,
    pub no_push_descriptors: bool,
    /// Whether kernels in PTX are allowed, if the device runs them.
    pub ptx: Option<bool>,
    /// Shaders are not trusted (also `initDevice({ safe: true })`).
    pub safe: bool,
    pub validation: bool,
    /// Path of the Vulkan loader, instead of the system's.
    pub loader: Option<OsString>,
    /// Where else it may lie: macOS' linker searches Homebrew's folder on Intel alone, and never the SDK's.
    pub loader_elsewhere: Vec<PathBuf>,
    pub debug_coop: bool,
    pub debug_pipelines: bool,
    pub host_timing: bool,
    /// Promises capture the stacks of their calls.
    pub stacks: bool,
    /// Polls before a blocking wait.
    pub spin_wait: Option<u64>,
    /// Seconds after which a wait without progress is a lost device; 0 for never.
    pub wait_timeout: Option<u64>,
    /// Largest number of command buffers in flight: `initDevice({ commandBuffers })`.
    pub command_buffers: Option<usize>,
    pub record_thread: Option<bool>,
    pub flush_dispatches: Option<u32>,
    pub blocking_uploads: bool,
    /// Folder of the pipeline cache; none to keep no cache.
    pub pipeline_cache: Option<PathBuf>,
    /// Folder of failure reports; none to write no reports.
    pub report_dir: Option<PathBuf>,
    /// Test switch: no memory is visible to both device and host.
    pub test_staged: bool,
    /// Test switch: records no barriers, so that the validation layer has something to report.
    pub test_no_barriers: bool,
    pub test_no_sharing: bool,
    pub test_no_budget: bool,
    pub test_no_calibration: bool,
    /// Test switch: every device has an instance of its own, which is destroyed with it.
    pub test_new_instances: bool,
    /// Test switch: bytes of memory blocks beyond which the device is out of memory.
    pub test_memory_limit: Option<u64>,
    /// Test switch: a lower `maxBufferBytes`.
    pub test_max_buffer: Option<u64>,
    /// Test switch: a lower `maxStorageBufferRange`.
    pub test_max_storage_range: Option<u32>,
    /// Test switch: the timeline's first value, to cross 2^32 in a test's lifetime.
    pub test_timeline_start: u64,
    /// Test switch: the submission at which each device of the process is lost; 0 for never.
    pub test_lose_device: Vec<u64>,
    /// Test switch: where the process panics, once.
    pub test_panic: Option<&'static str>,
}

impl Config {
    /// Reads this process's environment through [`look`].
    pub fn from_env(undisturbed: bool) -> Result<Self> {
        let seen = look(undisturbed);
        Self::read(&|name| {
            let (_, value) = seen.iter().find(|(known, _)| known == name)?;
            Some(value.clone())
        })
    }

    fn read(get: &dyn Fn(&str) -> Option<OsString>) -> Result<Self> {
        let from = Variables { get };
        Ok(Self {
            device: from.text("HELIOS_DEVICE")?,
            coop_tile: from.coop_tile("HELIOS_COOP_TILE")?,
            no_push_descriptors: from.on("HELIOS_DISABLE_PUSH_DESCRIPTORS")?,
            ptx: from.switch("HELIOS_PTX")?,
            safe: from.on("HELIOS_SAFE")?,
            validation: from.on("HELIOS_VALIDATION")?,
            loader: from.raw("HELIOS_VULKAN_LOADER"),
            loader_elsewhere: from.loaders(cfg!(target_os = "macos")),
            debug_coop: from.on("HELIOS_DEBUG_COOP_PROPS")?,
            debug_pipelines: from.on("HELIOS_DEBUG_PIPELINES")?,
            host_timing: from.on("HELIOS_HOST_TIMING")?,
            stacks: from.on("HELIOS_STACKS")?,
            spin_wait: from.number("HELIOS_SPIN_WAIT", 0..=u64::MAX)?,
            wait_timeout: from.number("HELIOS_WAIT_TIMEOUT", 0..=1_000_000)?,
            command_buffers: None,
            record_thread: from.switch("HELIOS_RECORD_THREAD")?,
            flush_dispatches: from
                .number("HELIOS_FLUSH_DISPATCHES", 1..=u64::from(u32::MAX))?
                .map(|n| n as u32),
            blocking_uploads: from.on("HELIOS_BLOCKING_UPLOADS")?,
            pipeline_cache: from.folder("HELIOS_PIPELINE_CACHE", || {
                // The user's cache folder: XDG's, else Windows', else ~/.cache, on macOS too.
                from.raw("XDG_CACHE_HOME")
                    .or_else(|| from.raw("LOCALAPPDATA"))
                    .map(PathBuf::from)
                    .or_else(|| Some(PathBuf::from(from.raw("HOME")?).join(".cache")))
                    .map(|base| base.join("helios-vk"))
            }),
            report_dir: from.folder("HELIOS_REPORT_DIR", || Some(std::env::temp_dir())),
            test_staged: from.on("HELIOS_TEST_STAGED")?,
            test_no_barriers: from.on("HELIOS_TEST_NO_BARRIERS")?,
            test_no_sharing: from.on("HELIOS_TEST_NO_SHARING")?,
            test_no_budget: from.on("HELIOS_TEST_NO_BUDGET")?,
            test_no_calibration: from.on("HELIOS_TEST_NO_CALIBRATION")?,
            test_new_instances: from.on("HELIOS_TEST_NEW_INSTANCES")?,
            test_memory_limit: from.number("HELIOS_TEST_MEMORY_LIMIT", 0..=u64::MAX)?,
            test_max_buffer: from.number("HELIOS_TEST_MAX_BUFFER", 65_536..=u64::MAX)?,
            test_max_storage_range: from
                .number("HELIOS_TEST_MAX_STORAGE_RANGE", 256..=u64::from(u32::MAX))?
                .map(|n| n as u32),
            // JavaScript's integers are exact to 2^53.
            test_timeline_start: from
                .number("HELIOS_TEST_TIMELINE_START", 0..=1 << 52)?
                .unwrap_or(0),
            test_lose_device: from.numbers("HELIOS_TEST_LOSE_DEVICE")?,
            test_panic: from.parsed("HELIOS_TEST_PANIC", &format!("one of {PLACES}"), |text| {
                PLACES.split(", ").find(|place| *place == text)
            })?,
        })
    }
}

/// Prefixes of the variables that loaders and drivers read.
const OF_DRIVERS: [&str; 18] = [
    "VK_",
    "XDG_",
    "DRI_",
    "ENABLE_",
    "DISABLE_",
    "NVIDIA_",
    "CUDA_",
    "__NV_",
    "__GLX_",
    "MESA_",
    "GALLIUM_",
    "LP_",
    "NIR_",
    "RADV_",
    "AMD_",
    "ANV_",
    "INTEL_",
    "NODEVICE_",
];

type Environment = Arc<[(String, OsString)]>;

/// The last snapshot of the environment.
static SEEN: Mutex<Option<Environment>> = Mutex::new(None);

/// Every variable whose name is text.
///
/// Another thread that sets a variable may free the memory that we read here. Node's own lock guards against that, and
/// we cannot take it. So only an `undisturbed` thread reads the environment: Node's main thread, the only one that sets
/// variables (a worker's `process.env` is a copy). Other threads get the last snapshot, and read for themselves only if
/// there is none.
fn look(undisturbed: bool) -> Environment {
    let mut seen = SEEN.lock();
    match &*seen {
        Some(known) if !undisturbed => known.clone(),
        _ => {
            let all = std::env::vars_os();
            let all = all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
            seen.insert(all.collect()).clone()
        }
    }
}

fn is_of_drivers(name: &str) -> bool {
    OF_DRIVERS.iter().any(|prefix| name.starts_with(prefix))
}

/// Variables that grant access to something, which a report must not contain: others read it.
const SECRETS: [&str; 2] = ["HELIOS_SECRET", "HELIOS_NODE_SHELL"];

/// The variables that change what the addon or the drivers do, for reports.
pub fn for_reports() -> impl Iterator<Item = (String, OsString)> {
    let seen = look(false);
    let ours = |name: &str| name.starts_with("HELIOS_") && !SECRETS.contains(&name);
    let told = |(name, _): &&(String, OsString)| ours(name) || is_of_drivers(name);
    let all: Vec<_> = seen.iter().filter(told).cloned().collect();
    all.into_iter()
}

/// The variables that change what the loader or the drivers do, sorted by name.
pub fn for_drivers() -> Vec<(String, OsString)> {
    let seen = look(false);
    let all = seen.iter().filter(|(name, _)| is_of_drivers(name));
    let mut all: Vec<_> = all.cloned().collect();
    all.sort();
    all
}

/// The value of a switch.
fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" => Some(true),
        "0" | "false" | "off" | "no" => Some(false),
        _ => None,
    }
}

struct Variables<'a> {
    get: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Variables<'_> {
    /// A value unchanged, for paths.
    fn raw(&self, name: &str) -> Option<OsString> {
        (self.get)(name).filter(|value| !value.to_string_lossy().trim().is_empty())
    }

    /// A value without blanks around it, such as the one that Windows' `set NAME=1 &` leaves.
    fn text(&self, name: &str) -> Result<Option<String>> {
        let Some(value) = self.raw(name) else {
            return Ok(None);
        };
        match value.to_str() {
            Some(text) => Ok(Some(text.trim().to_owned())),
            None => Err(Error::range(name, "must be UTF-8", value.to_string_lossy())),
        }
    }

    fn parsed<T>(
        &self,
        name: &str,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let value = parse(&text).map(Some);
        value.ok_or_else(|| Error::range(name, format!("must be {allowed}"), text))
    }

    fn switch(&self, name: &str) -> Result<Option<bool>> {
        let allowed = "1, true, on or yes, or 0, false, off or no";
        self.parsed(name, allowed, truth)
    }

    /// A switch that is off by default.
    fn on(&self, name: &str) -> Result<bool> {
        Ok(self.switch(name)?.unwrap_or(false))
    }

    fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let (from, to) = (range.start(), range.end());
        self.parsed(
            name,
            &format!("a whole number from {from} to {to}"),
            |text| text.parse().ok().filter(|n| range.contains(n)),
        )
    }

    fn numbers(&self, name: &str) -> Result<Vec<u64>> {
        let parse = |text: &str| text.split(',').map(|n| n.trim().parse().ok()).collect();
        let list = self.parsed(name, "whole numbers with commas between them", parse)?;
        Ok(list.unwrap_or_default())
    }

    fn coop_tile(&self, name: &str) -> Result<Option<CoopTile>> {
        self.parsed(name, "MxNxK or none", |text| {
            if text.eq_ignore_ascii_case("none") {
                return Some(CoopTile::None);
            }
            let parts: Vec<Option<u32>> = text.split(['x', 'X']).map(|p| p.parse().ok()).collect();
            match parts.as_slice() {
                &[Some(m), Some(n), Some(k)] => Some(CoopTile::Shape(m, n, k)),
                _ => None,
            }
        })
    }

    /// The loaders of the SDK and of Homebrew, on macOS.
    fn loaders(&self, macos: bool) -> Vec<PathBuf> {
        let named = ["VULKAN_SDK", "HOMEBREW_PREFIX"].map(|name| self.raw(name));
        let standard = ["/opt/homebrew", "/usr/local"].map(OsString::from);
        let roots = named.into_iter().flatten().chain(standard);
        let of = |root| PathBuf::from(root).join("lib/libvulkan.1.dylib");
        if macos {
            roots.map(of).collect()
        } else {
            Vec::new()
        }
    }

    /// A folder, or a switch: off means none, on means the default.
    fn folder(&self, name: &str, default: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
        match self.raw(name) {
            None => default(),
            Some(value) => match value.to_str().and_then(|text| truth(text.trim())) {
                Some(true) => default(),
                Some(false) => None,
                // Absolute, since the program may change its directory.
                None => std::path::absolute(value).ok(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config> {
        Config::read(&|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    /// The names of our variables that `text` mentions.
    fn names(text: &str) -> BTreeSet<&str> {
        text.match_indices("HELIOS_")
            .map(|(at, _)| {
                let rest = &text[at..];
                let end = rest
                    .find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
                &rest[..end.unwrap_or(rest.len())]
            })
            .filter(|name| *name != "HELIOS_" && !name.ends_with('_'))
            .collect()
    }

    /// The names that [`Config::read`] looks up.
    fn asked() -> BTreeSet<String> {
        let asked = std::cell::RefCell::new(BTreeSet::new());
        Config::read(&|name| {
            asked.borrow_mut().insert(name.to_owned());
            None
        })
        .unwrap();
        asked.into_inner()
    }

    #[test]
    fn an_empty_environment_and_blank_values_are_the_defaults() {
        for blank in ["", " ", "\t"] {
            let all: Vec<String> = asked().into_iter().collect();
            let all: Vec<(&str, &str)> = all.iter().map(|n| (n.as_str(), blank)).collect();
            for config in [read(&all).unwrap(), read(&[]).unwrap()] {
                assert!(!config.validation && config.device.is_none());
                assert!(config.wait_timeout.is_none() && config.pipeline_cache.is_none());
                assert_eq!(config.report_dir, Some(std::env::temp_dir()));
            }
        }
    }

    #[test]
    fn on_macos_the_loader_is_sought_where_homebrew_and_the_sdk_put_it() {
        let loaders = |list: &[(&str, &str)], macos| {
            let get = |name: &str| {
                let found = list.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            };
            Variables { get: &get }.loaders(macos)
        };
        let standard = ["/opt/homebrew", "/usr/local"]
            .map(|root| Path::new(root).join("lib").join("libvulkan.1.dylib"));
        assert_eq!(loaders(&[], true), standard);
        let own = [("HOMEBREW_PREFIX", "/brew"), ("VULKAN_SDK", "/sdk/macOS")];
        let own = loaders(&own, true);
        assert_eq!(own[0], Path::new("/sdk/macOS/lib/libvulkan.1.dylib"));
        assert_eq!(own[1], Path::new("/brew/lib/libvulkan.1.dylib"));
        assert_eq!(own[2..], standard);
        assert!(loaders(&[("VULKAN_SDK", "/sdk")], false).is_empty());
    }

    #[test]
    fn switches_take_eight_words_and_nothing_else() {
        let names = asked();
        let switches = [
            "HELIOS_VALIDATION",
            "HELIOS_RECORD_THREAD",
            "HELIOS_STACKS",
            "HELIOS_TEST_STAGED",
        ];
        for name in switches {
            assert!(names.contains(name));
            for word in [
                "1", "true", "on", "yes", "0", "false", "off", "no", " TRUE ",
            ] {
                read(&[(name, word)]).unwrap();
            }
            for word in ["2", "-1", "00", "nein", "fals", "1.0", "tru e", "\u{661}"] {
                let error = read(&[(name, word)]).unwrap_err();
                let text = error.to_string();
                assert!(
                    text.contains(name) && text.contains(word) && text.contains("yes"),
                    "{text}"
                );
                assert_eq!(error.argument(), Some(name));
            }
        }
        let off = read(&[("HELIOS_RECORD_THREAD", "No")]).unwrap();
        assert_eq!(off.record_thread, Some(false));
    }

    #[test]
    fn numbers_are_whole_and_in_range() {
        let name = "HELIOS_FLUSH_DISPATCHES";
        let dispatches = |value| read(&[(name, value)]).map(|c| c.flush_dispatches);
        assert_eq!(dispatches("1").unwrap(), Some(1));
        assert_eq!(dispatches(" 64 ").unwrap(), Some(64));
        for value in [
            "0",
            "4294967296",
            "-1",
            "1.5",
            "1e1",
            "0x10",
            "NaN",
            "one",
            "1 2",
        ] {
            let text = dispatches(value).unwrap_err().to_string();
            assert!(
                text.contains(name) && text.contains("from 1 to 4294967295"),
                "{text}"
            );
            assert!(text.ends_with(&format!("got {value}")), "{text}");
        }
        let lose = |value| read(&[("HELIOS_TEST_LOSE_DEVICE", value)]).map(|c| c.test_lose_device);
        assert_eq!(lose("3, 5,0").unwrap(), [3, 5, 0]);
        assert!(lose("3,,5").is_err() && lose("soon").is_err());
    }

    #[test]
    fn tiles_are_three_numbers_or_none() {
        let tile = |value| read(&[("HELIOS_COOP_TILE", value)]).map(|c| c.coop_tile);
        assert_eq!(tile("none").unwrap(), Some(CoopTile::None));
        let shape = CoopTile::Shape(16, 8, 16);
        assert_eq!(tile("16x8X16").unwrap(), Some(shape));
        for value in ["nonsense", "16x16", "16x16x", "1x2x3x4", "-1x2x3"] {
            let text = tile(value).unwrap_err().to_string();
            assert!(
                text.contains("HELIOS_COOP_TILE must be MxNxK or none"),
                "{text}"
            );
        }
    }

    #[test]
    fn folders_are_paths_or_switches() {
        let cache = |value| {
            let list = [("HELIOS_PIPELINE_CACHE", value), ("HOME", "/home/me")];
            read(&list).unwrap().pipeline_cache
        };
        let default = Some(PathBuf::from("/home/me/.cache/helios-vk"));
        assert_eq!(cache(""), default);
        assert_eq!(cache("1"), default);
        assert_eq!(cache("0"), None);
        assert_eq!(cache("off"), None);
        assert_eq!(cache("/tmp/x y "), Some(PathBuf::from("/tmp/x y ")));
        assert_eq!(
            cache("a folder"),
            Some(std::env::current_dir().unwrap().join("a folder"))
        );
        let xdg = [("HOME", "/home/me"), ("XDG_CACHE_HOME", "/cache")];
        let xdg = read(&xdg).unwrap().pipeline_cache;
        assert_eq!(xdg, Some(PathBuf::from("/cache/helios-vk")));
        // On Windows a shell such as Git's sets HOME too; who sets XDG_CACHE_HOME there means it.
        let local = r"C:\Users\me\AppData\Local";
        let windows = [("HOME", r"C:\Users\me"), ("LOCALAPPDATA", local)];
        let ours = Some(Path::new(local).join("helios-vk"));
        assert_eq!(read(&windows[1..]).unwrap().pipeline_cache, ours);
        assert_eq!(read(&windows).unwrap().pipeline_cache, ours);
        let both = [windows[1], ("XDG_CACHE_HOME", r"D:\cache")];
        let moved = Some(Path::new(r"D:\cache").join("helios-vk"));
        assert_eq!(read(&both).unwrap().pipeline_cache, moved);
        assert_eq!(read(&[]).unwrap().pipeline_cache, None);
        assert_eq!(
            read(&[("HELIOS_REPORT_DIR", "0")]).unwrap().report_dir,
            None
        );
    }

    #[test]
    fn a_place_to_panic_is_one_of_those_that_there_are() {
        let place = |value| read(&[("HELIOS_TEST_PANIC", value)]).map(|c| c.test_panic);
        assert_eq!(place(" settle ").unwrap(), Some("settle"));
        for value in ["nowhere", "Settle", "1", "settle,submit"] {
            let error = place(value).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("HELIOS_TEST_PANIC must be one of abort, completion, pressure"),
                "{text}"
            );
            assert!(text.ends_with(&format!("got {value}")), "{text}");
            assert_eq!(error.argument(), Some("HELIOS_TEST_PANIC"));
        }
    }

    #[cfg(unix)]
    #[test]
    fn text_is_utf8_and_paths_need_not_be() {
        use std::os::unix::ffi::OsStringExt;
        let wild = OsString::from_vec(vec![b'/', 0xff, b'x']);
        let with = |name: &'static str| {
            let wild = wild.clone();
            Config::read(&move |asked| (asked == name).then(|| wild.clone()))
        };
        for name in ["HELIOS_DEVICE", "HELIOS_VALIDATION", "HELIOS_WAIT_TIMEOUT"] {
            let text = with(name).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains("UTF-8"), "{text}");
        }
        let cache = with("HELIOS_PIPELINE_CACHE").unwrap().pipeline_cache;
        assert_eq!(cache, Some(PathBuf::from(&wild)));
    }

    #[test]
    fn the_table_for_users_lists_what_is_read_here() {
        let table = include_str!("../docs/environment.md");
        let begin = table.find("## The addon").expect("a section");
        let section = &table[begin..];
        let end = section[3..]
            .find("\n## ")
            .map_or(section.len(), |at| at + 3);
        let documented: BTreeSet<&str> = section[..end]
            .lines()
            .filter(|line| line.starts_with('|'))
            .filter_map(|line| names(line.split('|').nth(1)?).into_iter().next())
            .collect();
        let asked = asked();
        let read: BTreeSet<&str> = asked
            .iter()
            .map(String::as_str)
            .filter(|name| name.starts_with("HELIOS_"))
            .collect();
        assert_eq!(documented, read);
    }

    #[test]
    fn the_environment_is_looked_at_again_only_where_nobody_disturbs_it() {
        let seen = look(true);
        assert!(Arc::ptr_eq(&seen, &look(false)));
        assert!(!Arc::ptr_eq(&seen, &look(true)));
    }

    #[test]
    fn no_other_file_reads_the_environment() {
        fn walk(folder: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else if path.extension().is_some_and(|e| e == "rs")
                    && !path.ends_with("config.rs")
                    && !path.ends_with("tests.rs")
                {
                    let text = std::fs::read_to_string(&path).unwrap();
                    // Tests may name others.
                    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                    for word in ["env::var", "env::temp_dir", "env::home_dir", "getenv"] {
                        if text.contains(word) {
                            found.push(format!("{}: {word}", path.display()));
                        }
                    }
                }
            }
        }
        let mut found = Vec::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        walk(&source, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

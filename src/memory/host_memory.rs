//! How much host memory the results of reads may take, from the limits of the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Two steps' results of a program that reads 1.3 GB a step: while one step's results are in use, those of the step
/// before are garbage whose finalizers have not run.
const MAX_BYTES: u64 = 3 << 30;
/// With less, results of ordinary size would always be copied.
const MIN_BYTES: u64 = 16 << 20;

/// The limits of this process in bytes, where known.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    /// Remaining address space (`ulimit -v`).
    address_space: Option<u64>,
    /// Memory limit of the control group, as in a container.
    group: Option<u64>,
    /// Memory of the machine.
    physical: Option<u64>,
}

impl Limits {
    /// Blocks that JavaScript holds may take this much, and idle ones as much again; the rest of the process needs more
    /// than both.
    fn results(self) -> u64 {
        let parts = [
            self.address_space.map(|bytes| bytes / 4),
            self.group.map(|bytes| bytes / 8),
            self.physical.map(|bytes| bytes / 8),
        ];
        parts.into_iter().flatten().fold(MAX_BYTES, u64::min)
    }
}

/// Bytes of readback blocks that JavaScript may hold at a time. Reads the limits at the first read, when driver and
/// device have taken their part.
pub fn results() -> u64 {
    static SYSTEM: OnceLock<u64> = OnceLock::new();
    let system = *SYSTEM.get_or_init(|| system::limits().results());
    system.min(HEAP.load(Ordering::Relaxed)).max(MIN_BYTES)
}

static HEAP: AtomicU64 = AtomicU64::new(u64::MAX);

/// Limits [`results`] to three quarters of `limit`, the limit of the JavaScript heap.
pub fn heap_limit(limit: u64) {
    HEAP.fetch_min(limit / 4 * 3, Ordering::Relaxed);
}

/// The smallest memory limit of the control group at `path` (as `/proc/self/cgroup` names it) and its parents. `read`
/// returns the text of a file.
fn group_limit(path: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let mut least = None;
    let mut folder = path.trim_end_matches('/');
    loop {
        // "max" means no limit.
        let text = read(&format!("/sys/fs/cgroup{folder}/memory.max"));
        let limit = text.and_then(|text| text.trim().parse::<u64>().ok());
        least = [least, limit].into_iter().flatten().min();
        match folder.rfind('/') {
            Some(end) => folder = &folder[..end],
            None => return least,
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::{Limits, group_limit};

    fn page() -> u64 {
        // SAFETY: a question without arguments in memory.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        u64::try_from(bytes).unwrap_or(4096)
    }

    fn address_space() -> Option<u64> {
        let mut limit = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: it writes the structure, which lives until it returns.
        let status = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
        if status != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
            return None;
        }
        let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
        let used = sizes.split(' ').next()?.parse::<u64>().ok()? * page();
        Some(limit.rlim_cur.saturating_sub(used))
    }

    fn group() -> Option<u64> {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let groups = read("/proc/self/cgroup")?;
        let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
        // cgroup v1 reports a huge number if there is no limit.
        let first = || {
            let text = read("/sys/fs/cgroup/memory/memory.limit_in_bytes")?;
            text.trim().parse().ok()
        };
        unified
            .and_then(|path| group_limit(path, read))
            .or_else(first)
    }

    fn physical() -> Option<u64> {
        // SAFETY: as above.
        let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
        u64::try_from(pages).ok()?.checked_mul(page())
    }

    pub fn limits() -> Limits {
        Limits {
            address_space: address_space(),
            group: group(),
            physical: physical(),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    /// Only the runtime's heap limit is known here; it follows the machine's memory.
    pub fn limits() -> super::Limits {
        super::Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_tightest_limit_counts() {
        let unlimited = Limits::default();
        assert_eq!(unlimited.results(), 3 * GIB);
        let machine = Limits {
            physical: Some(128 * GIB),
            ..unlimited
        };
        assert_eq!(machine.results(), 3 * GIB);
        let container = Limits {
            group: Some(4 * GIB),
            ..machine
        };
        assert_eq!(container.results(), GIB / 2);
        let limited = Limits {
            address_space: Some(GIB),
            ..container
        };
        assert_eq!(limited.results(), GIB / 4);
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let read = |path: &str| match path {
            "/sys/fs/cgroup/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("4096\n".to_owned()),
            "/sys/fs/cgroup/a/b/memory.max" => Some("8192\n".to_owned()),
            _ => None,
        };
        assert_eq!(group_limit("/a/b", read), Some(4096));
        assert_eq!(group_limit("/a/b/c", read), Some(4096));
        assert_eq!(group_limit("/", read), None);
        assert_eq!(group_limit("/x", read), None);
        let root = |path: &str| (path == "/sys/fs/cgroup/memory.max").then(|| "512".to_owned());
        assert_eq!(group_limit("/", root), Some(512));
    }

    #[test]
    fn it_is_known_here_and_follows_the_heap() {
        let before = results();
        assert!((MIN_BYTES..=MAX_BYTES).contains(&before));
        heap_limit(before * 4);
        assert_eq!(results(), before);
        heap_limit(before);
        assert_eq!(results(), (before / 4 * 3).max(MIN_BYTES));
    }
}

//! The pipeline cache on disk: one file for each device and driver. Files are not trusted, and any number of processes
//! and hosts may share the folder.
#![deny(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Larger files are neither read nor written.
const MAX_BYTES: u64 = 256 << 20;
/// A file is this magic number, the length and the checksum of the driver's data as 64-bit little-endian words, then
/// the data.
const MAGIC: &[u8; 8] = b"helios-1";
const HEADER_BYTES: usize = 24;

pub struct CacheFile {
    path: PathBuf,
}

impl CacheFile {
    pub fn new(folder: &Path, name: &str) -> Self {
        Self {
            path: folder.join(name),
        }
    }

    /// The data of the last [`Self::write`]; none if the file is missing or not exactly that.
    pub fn read(&self) -> Option<Vec<u8>> {
        let file = open_without_waiting(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || metadata.len() > MAX_BYTES + HEADER_BYTES as u64 {
            return None;
        }
        let mut bytes = Vec::new();
        // Limited to the length seen above, in case the file grows.
        file.take(metadata.len()).read_to_end(&mut bytes).ok()?;
        let (head, data) = bytes.split_at_checked(HEADER_BYTES)?;
        (head == header(data)).then(|| data.to_vec())
    }

    /// Writes a temporary file and renames it, so that a reader sees the whole old file or the whole new one. After a
    /// failure the old one is still there.
    pub fn write(&self, data: &[u8]) -> io::Result<()> {
        if data.len() as u64 > MAX_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let (mut file, temporary) = create_aside(folder)?;
        let written = file
            .write_all(&header(data))
            .and_then(|()| file.write_all(data))
            // Some file systems report a full disk only now.
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&temporary, &self.path));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }
}

fn header(data: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
    header[16..].copy_from_slice(&checksum(data).to_le_bytes());
    header
}

/// FNV-1a over 64-bit words. It detects damage, not malice; the folder's permissions guard against that.
fn checksum(data: &[u8]) -> u64 {
    const PRIME: u64 = 0x100_0000_01b3;
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(PRIME).rotate_left(29);
    let (words, rest) = data.as_chunks::<8>();
    let hash = words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        mix(hash, u64::from_le_bytes(*word))
    });
    rest.iter()
        .fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}

/// Opens for reading without following links, and without waiting for the writer of a FIFO.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    }
    options.open(path)
}

/// A new file in `folder` with a name that no other process uses, on this host or another one that shares the folder.
fn create_aside(folder: &Path) -> io::Result<(File, PathBuf)> {
    // The standard library's only source of random numbers: each state has its own keys, from the system.
    let random = RandomState::new().build_hasher().finish();
    let path = folder.join(format!(".{random:016x}-{}.tmp", std::process::id()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let random = RandomState::new().build_hasher().finish();
            let path = std::env::temp_dir().join(format!("helios-cache-test-{random:016x}"));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> = entries
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_stays() {
        let folder = Folder::new();
        let file = CacheFile::new(&folder.0.join("made/on/demand"), "device.bin");
        assert_eq!(file.read(), None);
        for data in [&b"first"[..], b"", b"a longer second one"] {
            file.write(data).unwrap();
            assert_eq!(file.read().as_deref(), Some(data));
        }
        let inner = std::fs::read_dir(file.path.parent().unwrap()).unwrap();
        assert_eq!(inner.count(), 1);
    }

    #[test]
    fn damage_anywhere_is_noticed() {
        let folder = Folder::new();
        let file = CacheFile::new(&folder.0, "device.bin");
        let data: Vec<u8> = (0..203u8).collect();
        file.write(&data).unwrap();
        let whole = std::fs::read(&file.path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&file.path, &damaged).unwrap();
            assert_eq!(file.read(), None, "byte {at}");
            std::fs::write(&file.path, &whole[..at]).unwrap();
            assert_eq!(file.read(), None, "cut at {at}");
        }
        let longer = [&whole[..], b"x"].concat();
        std::fs::write(&file.path, longer).unwrap();
        assert_eq!(file.read(), None);
        std::fs::write(&file.path, &whole).unwrap();
        assert_eq!(file.read(), Some(data));
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        use std::os::unix::fs::symlink;
        let folder = Folder::new();
        let file = CacheFile::new(&folder.0, "device.bin");
        let remove = || std::fs::remove_file(&file.path).unwrap();
        // A sparse file of a terabyte.
        File::create(&file.path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(file.read(), None);
        remove();
        for target in ["/dev/zero", "/dev/stdin", "device.bin"] {
            symlink(target, &file.path).unwrap();
            assert_eq!(file.read(), None, "a link to {target}");
            // Writing replaces the link and leaves its target alone.
            file.write(b"data").unwrap();
            assert_eq!(file.read().as_deref(), Some(&b"data"[..]));
            remove();
        }
        let made = std::process::Command::new("mkfifo")
            .arg(&file.path)
            .status();
        assert!(made.unwrap().success());
        assert_eq!(file.read(), None);
        file.write(b"data").unwrap();
        assert_eq!(file.read().as_deref(), Some(&b"data"[..]));
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_behind() {
        let folder = Folder::new();
        let file = CacheFile::new(&folder.0, "device.bin");
        std::fs::create_dir_all(file.path.join("something")).unwrap();
        assert!(file.write(b"data").is_err(), "a folder is in its place");
        assert_eq!(folder.names(), ["device.bin"]);
    }

    #[test]
    fn many_writers_at_once_leave_one_whole_file() {
        let folder = Folder::new();
        std::thread::scope(|scope| {
            for writer in 0..8u8 {
                let folder = &folder;
                scope.spawn(move || {
                    let file = CacheFile::new(&folder.0, "device.bin");
                    for _ in 0..20 {
                        file.write(&vec![writer; 100_000]).unwrap();
                        let read = file.read().expect("a whole file");
                        assert!(read.len() == 100_000 && read.iter().all(|b| *b == read[0]));
                    }
                });
            }
        });
        assert_eq!(folder.names(), ["device.bin"]);
    }
}

//! Memory shared with another process, or with another API such as CUDA, on the same device.
//!
//! Uses `VK_KHR_external_memory_fd` with opaque handles: a file descriptor stands for the memory, and each holder keeps
//! the memory alive. Vulkan accepts such a handle only on the device and driver that made it.

use std::sync::Arc;

use ash::vk;
use collectives::nccl::cuda::OwnedFd;

use crate::device::sharing::{HANDLE, Sharing};
use crate::device::{Device, buffer_usage};
use crate::error::{self, Error, Result};
use crate::memory::allocator::{Memory, Resource};
use crate::memory::blocks::{SharedBlock, address};
use crate::memory::kind::Kind;

/// A file descriptor for a buffer's memory. The caller owns it.
#[derive(Debug, Clone, Copy)]
pub struct Exported {
    pub fd: i32,
    /// Bytes of the memory.
    pub size: u64,
    /// Bytes of the buffer, which is at the start of the memory.
    pub bytes: u64,
    pub dedicated: bool,
}

impl Exported {
    /// The descriptor, which closes when it is dropped.
    #[cfg(unix)]
    pub fn into_owned(self) -> OwnedFd {
        // SAFETY: the descriptor is the caller's, who gives it away here.
        unsafe { std::os::fd::FromRawFd::from_raw_fd(self.fd) }
    }

    #[cfg(not(unix))]
    pub fn into_owned(self) -> OwnedFd {
        unreachable!("nothing is exported here")
    }
}

fn unsupported(device: &Device, what: &str) -> Error {
    Error::Unsupported(format!(
        "{} cannot {what} buffers through file descriptors (VK_KHR_external_memory_fd)",
        device.snapshot.name
    ))
}

impl Memory {
    /// A device buffer whose memory can be exported.
    pub fn create_exportable(&self, bytes: u64) -> Result<Resource> {
        let device = &self.device;
        let sharing = device
            .sharing
            .as_ref()
            .filter(|s| s.properties.exportable)
            .ok_or_else(|| unsupported(device, "export"))?;
        let (raw, requirements) = create_buffer(device, bytes)?;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(HANDLE);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(requirements.size)
            .push_next(&mut export);
        let block = allocate(device, sharing, raw, &requirements, info).map(|raw| SharedBlock {
            raw,
            bytes: requirements.size,
            exportable: true,
            dedicated: sharing.properties.dedicated,
            name: Arc::default(),
        });
        match block {
            Ok(block) => self.bind(raw, bytes, block),
            Err(result) => {
                // SAFETY: nothing uses the buffer yet.
                unsafe { device.raw.destroy_buffer(raw, None) };
                Err(device.observe(error::create(
                    "vkAllocateMemory",
                    Kind::Shared.name(),
                    bytes,
                )(result)))
            }
        }
    }

    /// Makes a buffer over the `size` bytes of memory of `fd`. The descriptor stays the caller's.
    #[cfg(unix)]
    pub fn import(&self, fd: i32, size: u64) -> Result<Resource> {
        let device = &self.device;
        let sharing = device
            .sharing
            .as_ref()
            .filter(|s| s.properties.importable)
            .ok_or_else(|| unsupported(device, "import"))?;
        // A driver takes ownership of the descriptor that it imports, so give it a duplicate.
        let own = Descriptor::duplicate(fd)?;
        let software = device.snapshot.device_type == vk::PhysicalDeviceType::CPU;
        own.check(fd, size, software)?;
        let (raw, requirements) = create_buffer(device, size)?;
        let give_up = |error| {
            // SAFETY: nothing uses the buffer yet.
            unsafe { device.raw.destroy_buffer(raw, None) };
            Err(error)
        };
        if requirements.size > size {
            return give_up(Error::range(
                "size",
                format!(
                    "must be the size of the memory, as exportBuffer gave it: buffers here are multiples of {} bytes",
                    requirements.alignment
                ),
                size,
            ));
        }
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(HANDLE)
            .fd(own.raw);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .push_next(&mut import);
        match allocate(device, sharing, raw, &requirements, info) {
            Ok(memory) => {
                own.taken();
                let block = SharedBlock {
                    raw: memory,
                    bytes: size,
                    exportable: false,
                    dedicated: sharing.properties.dedicated,
                    name: Arc::default(),
                };
                self.bind(raw, size, block)
            }
            Err(
                result @ (vk::Result::ERROR_DEVICE_LOST | vk::Result::ERROR_OUT_OF_HOST_MEMORY),
            ) => give_up(device.observe(error::create(
                "vkAllocateMemory",
                Kind::Shared.name(),
                size,
            )(result))),
            // An import allocates nothing, so these results mean a wrong descriptor: drivers report
            // ERROR_INVALID_EXTERNAL_HANDLE or (NVIDIA) ERROR_OUT_OF_DEVICE_MEMORY.
            Err(result) => give_up(Error::range(
                "fd",
                format!(
                    "is no memory of {size} bytes that this device and driver exported ({result:?})"
                ),
                fd,
            )),
        }
    }

    #[cfg(not(unix))]
    pub fn import(&self, _fd: i32, _size: u64) -> Result<Resource> {
        Err(unsupported(&self.device, "import"))
    }

    /// A new descriptor for the memory of an exportable buffer of `bytes` bytes; none if it is not exportable.
    pub fn export(&self, resource: &Resource, bytes: u64) -> Result<Option<Exported>> {
        let device = &self.device;
        let sharing = device
            .sharing
            .as_ref()
            .filter(|s| s.properties.exportable)
            .ok_or_else(|| unsupported(device, "export"))?;
        let Some(block) = resource.shared().filter(|block| block.exportable) else {
            return Ok(None);
        };
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(block.raw)
            .handle_type(HANDLE);
        // SAFETY: the memory is live and was allocated for export as this type.
        let fd = unsafe { sharing.calls.get_memory_fd(&info) }
            .map_err(|e| device.observe(error::vulkan("vkGetMemoryFdKHR")(e)))?;
        if fd < 0 {
            // Lavapipe reports success even if the system has no free descriptor.
            return Err(Error::Descriptors(
                std::io::Error::last_os_error().to_string(),
            ));
        }
        #[cfg(unix)]
        // SAFETY: the descriptor was made above. A child process gets it only where its parent says
        // so; if this fails, it gets one too many.
        let _ = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        Ok(Some(Exported {
            fd,
            size: block.bytes,
            bytes,
            dedicated: block.dedicated,
        }))
    }

    /// Releases the memory; other holders keep it. Nothing may be bound to it any more.
    pub(crate) fn free_shared(&self, block: SharedBlock) {
        self.note_shared(block.bytes, false);
        // SAFETY: the caller's promise above; the handle dies with `block`.
        unsafe { self.device.raw.free_memory(block.raw, None) };
    }

    fn bind(&self, raw: vk::Buffer, bytes: u64, block: SharedBlock) -> Result<Resource> {
        let device = &self.device;
        // SAFETY: both are live and unbound, and offset 0 has every alignment.
        let bound = unsafe { device.raw.bind_buffer_memory(raw, block.raw, 0) };
        self.note_shared(block.bytes, true);
        let address = match bound {
            Ok(()) => address(device, raw),
            Err(_) => 0,
        };
        let resource = Resource::of_shared(raw, address, bytes, block);
        if let Err(result) = bound {
            self.destroy(resource);
            return Err(device.observe(error::create(
                "vkBindBufferMemory",
                Kind::Shared.name(),
                bytes,
            )(result)));
        }
        Ok(resource)
    }
}

fn create_buffer(device: &Device, bytes: u64) -> Result<(vk::Buffer, vk::MemoryRequirements)> {
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE);
    let info = vk::BufferCreateInfo::default()
        .size(bytes)
        .usage(buffer_usage(device.plan.device_address))
        .push_next(&mut external);
    // SAFETY: the device is live and the description valid.
    let raw = unsafe { device.raw.create_buffer(&info, None) }.map_err(|e| {
        device.observe(error::create("vkCreateBuffer", Kind::Shared.name(), bytes)(
            e,
        ))
    })?;
    // SAFETY: `raw` was created above.
    let requirements = unsafe { device.raw.get_buffer_memory_requirements(raw) };
    Ok((raw, requirements))
}

fn allocate(
    device: &Device,
    sharing: &Sharing,
    buffer: vk::Buffer,
    requirements: &vk::MemoryRequirements,
    info: vk::MemoryAllocateInfo<'_>,
) -> Result<vk::DeviceMemory, vk::Result> {
    let wanted = device.plan.device_memory;
    let memory_type = if requirements.memory_type_bits & (1 << wanted) != 0 {
        wanted
    } else {
        requirements.memory_type_bits.trailing_zeros()
    };
    let mut flags = vk::MemoryAllocateFlagsInfo::default();
    if device.plan.device_address {
        flags = flags.flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
    }
    let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
    let mut info = info.memory_type_index(memory_type).push_next(&mut flags);
    if sharing.properties.dedicated {
        info = info.push_next(&mut dedicated);
    }
    // SAFETY: the chain's structures are those of enabled extensions and live until the call returns.
    unsafe { device.raw.allocate_memory(&info, None) }
}

/// A file descriptor of our own, closed unless a driver has taken it.
#[cfg(unix)]
struct Descriptor {
    raw: i32,
    /// Device and inode of the file, to recognize it later.
    file: (libc::dev_t, libc::ino_t),
}

#[cfg(unix)]
impl Descriptor {
    fn duplicate(fd: i32) -> Result<Self> {
        // SAFETY: any number may be asked; the lowest free one from 3 on comes back.
        let raw = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
        if raw < 0 {
            let problem = std::io::Error::last_os_error();
            return Err(Error::range(
                "fd",
                format!("is no open file descriptor ({problem})"),
                fd,
            ));
        }
        let mut own = Self { raw, file: (0, 0) };
        own.file = own.status().map_or((0, 0), |s| (s.st_dev, s.st_ino));
        Ok(own)
    }

    fn status(&self) -> Option<libc::stat> {
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the pointer is valid for a whole structure; any number may be asked.
        let found = unsafe { libc::fstat(self.raw, status.as_mut_ptr()) } == 0;
        // SAFETY: a call that succeeds fills the structure.
        found.then(|| unsafe { status.assume_init() })
    }

    /// Refuses descriptors that are not memory: a driver may read from one and block forever. If memory is a file
    /// (software devices), also refuses a size beyond the file's end.
    fn check(&self, fd: i32, size: u64, software: bool) -> Result<()> {
        let Some(status) = self.status() else {
            return Ok(());
        };
        let file = status.st_mode & libc::S_IFMT;
        let no_memory = matches!(file, libc::S_IFDIR | libc::S_IFIFO | libc::S_IFSOCK)
            || (software && file != libc::S_IFREG)
            || (file == libc::S_IFREG && (status.st_size as u64) < size);
        if no_memory {
            return Err(Error::range(
                "fd",
                format!("holds no memory of {size} bytes"),
                fd,
            ));
        }
        Ok(())
    }

    /// The driver owns the descriptor from now on.
    fn taken(self) {
        std::mem::forget(self);
    }
}

#[cfg(unix)]
impl Drop for Descriptor {
    fn drop(&mut self) {
        // Some drivers wrongly close a descriptor that they refuse; the number may belong to another file by now.
        let now = self.status().map(|s| (s.st_dev, s.st_ino));
        if now == Some(self.file) {
            // SAFETY: the descriptor is the one made in `duplicate`.
            unsafe { libc::close(self.raw) };
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_number_that_is_no_descriptor_is_refused() {
        let error = Descriptor::duplicate(1 << 20).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("fd is no open file descriptor")));
    }

    #[test]
    fn a_descriptor_is_closed_once_and_only_while_it_is_ours() {
        let (reader, writer) = std::io::pipe().unwrap();
        let raw = Descriptor::duplicate(writer.as_raw_fd()).unwrap().raw;
        // SAFETY: any number may be asked.
        assert!(unsafe { libc::fcntl(raw, libc::F_GETFD) } < 0, "left open");

        let own = Descriptor::duplicate(writer.as_raw_fd()).unwrap();
        let raw = own.raw;
        // Simulates a driver that closes the descriptor it refuses, after which another file gets the number.
        let other = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: `raw` is open, and becomes a duplicate of the other file.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), raw) }, raw);
        drop(own);
        // SAFETY: the descriptor was duplicated above and is still open.
        assert_eq!(unsafe { libc::close(raw) }, 0, "closed another's file");
        drop(reader);
    }

    #[test]
    fn what_a_driver_would_wait_for_is_refused() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let own = Descriptor::duplicate(reader.as_raw_fd()).unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let other = Descriptor::duplicate(socket.as_raw_fd()).unwrap();
        for software in [false, true] {
            assert!(own.check(reader.as_raw_fd(), 4096, software).is_err());
            assert!(other.check(socket.as_raw_fd(), 4096, software).is_err());
        }
    }

    #[test]
    fn a_file_that_is_shorter_than_the_memory_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let own = Descriptor::duplicate(file.as_raw_fd()).unwrap();
        let check = |software| own.check(file.as_raw_fd(), 4096, software);
        assert!(check(false).is_ok(), "a device tells no size");
        assert!(check(true).is_err(), "a software device's memory is a file");
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let size = file.metadata().unwrap().len();
        let own = Descriptor::duplicate(file.as_raw_fd()).unwrap();
        assert!(own.check(file.as_raw_fd(), size, true).is_ok());
        assert!(own.check(file.as_raw_fd(), size + 1, true).is_err());
    }
}

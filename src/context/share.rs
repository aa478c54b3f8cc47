//! Buffers in memory that others see too.

use std::sync::Arc;

use super::Context;
use crate::error::{Error, Result};
use crate::memory::share::Exported;

impl Context {
    /// A device buffer that [`Context::export_buffer`] takes.
    pub fn create_exportable(&mut self, bytes: u64) -> Result<i32> {
        self.device.check_alive()?;
        self.check_size("byteLength", bytes, 1)?;
        // What was recorded without a barrier goes first.
        self.flush()?;
        let resource = match self.memory.create_exportable(bytes) {
            Err(Error::OutOfMemory { .. }) => {
                self.relieve()?;
                self.memory.create_exportable(bytes)
            }
            other => other,
        }?;
        self.shares = true;
        let handle = self.adopt(Arc::new(resource), bytes, false)?;
        self.clear_if_safe(handle)?;
        Ok(handle)
    }

    /// A buffer over the `size` bytes of memory that `fd` stands for. The descriptor stays the
    /// caller's.
    pub fn import_buffer(&mut self, fd: i32, size: u64) -> Result<i32> {
        self.device.check_alive()?;
        self.check_size("size", size, 1)?;
        self.flush()?;
        let resource = self.memory.import(fd, size)?;
        self.shares = true;
        self.adopt(Arc::new(resource), size, false)
    }

    /// A new file descriptor for the buffer's memory, the caller's to close.
    pub fn export_buffer(&mut self, handle: i32) -> Result<Exported> {
        self.device.check_alive()?;
        let slot = self.buffer_slot("handle", handle)?;
        let Some(buffer) = self.buffers.at(slot) else {
            return Err(Error::handle("handle", "buffer", handle));
        };
        self.memory
            .export(&buffer.resource, buffer.bytes)?
            .ok_or_else(|| {
                Error::range(
                    "handle",
                    "must be a buffer made by createBuffer(bytes, 0, { exportable: true })",
                    handle,
                )
            })
    }
}

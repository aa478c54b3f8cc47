//! Buffers whose memory is shared with other processes and APIs.

use std::sync::Arc;

use super::Context;
use crate::error::{Error, Result};
use crate::memory::share::Exported;

impl Context {
    /// Creates a device buffer that [`Context::export_buffer`] accepts.
    pub fn create_exportable(&mut self, bytes: u64) -> Result<i32> {
        self.device.check_alive()?;
        self.check_size("byteLength", bytes, 1)?;
        // Submit first what was recorded without the barrier that shared memory needs.
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

    /// Makes a buffer over the `size` bytes of memory of `fd`. The descriptor stays the caller's.
    pub fn import_buffer(&mut self, fd: i32, size: u64) -> Result<i32> {
        self.device.check_alive()?;
        self.check_size("size", size, 1)?;
        self.flush()?;
        let resource = self.memory.import(fd, size)?;
        self.shares = true;
        self.adopt(Arc::new(resource), size, false)
    }

    /// A new file descriptor for the buffer's memory. The caller owns it.
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

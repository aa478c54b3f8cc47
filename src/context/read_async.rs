//! Reads whose result is collected later, while other calls go on.

use super::{Context, Read};
use crate::error::{Error, Result};
use crate::staging::Lease;

impl Context {
    /// Starts a read of `bytes` bytes at `offset` whose copy has its place in the stream: what is
    /// called afterwards does not show in it. The bytes are in the lease, which must be kept until
    /// then, once the value is reached.
    pub fn read_staged(&mut self, handle: i32, offset: u64, bytes: u64) -> Result<(Lease, u64)> {
        let slot = self.buffer_slot("buffer", handle)?;
        // A mapped buffer would be read in place after the wait, with all that was written meanwhile.
        let mapped = self.buffers.at_mut(slot).and_then(|b| b.mapped.take());
        let read = self.read(handle, offset, bytes);
        if let Some(buffer) = self.buffers.at_mut(slot) {
            buffer.mapped = mapped;
        }
        match read? {
            Read::Staged { lease, value } => Ok((lease, value)),
            Read::Direct { .. } => Err(Error::Internal("a staged read was not staged".to_owned())),
        }
    }
}

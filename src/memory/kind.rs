//! The uses of memory.

use crate::device::Device;
use memory_policy::Growth;

/// What a resource's memory is for; selects the memory type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only the device accesses it.
    Device,
    /// The host may write it directly.
    Visible,
    /// Source of upload copies.
    Upload,
    /// Target of readback copies.
    Readback,
    /// Device memory shared with others; never reused.
    Shared,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device buffer",
            Self::Visible => "host-visible buffer",
            Self::Upload => "upload staging",
            Self::Readback => "readback staging",
            Self::Shared => "shared buffer",
        }
    }

    pub(super) fn memory_type(self, device: &Device) -> u32 {
        match self {
            Self::Device | Self::Shared => device.plan.device_memory,
            Self::Visible => device.plan.visible_memory,
            Self::Upload => device.plan.upload_memory,
            Self::Readback => device.plan.readback_memory,
        }
    }

    pub(super) fn growth(self) -> Growth {
        match self {
            // NVIDIA's driver allocates dedicated memory in pages of 2 MiB.
            Self::Device | Self::Visible | Self::Shared => Growth {
                min: 64 << 20,
                max: 256 << 20,
                page: 2 << 20,
            },
            // Host memory costs the driver 0.3 ms a MiB, so allocate only what is needed.
            Self::Upload | Self::Readback => Growth {
                min: 4 << 20,
                max: 4 << 20,
                page: 64 << 10,
            },
        }
    }

    pub(super) fn is_staging(self) -> bool {
        matches!(self, Self::Upload | Self::Readback)
    }
}

//! The addon's modules that read what callers give them, alone: they know no Vulkan and no Node-API,
//! so a fuzz target builds in seconds.

/// As in the addon's crate.
#[path = "../../src"]
pub mod helios {
    pub mod plan {
        pub mod decode;
        pub mod hazard;
    }
}

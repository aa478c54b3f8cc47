//! The table of SPIR-V that `build.rs` compiled from `shaders/`.

/// One compiled shader.
pub struct Shader {
    /// The file's stem, or a variant's name.
    pub name: &'static str,
    pub spirv: &'static [u32],
}

include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

//! The table of SPIR-V that `build.rs` compiled from `shaders/`.

/// One compiled shader.
pub struct Shader {
    /// The file's stem, or a variant's name.
    pub name: &'static str,
    pub spirv: &'static [u32],
}

include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

#[cfg(test)]
mod tests {
    use super::SHADERS;
    use spirv_check::validate::{CAPABILITIES, Support, secure};

    /// Safe mode has no rules for it, nor for cooperative matrices.
    const BFLOAT16: u32 = 5116;

    #[test]
    fn safe_mode_lets_every_shader_through() {
        let support = Support {
            version: 0x1_0600,
            capabilities: CAPABILITIES.to_vec(),
            shared_bytes: 200 << 10,
        };
        let mut checked = 0;
        for shader in SHADERS {
            let reflection = spirv_check::reflect(shader.spirv).unwrap();
            if reflection.uses_cooperative_matrix || reflection.capabilities.contains(&BFLOAT16) {
                continue;
            }
            let words = secure(shader.spirv, &[], &support);
            assert!(words.is_ok(), "{}: {}", shader.name, words.unwrap_err());
            checked += 1;
        }
        assert!(checked > 200, "{checked}");
    }
}

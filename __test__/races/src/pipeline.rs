//! Pipelines: each a word that the caller writes before it makes the pipeline known.

use ash::vk;

#[derive(Debug, Clone, Copy, Default)]
pub struct Program {
    pub kernel: vk::Pipeline,
}

//! A black box that remembers nothing.

use ash::vk;

#[derive(Default)]
pub struct BlackBox;

#[derive(Default)]
pub struct Log;

impl Log {
    pub fn dispatch(&mut self, _: vk::Pipeline, _: &[u64]) {}

    pub fn transfer(&mut self, _: &[u64]) {}
}

impl BlackBox {
    pub fn submitted(&self, _: &[vk::CommandBuffer], _: u64) {}
}

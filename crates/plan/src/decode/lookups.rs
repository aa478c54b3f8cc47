//! Handle tables made of two functions.

use super::{BindingLimits, PipelineShape, Tables};

/// The tables of a device on which every buffer fits a binding and every pipeline uses all that it binds: what tests and
/// benches decode against.
pub struct Lookups<P, B> {
    pub pipeline: P,
    pub buffer: B,
    pub max_groups: [u32; 3],
}

impl<P, B> Tables for Lookups<P, B>
where
    P: Fn(i32) -> Option<PipelineShape>,
    B: Fn(i32) -> Option<u32>,
{
    #[inline]
    fn pipeline(&self, handle: i32) -> Option<PipelineShape> {
        (self.pipeline)(handle)
    }

    #[inline]
    fn buffer(&self, handle: i32) -> Option<u32> {
        (self.buffer)(handle)
    }

    #[inline]
    fn max_groups(&self) -> [u32; 3] {
        self.max_groups
    }

    fn oversized(&self) -> bool {
        false
    }

    fn binding_limits(&self) -> BindingLimits {
        BindingLimits {
            largest: u64::from(u32::MAX),
            alignment: 256,
        }
    }

    fn buffer_bytes(&self, _: u32) -> u64 {
        1 << 20
    }

    fn buffer_name(&self, _: u32) -> Option<String> {
        None
    }

    fn used_bindings(&self, _: u32) -> u32 {
        u32::MAX
    }
}

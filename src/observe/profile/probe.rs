//! Timestamps of one command buffer, and what each span between two of them was.

use std::sync::Arc;

use ash::vk;

use super::{POOL, SESSION};
use crate::device::Device;
use crate::error::{self, Result};
use crate::pipeline::Kernel;

/// What a span of device time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    Pipeline(Kernel),
    /// A graph recorded before the profile began, by its handle.
    Graph(i32),
    Upload,
    Read,
    Copy,
    Fill,
}

#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub what: What,
    pub groups: [u32; 3],
    /// Bytes moved and operations done, if announced.
    pub bytes: f64,
    pub operations: f64,
}

impl Span {
    pub fn transfer(what: What, bytes: u64) -> Self {
        Self {
            what,
            groups: [0; 3],
            bytes: bytes as f64,
            operations: 0.0,
        }
    }
}

/// The timestamps of one command buffer: one before all its commands, then one after each.
pub struct Probe {
    pub(super) device: Arc<Device>,
    pub(super) pools: Vec<vk::QueryPool>,
    written: u32,
    pub(super) spans: Vec<Span>,
}

/// A timestamp to be recorded.
pub struct Mark {
    pub pool: vk::QueryPool,
    pub query: u32,
    /// The pool is new and must be reset first.
    pub fresh: bool,
}

impl Probe {
    pub(super) fn new(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            pools: Vec::new(),
            written: 0,
            spans: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// The next timestamp, which ends `span`; none if the device gives no more query pools.
    pub fn next(&mut self, span: Option<Span>) -> Option<Mark> {
        let query = self.written % POOL;
        let fresh = query == 0;
        if fresh {
            let spare = SESSION.lock().as_mut().and_then(|s| s.spare.pop());
            self.pools
                .push(spare.or_else(|| query_pool(&self.device, POOL).ok())?);
        }
        self.written += 1;
        self.spans.extend(span);
        let &pool = self.pools.last()?;
        Some(Mark { pool, query, fresh })
    }

    /// Each pool and how many of its timestamps were written.
    pub fn pools(&self) -> impl Iterator<Item = (vk::QueryPool, u32)> {
        let written = self.written;
        self.pools.iter().enumerate().map(move |(i, &pool)| {
            let before = i as u32 * POOL;
            (pool, (written - before).min(POOL))
        })
    }

    /// Bytes of all timestamps.
    pub fn bytes(&self) -> u64 {
        u64::from(self.written) * 8
    }

    /// All timestamps; their commands must have finished.
    pub(super) fn ticks(&self) -> Result<Vec<u64>> {
        let mut ticks = Vec::with_capacity(self.written as usize);
        for (pool, count) in self.pools() {
            let mut part = vec![0u64; count as usize];
            // SAFETY: the pool is live and so many of its queries were written.
            unsafe {
                self.device.raw.get_query_pool_results(
                    pool,
                    0,
                    &mut part,
                    vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT,
                )
            }
            .map_err(|e| {
                self.device
                    .observe(error::vulkan("vkGetQueryPoolResults")(e))
            })?;
            ticks.extend(part);
        }
        Ok(ticks)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        for &pool in &self.pools {
            // SAFETY: the owner waited until the device had finished with the commands.
            unsafe { self.device.raw.destroy_query_pool(pool, None) };
        }
    }
}

pub(super) fn query_pool(device: &Device, count: u32) -> Result<vk::QueryPool> {
    let info = vk::QueryPoolCreateInfo::default()
        .query_type(vk::QueryType::TIMESTAMP)
        .query_count(count);
    // SAFETY: the device is live and the description valid.
    unsafe { device.raw.create_query_pool(&info, None) }.map_err(error::create(
        "vkCreateQueryPool",
        "query pool",
        0,
    ))
}

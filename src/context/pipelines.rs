//! Creating pipelines, and freeing what was compiled for them.

use super::Context;
use crate::error::{Error, Result};
use crate::observe::profile;
use crate::pipeline::{Factory, Options, Pipeline, PtxKernel};
use crate::timing::Phase;

/// How many destroyed pipelines may wait before the device is asked for its progress.
const MAX_RETIRED_PIPELINES: usize = 16;

impl Context {
    pub fn create_pipeline(
        &mut self,
        spirv: &[u32],
        bindings: u32,
        push_bytes: u32,
        options: &Options,
    ) -> Result<i32> {
        self.device.check_alive()?;
        let limits = &self.device.snapshot.limits;
        let most = self.device.max_bindings();
        if bindings > most {
            return Err(Error::range(
                "numBindings",
                format!("must be at most {most}"),
                bindings,
            ));
        }
        if push_bytes > limits.max_push_constants_size || !push_bytes.is_multiple_of(4) {
            return Err(Error::range(
                "pushBytes",
                format!(
                    "must be a multiple of 4, at most {}",
                    limits.max_push_constants_size
                ),
                push_bytes,
            ));
        }
        self.add_pipeline(|factory, born| {
            factory.create(spirv, bindings, push_bytes, options, born)
        })
    }

    /// A pipeline of a kernel in PTX.
    pub fn create_ptx_pipeline(&mut self, kernel: PtxKernel) -> Result<i32> {
        self.device.check_alive()?;
        self.add_pipeline(|factory, born| factory.create_of_ptx(kernel, born))
    }

    /// Makes a handle for the pipeline that `make` returns. `make` gets the timeline's next value and also returns
    /// whether the pipeline was compiled now.
    fn add_pipeline(
        &mut self,
        make: impl FnOnce(&mut Factory, u64) -> Result<(Pipeline, bool)>,
    ) -> Result<i32> {
        let start = self.timing.start(Phase::CreatePipeline);
        let factory = self
            .factory
            .as_mut()
            .ok_or_else(|| Error::Internal("the device is closing".to_owned()))?;
        let (pipeline, fresh) = make(factory, self.stream.pending_value())?;
        let (program, name) = (pipeline.program, pipeline.name.clone());
        let made = self.pipelines.insert(pipeline);
        if let Ok(handle) = made {
            self.binds_sets |= program.layout.binds_sets();
            if let Some(slot) = self.pipelines.slot(handle) {
                self.recorder.add_program(slot, program);
            }
            if fresh && profile::on() {
                profile::named(program.kernel, handle, name.as_deref());
            }
        }
        self.timing.end(start);
        self.reclaim_pipelines();
        made.map_err(|_| Error::OutOfMemory {
            what: "pipeline handle",
            bytes: 0,
            space: "handle",
            hint: ": 2^20 pipelines are live".to_owned(),
        })
    }

    /// The handle is invalid now. What was compiled is freed when no other handle, no graph and no recorded work needs
    /// it.
    pub fn destroy_pipeline(&mut self, handle: i32) -> Result<()> {
        self.device.check_alive()?;
        // The caller must not destroy the kernel of the NaN watches.
        let own = self.watches.pipeline() == Some(handle);
        let pipeline = match own {
            true => None,
            false => self.pipelines.remove(handle),
        };
        let pipeline = pipeline.ok_or_else(|| Error::handle("handle", "pipeline", handle))?;
        let value = match self.stream.unsubmitted() {
            true => self.stream.pending_value(),
            false => self.stream.submitted,
        };
        self.retired_pipelines.push_back((value, pipeline.compiled));
        self.reclaim_pipelines();
        Ok(())
    }

    /// Drops destroyed pipelines that the device has finished with.
    fn reclaim_pipelines(&mut self) {
        // A profile identifies pipelines by the driver's handles, which the driver may reuse.
        if self.retired_pipelines.is_empty() || profile::running() {
            return;
        }
        let mut seen = self.timeline.seen();
        if self.retired_pipelines.len() > MAX_RETIRED_PIPELINES {
            // Nobody has waited for a while, so ask. The device keeps a failure.
            seen = self.timeline.completed().unwrap_or(seen);
        }
        while (self.retired_pipelines.front()).is_some_and(|&(value, _)| value <= seen) {
            self.retired_pipelines.pop_front();
        }
    }
}

//! Creating pipelines, and freeing what was compiled for them.

use super::Context;
use crate::error::{Error, Result};
use crate::observe::profile;
use crate::pipeline::{Factory, Pipeline, PtxKernel, Shader};
use crate::timing::Phase;

/// How many destroyed pipelines may wait before the device is asked for its progress.
const MAX_RETIRED_PIPELINES: usize = 16;

impl Context {
    pub fn create_pipeline(&mut self, shader: &Shader) -> Result<i32> {
        self.device.check_alive()?;
        self.check_shader(shader, "")?;
        self.add_pipeline(|factory, born| factory.create(shader, born))
    }

    /// Several pipelines, compiled on several threads: all or none.
    pub fn create_pipelines(&mut self, shaders: &[Shader]) -> Result<Vec<i32>> {
        self.device.check_alive()?;
        for (i, shader) in shaders.iter().enumerate() {
            self.check_shader(shader, &format!("pipelines[{i}]."))?;
        }
        let start = self.timing.start(Phase::CreatePipeline);
        let born = self.stream.pending_value();
        let made = self.factory()?.create_all(shaders, born);
        self.timing.end(start);
        let mut handles = Vec::new();
        for (pipeline, fresh) in made? {
            match self.register(pipeline, fresh) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    for handle in handles {
                        self.destroy_pipeline(handle)?;
                    }
                    return Err(error);
                }
            }
        }
        self.reclaim_pipelines();
        Ok(handles)
    }

    /// Checks the counts of a shader against the device. `of`: what its properties' names begin with in messages.
    fn check_shader(&self, shader: &Shader, of: &str) -> Result<()> {
        let limits = &self.device.snapshot.limits;
        let most = self.device.max_bindings();
        let name = |plain: &str, member: &str| match of {
            "" => plain.to_owned(),
            _ => format!("{of}{member}"),
        };
        if shader.bindings > most {
            return Err(Error::range(
                &name("numBindings", "bindings"),
                format!("must be at most {most}"),
                shader.bindings,
            ));
        }
        let push_bytes = shader.push_bytes;
        if push_bytes > limits.max_push_constants_size || !push_bytes.is_multiple_of(4) {
            return Err(Error::range(
                &name("pushBytes", "pushBytes"),
                format!(
                    "must be a multiple of 4, at most {}",
                    limits.max_push_constants_size
                ),
                push_bytes,
            ));
        }
        Ok(())
    }

    fn factory(&mut self) -> Result<&mut Factory> {
        self.factory
            .as_mut()
            .ok_or_else(|| Error::Internal("the device is closing".to_owned()))
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
        let born = self.stream.pending_value();
        let (pipeline, fresh) = make(self.factory()?, born)?;
        let made = self.register(pipeline, fresh);
        self.timing.end(start);
        self.reclaim_pipelines();
        made
    }

    /// Makes a handle for a pipeline.
    fn register(&mut self, pipeline: Pipeline, fresh: bool) -> Result<i32> {
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

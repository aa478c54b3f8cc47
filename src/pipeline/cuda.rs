//! Kernels in PTX: modules and functions of whichever extension the device has for them.
//!
//! Instructions are not analysed: the caller declares what a kernel reads and writes. Parameters, shared memory and
//! block sizes that the text declares are checked against the launch ([`ptx_check`]).

use std::ffi::CString;
use std::sync::{Arc, Weak};

use ptx_check::{Limits, Parameters};

use super::{Compiled, Factory, Kernel, Key, Layout, Pipeline, Program};
use crate::device::Device;
use crate::device::cuda::{self, Extension};
use crate::error::{self, Error, Result};
use crate::plan::decode::MAX_BINDINGS;
use crate::plan::hazard::Access;

/// A kernel in PTX as `createPipeline` gets it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PtxKernel {
    /// Text that ends with a NUL, or a cubin.
    pub data: Arc<[u8]>,
    /// The kernel's name.
    pub entry: String,
    /// What the kernel does to each buffer.
    pub access: Vec<Access>,
    pub push_bytes: u32,
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    pub name: Option<String>,
}

/// A module that the driver has loaded, shared by its kernels.
pub(super) struct Module {
    device: Arc<Device>,
    raw: cuda::Module,
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(cuda) = &self.device.cuda {
            // SAFETY: its functions keep it alive, and nothing else uses it.
            unsafe { cuda.destroy_module(self.raw) };
        }
    }
}

impl PtxKernel {
    /// Checks that a launch fits the device and the text. Returns whether the parameters are passed as one block.
    fn check(&self, device: &Device, extension: Extension) -> Result<bool> {
        let launch = ptx_check::Launch {
            data: &self.data,
            entry: &self.entry,
            bindings: self.access.len(),
            push_bytes: self.push_bytes,
            block: self.block,
            shared_bytes: self.shared_bytes,
        };
        let limits = &device.snapshot.limits;
        let limits = Limits {
            block: limits.max_compute_work_group_size,
            threads: limits.max_compute_work_group_invocations,
        };
        let declared = ptx_check::check(&launch, limits).map_err(|fault| {
            Error::range(
                format!("kernel.{}", fault.argument),
                fault.problem,
                fault.value,
            )
        })?;
        match declared {
            Parameters::Other if extension == Extension::KernelLaunch => {
                Err(Error::Unsupported(format!(
                    "{} takes one parameter for the whole block, or one of 8 bytes for each binding and of 4 for each \
                     word of push constants; those of {} are others, or not known",
                    extension.text(),
                    self.entry
                )))
            }
            declared => Ok(declared != Parameters::Each),
        }
    }
}

impl Factory {
    /// A pipeline of a kernel in PTX: an existing one if everything is equal. Also returns whether it was made now.
    /// `born`: the timeline's next value.
    pub fn create_of_ptx(&mut self, mut source: PtxKernel, born: u64) -> Result<(Pipeline, bool)> {
        let device = Arc::clone(&self.device);
        let cuda = device.cuda.as_ref();
        let cuda = cuda.map_err(|why| Error::Unsupported(why.clone()))?;
        let packed = source.check(&device, cuda.extension)?;
        if let Some((data, _)) = self.modules.get_key_value(&source.data) {
            // Equal data share one module.
            source.data = Arc::clone(data);
        }
        let (compiled, fresh) = self.shared(Key::Ptx(source.clone()), |factory| {
            factory.compile_ptx(&source, packed, born)
        })?;
        let bindings = source.access.len() as u32;
        let pipeline = Pipeline::new(compiled, bindings, source.push_bytes, source.name);
        Ok((pipeline, fresh))
    }

    fn compile_ptx(&mut self, source: &PtxKernel, packed: bool, born: u64) -> Result<Compiled> {
        let device = Arc::clone(&self.device);
        let cuda = device.cuda.as_ref();
        let cuda = cuda.map_err(|why| Error::Unsupported(why.clone()))?;
        let module = self.module(cuda, &source.data)?;
        let entry = CString::new(source.entry.as_str())
            .map_err(|_| Error::range("kernel.entry", "must hold no NUL", &source.entry))?;
        let call = cuda.function_call();
        let raw = cuda
            .create_function(module.raw, &entry)
            .map_err(|result| device.observe(error::create(call, "kernel", 0)(result)))?;
        let mut access = [Access::NONE; MAX_BINDINGS];
        access[..source.access.len()].copy_from_slice(&source.access);
        if self.debug {
            let mask = |has: fn(&Access) -> bool| {
                let bits = source.access.iter().map(|a| u32::from(has(a)));
                bits.enumerate().fold(0, |mask, (i, bit)| mask | bit << i)
            };
            crate::device::diagnose(&format!(
                "helios-vk: PTX kernel {} ({}) bindings {} push {} reads {:#x} writes {:#x} workgroup {:?}\n",
                source.name.as_deref().unwrap_or("(unnamed)"),
                source.entry,
                source.access.len(),
                source.push_bytes,
                mask(|a| a.read),
                mask(|a| a.write),
                source.block,
            ));
        }
        Ok(Compiled {
            program: Program {
                kernel: Kernel::Function {
                    raw,
                    block: source.block,
                    shared_bytes: source.shared_bytes,
                    packed,
                },
                layout: Layout::default(),
            },
            device,
            access,
            // Addresses have no largest range, so nothing is checked against one.
            used: 0,
            everything: Access::NONE,
            born,
            _module: Some(module),
        })
    }

    /// The module of `data`, shared with other live kernels of it.
    fn module(&mut self, cuda: &cuda::Cuda, data: &Arc<[u8]>) -> Result<Arc<Module>> {
        if let Some(known) = self.modules.get(data).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let device = &self.device;
        let (call, bytes) = (cuda.module_call(), data.len() as u64);
        let raw = cuda.create_module(data).map_err(|result| {
            device.observe(match error::create(call, "PTX module", bytes)(result) {
                Error::Vulkan { call, result } => Error::Assembly { call, result },
                other => other,
            })
        })?;
        let module = Arc::new(Module {
            device: Arc::clone(device),
            raw,
        });
        self.modules.retain(|_, known| known.strong_count() > 0);
        self.modules
            .insert(Arc::clone(data), Arc::downgrade(&module));
        Ok(module)
    }
}

//! Pipelines: shaders in SPIR-V and kernels in PTX.

use napi::{Env, ValueType};
use napi_derive::napi;

use super::convert::{Arg, copied};
use super::raise::call;
use super::state;
use crate::error::{Error, Result};
use crate::pipeline::{Options, PtxKernel, Shader};
use crate::plan::decode::MAX_BINDINGS;
use crate::plan::hazard::Access;

/// A kernel in PTX, if the argument describes one.
fn ptx_kernel(kernel: Arg) -> Result<Option<PtxKernel>> {
    if kernel.kind() != ValueType::Object {
        return Ok(None);
    }
    let member = |name| kernel.member("kernel", name);
    let ptx = member("ptx")?;
    if ptx.missing() {
        return Ok(None);
    }
    let mut data = match ptx.kind() {
        ValueType::String => ptx.string("kernel.ptx")?.into_bytes(),
        _ => {
            let bytes = ptx.bytes("kernel.ptx").map_err(|error| match error {
                Error::Type { .. } => ptx.wrong("kernel.ptx", "a string or a Uint8Array"),
                other => other,
            })?;
            // SAFETY: copied at once, before a property is read, which may run JS.
            copied(unsafe { bytes.source() })?
        }
    };
    // The driver reads text up to its NUL.
    data.push(0);
    let entry = member("entry")?.string("kernel.entry")?;
    let bindings = member("bindings")?.integer("kernel.bindings", MAX_BINDINGS as u64)? as usize;
    let declared = member("access")?;
    let access = match declared.missing() {
        true => vec![Access::READ_WRITE; bindings],
        false => declared
            .list("kernel.access", bindings)?
            .into_iter()
            .enumerate()
            .map(|(i, access)| {
                let name = format!("kernel.access[{i}]");
                let expected = "'none', 'read', 'write' or 'readwrite'";
                match access.string(&name).ok().as_deref() {
                    Some("none") => Ok(Access::NONE),
                    Some("read") => Ok(Access::READ),
                    Some("write") => Ok(Access::WRITE),
                    Some("readwrite") => Ok(Access::READ_WRITE),
                    _ => Err(access.wrong(&name, expected)),
                }
            })
            .collect::<Result<_>>()?,
    };
    let push_bytes = member("pushBytes")?.u32_or("kernel.pushBytes", 0)?;
    let mut block = [0; 3];
    let sizes = member("workgroupSize")?.list("kernel.workgroupSize", block.len())?;
    for (i, (size, value)) in block.iter_mut().zip(sizes).enumerate() {
        *size = value.u32(&format!("kernel.workgroupSize[{i}]"))?;
    }
    let shared_bytes = member("sharedBytes")?.u32_or("kernel.sharedBytes", 0)?;
    let name = member("name")?;
    let name = match name.missing() {
        true => None,
        false => Some(name.string("kernel.name")?),
    };
    Ok(Some(PtxKernel {
        data: data.into(),
        entry,
        access,
        push_bytes,
        block,
        shared_bytes,
        name,
    }))
}

/// Compiles a compute shader: entry point `main`, `numBindings` storage buffers at set 0, `pushBytes` bytes of push
/// constants. Its SPIR-V says what it reads and writes. With `pushBytes` 0 the shader reads zeros as push constants,
/// whatever a dispatch passes.
///
/// Pipelines with equal SPIR-V, counts and options (the name too) share what the driver compiled, and one row in a
/// profile. Each call still returns its own handle, and destroying one leaves the others.
///
/// `options.specialization`: word i is the value of `constant_id` i. `requiredSubgroupSize` and `fullSubgroups` are as
/// in VK_EXT_subgroup_size_control. `name` shows in profiles and messages.
///
/// `createPipeline({ ptx, entry, bindings, … })`, with one argument, makes a kernel in PTX if the device runs those
/// (`hasPtx` of `initDevice`): see `PtxKernel` and docs/guide/writing-shaders.md. Its handle works in every call that
/// takes a pipeline. Throws `ERR_HELIOS_UNSUPPORTED` on other devices and in safe mode.
#[napi(
    js_name = "createPipeline",
    ts_args_type = "spirv: Uint32Array | PtxKernel, numBindings?: number, pushBytes?: number, options?: PipelineOptions",
    ts_return_type = "PipelineHandle"
)]
pub fn create_pipeline(
    env: &Env,
    spirv: Arg,
    num_bindings: Arg,
    push_bytes: Arg,
    options: Arg,
) -> napi::Result<i32> {
    call(env, "createPipeline", || {
        if let Some(kernel) = ptx_kernel(spirv)? {
            return state::with(|context| context.create_ptx_pipeline(kernel));
        }
        let words = spirv.words("spirv")?;
        let bindings = num_bindings.u32_or("numBindings", 4)?;
        let push_bytes = push_bytes.u32_or("pushBytes", 0)?;
        let parsed = match options.missing() {
            true => Options::default(),
            false if options.kind() != ValueType::Object => {
                return Err(options.wrong("options", "an object"));
            }
            false => options_of(options, "options")?,
        };
        let shader = Shader {
            spirv: words,
            bindings,
            push_bytes,
            options: parsed,
        };
        state::with(|context| context.create_pipeline(&shader))
    })
}

/// The properties of `PipelineOptions`. `name`: that of the object in messages.
fn options_of(object: Arg, name: &str) -> Result<Options> {
    let member = |of: &str| Ok::<_, Error>((object.member(name, of)?, format!("{name}.{of}")));
    let mut options = Options::default();
    let (specialization, of) = member("specialization")?;
    if !specialization.missing() {
        options.specialization = specialization.words(&of)?;
    }
    let (size, of) = member("requiredSubgroupSize")?;
    if !size.missing() {
        options.required_subgroup_size = Some(size.u32(&of)?);
    }
    let (full, of) = member("fullSubgroups")?;
    options.full_subgroups = full.flag_or(&of, false)?;
    let (own, of) = member("name")?;
    if !own.missing() {
        options.name = Some(own.string(&of)?);
    }
    Ok(options)
}

/// Most pipelines of a call.
const MAX_PIPELINES: u64 = 1 << 16;

/// `createPipeline` for several shaders, which the driver compiles on as many threads as the host has cores. All or
/// none: what one of them throws is thrown, and then no pipeline exists.
#[napi(
    js_name = "createPipelines",
    ts_args_type = "pipelines: PipelineDescription[]",
    ts_return_type = "PipelineHandle[]"
)]
pub fn create_pipelines(env: &Env, pipelines: Arg) -> napi::Result<Vec<i32>> {
    call(env, "createPipelines", || {
        if pipelines.kind() != ValueType::Object {
            return Err(pipelines.wrong("pipelines", "an array"));
        }
        let length = pipelines.member("pipelines", "length")?;
        let count = length.integer("pipelines.length", MAX_PIPELINES)?;
        let list = pipelines.list("pipelines", count as usize)?;
        let mut shaders = Vec::new();
        for (i, one) in list.into_iter().enumerate() {
            let name = format!("pipelines[{i}]");
            if one.kind() != ValueType::Object {
                return Err(one.wrong(&name, "an object"));
            }
            let member =
                |of: &str| Ok::<_, Error>((one.member(&name, of)?, format!("{name}.{of}")));
            let (spirv, of) = member("spirv")?;
            let spirv = spirv.words(&of)?;
            let (bindings, of) = member("bindings")?;
            let bindings = bindings.u32_or(&of, 4)?;
            let (push_bytes, of) = member("pushBytes")?;
            let push_bytes = push_bytes.u32_or(&of, 0)?;
            shaders.push(Shader {
                spirv,
                bindings,
                push_bytes,
                options: options_of(one, &name)?,
            });
        }
        state::with(|context| context.create_pipelines(&shaders))
    })
}

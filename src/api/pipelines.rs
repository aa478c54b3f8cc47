//! Pipelines: shaders in SPIR-V and kernels in PTX.

use napi::{Env, ValueType};
use napi_derive::napi;

use super::convert::{Arg, copied};
use super::raise::call;
use super::state;
use crate::error::{Error, Result};
use crate::pipeline::{Options, PtxKernel};
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
        let mut parsed = Options::default();
        if !options.missing() {
            if options.kind() != napi::ValueType::Object {
                return Err(options.wrong("options", "an object"));
            }
            let specialization = options.property("specialization")?;
            if !specialization.missing() {
                parsed.specialization = specialization.words("options.specialization")?;
            }
            let size = options.property("requiredSubgroupSize")?;
            if !size.missing() {
                parsed.required_subgroup_size = Some(size.u32("options.requiredSubgroupSize")?);
            }
            parsed.full_subgroups = options
                .property("fullSubgroups")?
                .flag_or("options.fullSubgroups", false)?;
            let name = options.property("name")?;
            if !name.missing() {
                parsed.name = Some(name.string("options.name")?);
            }
        }
        state::with(|context| context.create_pipeline(&words, bindings, push_bytes, &parsed))
    })
}

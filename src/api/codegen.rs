//! Kernels built from programs.

use std::ptr;

use napi::{Env, sys};
use napi_derive::napi;

use super::convert::Arg;
use super::raise::call;
use super::results;
use super::values::{Made, Object, Out, array, number};
use crate::context::Context;
use crate::error::Error;

/// Builds a compute shader from a program: what it computes for each element, as words in the format of
/// docs/design/codegen.md. Pass the result to `createPipeline(spirv, bindings, pushBytes)`. Equal words give equal
/// SPIR-V. Needs no device. Throws a RangeError that names the wrong word.
#[napi(
    js_name = "buildKernel",
    ts_args_type = "words: Uint32Array",
    ts_return_type = "Shader"
)]
pub fn build_kernel(env: &Env, words: Arg) -> napi::Result<Out> {
    call(env, "buildKernel", || {
        let len = words.bytes("words")?.len;
        if len > 4 * kernel_codegen::MAX_WORDS {
            let most = kernel_codegen::MAX_WORDS;
            let what = format!("must be at most {most} words, longer than any program");
            return Err(Error::range("words", what, format!("{len} bytes")));
        }
        let spirv = kernel_codegen::build(&words.words("words")?)?;
        shader_object(env.raw(), &spirv).map(Out)
    })
}

/// A JS object with a shader and what its pipeline needs to know.
pub(super) fn shader_object(env: sys::napi_env, spirv: &[u32]) -> Made {
    let reflection = Context::reflect(spirv)?;
    let bytes = size_of_val(spirv);
    let (buffer, data) = results::array_buffer(env, bytes)?;
    // SAFETY: the new ArrayBuffer has `bytes` bytes, as the shader has.
    unsafe { ptr::copy_nonoverlapping(spirv.as_ptr().cast(), data, bytes) };
    let kind = sys::TypedarrayType::uint32_array;
    let words = results::view(env, kind, spirv.len(), buffer)?;
    let size = reflection.workgroup_size.iter();
    let size = size.map(|&n| number(env, f64::from(n)));
    Object::new(env)
        .value("spirv", Ok(words))
        .integer("bindings", u64::from(reflection.bindings))
        .integer("pushBytes", u64::from(reflection.push_block_bytes))
        .value("workgroupSize", array(env, size))
        .integer("reads", u64::from(reflection.reads))
        .integer("writes", u64::from(reflection.writes))
        .done()
}

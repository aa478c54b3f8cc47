//! Modules compiled from GLSL, for what compilers emit. [`assembled`] has modules made by hand, for what they could
//! emit; [`random`] has random and damaged ones.

mod assembled;
mod random;

use super::*;
use glslang::{Compiler, CompilerOptions, ShaderInput, ShaderSource, ShaderStage, SourceLanguage};
use glslang::{ShaderMessage, SpirvVersion, Target, VulkanVersion};

/// What `f` returns, and how many joins its analyses made.
fn counting_joins<T>(f: impl FnOnce() -> T) -> (T, usize) {
    crate::flow::JOINS.set(0);
    let result = f();
    (result, crate::flow::JOINS.get())
}

pub(super) fn compile(spirv_version: SpirvVersion, source: &str) -> Vec<u32> {
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan {
            version: VulkanVersion::Vulkan1_3,
            spirv_version,
        },
        version_profile: None,
        messages: ShaderMessage::DEFAULT,
    };
    let source = ShaderSource::from(source);
    let none: Option<&[(&str, Option<&str>)]> = None;
    let input =
        ShaderInput::new(&source, ShaderStage::Compute, &options, none, None).expect("input");
    let shader = Compiler::acquire()
        .expect("glslang")
        .create_shader(input)
        .expect("GLSL parses");
    shader.compile().expect("GLSL compiles")
}

const EXTENSIONS: &str = "#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_EXT_shader_atomic_float : require
";
const BUFFERS: &str = "layout(set = 0, binding = 0) buffer A { float a[]; };
layout(set = 0, binding = 1) buffer B { float b[]; };
layout(set = 0, binding = 2) buffer C { float c[]; };
";

/// Reflects a shader of 32 invocations with the buffers a, b, c (bindings 0, 1, 2), further declarations `head` and the
/// body `main`, in which `i` is the invocation.
fn glsl(head: &str, main: &str) -> Reflection {
    let source = format!(
        "{EXTENSIONS}layout(local_size_x = 32) in;\n{BUFFERS}{head}\nvoid main() {{ uint i = gl_GlobalInvocationID.x; {main} }}"
    );
    reflect(&compile(SpirvVersion::SPIRV1_6, &source)).expect("reflects")
}

/// (reads, writes)
fn access(r: &Reflection) -> (u32, u32) {
    (r.reads, r.writes)
}

#[test]
fn plain_loads_and_stores() {
    let r = glsl("", "c[i] = a[i] + b[i];");
    assert_eq!((access(&r), r.bindings), ((0b011, 0b100), 3));
    assert_eq!(
        (r.workgroup_size, r.workgroup_size_ids),
        ([32, 1, 1], [None; 3])
    );
    assert_eq!(
        (r.push_bytes, r.push_block_bytes, r.shared_bytes),
        (0, 0, Some(0))
    );
    assert!(!r.address_reads && !r.address_writes);
    let r = glsl("", "a[i] += 1.0;");
    assert_eq!((access(&r), r.bindings), ((1, 1), 1));
}

#[test]
fn several_outputs_of_one_kernel() {
    assert_eq!(
        access(&glsl(
            "",
            "float x = a[i]; b[i] = x; if (i == 0u) c[0] = x;"
        )),
        (0b001, 0b110)
    );
}

#[test]
fn declared_but_unused_buffers_do_not_count() {
    let r = glsl("", "b[i] = 1.0;");
    assert_eq!((access(&r), r.bindings), ((0, 0b010), 2));
    assert_eq!(glsl("", "").bindings, 0);
}

#[test]
fn qualifiers_are_not_believed() {
    let head = "layout(binding = 3) readonly buffer D { float d[]; }; layout(binding = 4) writeonly buffer E { float e[]; };";
    assert_eq!(access(&glsl(head, "e[i] = d[i];")), (1 << 3, 1 << 4));
}

#[test]
fn length_is_not_a_read() {
    assert_eq!(access(&glsl("", "b[i] = float(a.length());")), (0, 0b010));
}

#[test]
fn function_parameters() {
    let head = "void set(out float x) { x = 1.0; } void bump(inout float x) { x += 1.0; }
        float get(in float x) { return x; }";
    assert_eq!(access(&glsl(head, "set(a[i]);")), (0, 0b001));
    assert_eq!(
        access(&glsl(head, "bump(a[i]); c[i] = get(b[i]);")),
        (0b011, 0b101)
    );
}

#[test]
fn nested_calls_and_uncalled_functions() {
    let head = "void inner(uint i) { c[i] = a[i]; } void outer(uint i) { inner(i + 1u); } void never(uint i) { b[i] = 1.0; }";
    assert_eq!(access(&glsl(head, "outer(i);")), (0b001, 0b100));
}

#[test]
fn structures_and_arrays_in_buffers() {
    let head = "struct S { vec3 v; mat2 m; float f[4]; }; layout(binding = 3) buffer D { uint n; S s[]; } d;
        layout(binding = 4) buffer E { S s[]; } e;";
    assert_eq!(access(&glsl(head, "e.s[i] = d.s[i];")), (1 << 3, 1 << 4));
    assert_eq!(
        access(&glsl(
            head,
            "e.s[i].m[1].x = 2.0; e.s[i].f[i & 3u] = d.s[0].v.y;"
        )),
        (1 << 3, 1 << 4)
    );
}

#[test]
fn atomics_read_and_write() {
    let head = "layout(binding = 3) buffer D { uint d[]; };";
    assert_eq!(
        access(&glsl(head, "atomicAdd(d[i], 1u);")),
        (1 << 3, 1 << 3)
    );
    let store =
        "atomicStore(d[i], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease);";
    assert_eq!(access(&glsl(head, store)), (0, 1 << 3));
    let load = "a[i] = float(atomicLoad(d[i], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire));";
    assert_eq!(access(&glsl(head, load)), (1 << 3, 1));
    assert_eq!(access(&glsl("", "atomicAdd(a[i], 1.0);")), (1, 1));
    assert_eq!(
        access(&glsl(head, "atomicCompSwap(d[i], 1u, 2u);")),
        (1 << 3, 1 << 3)
    );
}

#[test]
fn extended_instructions_with_pointers() {
    assert_eq!(
        access(&glsl(
            "",
            "float whole; b[i] = modf(a[i], whole); c[i] = whole;"
        )),
        (0b001, 0b110)
    );
    assert_eq!(access(&glsl("", "a[i] = sin(b[i]);")), (0b010, 0b001));
}

#[test]
fn two_variables_of_one_binding() {
    let head = "layout(binding = 0) buffer A4 { vec4 a4[]; };";
    assert_eq!(access(&glsl(head, "a4[i] = vec4(b[i]);")), (0b010, 0b001));
    assert_eq!(
        access(&glsl(head, "b[i] = a4[i].x; a[i] = 0.0;")),
        (0b001, 0b011)
    );
}

#[test]
fn shared_memory_is_counted_and_no_buffer_access() {
    let head =
        "shared float tile[32][33]; shared float16_t half16[3]; shared uint unused_words[1000];";
    let r = glsl(
        head,
        "tile[i][0] = a[i]; half16[0] = float16_t(1.0); barrier(); b[i] = tile[0][i] + float(half16[0]);",
    );
    assert_eq!(
        (access(&r), r.shared_bytes),
        ((0b001, 0b010), Some(32 * 33 * 4 + 6))
    );
}

const MATRICES: &str = "#define M coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
    #define ACC coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
    layout(binding = 3) buffer D { float16_t d[]; }; layout(binding = 4) buffer E { float16_t e[]; };";

#[test]
fn cooperative_matrices() {
    let main = "M m; coopMatLoad(m, d, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
        coopMatStore(m, e, 0, 16, gl_CooperativeMatrixLayoutRowMajor);";
    let r = glsl(MATRICES, main);
    assert_eq!(access(&r), (1 << 3, 1 << 4));
    assert!(r.uses_cooperative_matrix && r.capabilities.contains(&6022));
    assert!(
        r.extensions
            .iter()
            .any(|e| e == "SPV_KHR_cooperative_matrix"),
        "{:?}",
        r.extensions
    );
    assert!(!glsl("", "a[i] = 0.0;").uses_cooperative_matrix);
}

#[test]
fn tensor_loads_stores_and_callbacks() {
    let layout =
        "tensorLayoutNV<2> t = createTensorLayoutNV(2); t = setTensorLayoutDimensionNV(t, 64, 64);
        t = sliceTensorLayoutNV(t, 0, 16, 0, 16);";
    let main = format!(
        "{layout} ACC m; coopMatLoadTensorNV(m, a, 0, t); coopMatStoreTensorNV(m, b, 0, t);"
    );
    assert_eq!(access(&glsl(MATRICES, &main)), (0b001, 0b010));

    // What the callbacks touch counts only if they are used.
    let head = format!(
        "{MATRICES}
        float each(const in uint row, const in uint col, const in float x, const in float s) {{ c[row] = x; return x * s; }}
        float combine(const in float x, const in float y) {{ return x + y + b[0]; }}"
    );
    let main = "ACC m = ACC(1.0); coopMatPerElementNV(m, m, each, 2.0);
        coopMatStore(m, a, 0, 16, gl_CooperativeMatrixLayoutRowMajor);";
    assert_eq!(access(&glsl(&head, main)), (0, 0b101));
    let main = "ACC m = ACC(1.0); coopMatReduceNV(m, m, gl_CooperativeMatrixReduceRowNV, combine);
        coopMatStore(m, a, 0, 16, gl_CooperativeMatrixLayoutRowMajor);";
    assert_eq!(access(&glsl(&head, main)), (0b010, 0b001));
}

#[test]
fn decode_functions_read_the_loaded_buffer_only() {
    let head = format!(
        "{MATRICES}
        layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Block {{ float v[4]; }};
        float decode(const in Block p, const in uint at[2], const in uint inside[2]) {{ return p.v[inside[1]] * 2.0; }}"
    );
    let main =
        "tensorLayoutNV<2> t = createTensorLayoutNV(2); t = setTensorLayoutBlockSizeNV(t, 1, 4);
        t = setTensorLayoutDimensionNV(t, 64, 64); t = sliceTensorLayoutNV(t, 0, 16, 0, 16);
        ACC m; coopMatLoadTensorNV(m, a, 0, t, decode); coopMatStoreTensorNV(m, b, 0, t);";
    let r = glsl(&head, main);
    assert_eq!(access(&r), (0b001, 0b010));
    assert!(!r.address_reads && !r.address_writes);
}

#[test]
fn device_addresses() {
    let head = "layout(buffer_reference, std430) buffer R { float x[]; };
        struct Args { R from; R to; uint n; };
        layout(push_constant) uniform P { R from; R to; uvec2 raw; uint n; } p;
        layout(binding = 3) buffer D { Args args[]; };";
    let address = |r: &Reflection| (r.address_reads, r.address_writes);
    let r = glsl(head, "p.to.x[i] = 1.0;");
    assert_eq!(
        (address(&r), access(&r), r.push_bytes, r.push_block_bytes),
        ((false, true), (0, 0), 16, 28)
    );
    let r = glsl(head, "a[i] = p.from.x[i];");
    assert_eq!(
        (address(&r), access(&r), r.push_bytes),
        ((true, false), (0, 1), 8)
    );
    assert_eq!(
        address(&glsl(head, "R r = R(p.raw); r.x[i] = 1.0;")),
        (false, true)
    );
    assert_eq!(
        address(&glsl(head, "a[i] = float(uint64_t(p.from));")),
        (false, false)
    );
    // Structures of addresses in a buffer: passing an address on is not an access through it.
    let r = glsl(head, "Args v = args[i]; v.to.x[i] = v.from.x[i];");
    assert_eq!((address(&r), access(&r)), ((true, true), (1 << 3, 0)));
    let r = glsl(head, "args[i].from = p.from;");
    assert_eq!((address(&r), access(&r)), ((false, false), (0, 1 << 3)));
    let call = format!("{head} void put(R r, float v) {{ r.x[0] = v; }}");
    let r = glsl(&call, "put(p.to, a[i]);");
    assert_eq!((address(&r), access(&r)), ((false, true), (1, 0)));
}

#[test]
fn push_constants() {
    let head = "layout(push_constant) uniform P { uint n; layout(offset = 16) vec4 v; mat3 m; float f[4]; } p;";
    let ends = |main: &str| {
        let r = glsl(head, main);
        (r.push_bytes, r.push_block_bytes)
    };
    assert_eq!(ends("a[i] = float(p.n);"), (4, 96));
    assert_eq!(ends("a[i] = p.v.y;"), (24, 96));
    assert_eq!(ends("a[i] = p.v[i];"), (32, 96));
    assert_eq!(ends("a[i] = p.f[2];"), (92, 96));
    assert_eq!(ends("a[i] = p.f[i];"), (96, 96));
    assert_eq!(ends("a[i] = p.m[0].x;").1, 96);
    assert!((36..=80).contains(&ends("a[i] = p.m[0].x;").0));
    assert_eq!(ends("a[i] = 0.0;"), (0, 0));
}

#[test]
fn specialization() {
    let source = format!(
        "#version 460
        layout(local_size_x = 8, local_size_y = 4, local_size_x_id = 0, local_size_z_id = 5) in;
        layout(constant_id = 1) const uint N = 10; layout(constant_id = 2) const bool WIDE = false;
        {BUFFERS} shared float tile[gl_WorkGroupSize.x * 2u + N]; shared float more[WIDE ? 7 : 3];
        void main() {{ tile[0] = a[0]; more[0] = 1.0; barrier(); b[0] = tile[1] + more[1]; }}"
    );
    for version in [SpirvVersion::SPIRV1_3, SpirvVersion::SPIRV1_6] {
        let words = compile(version, &source);
        let r = reflect(&words).unwrap();
        assert_eq!(
            (r.workgroup_size, r.workgroup_size_ids),
            ([8, 4, 1], [Some(0), None, Some(5)])
        );
        assert_eq!(r.shared_bytes, Some((16 + 10 + 3) * 4));
        let r = reflect_with(&words, &[64, 1, 1, 0, 0, 2]).unwrap();
        assert_eq!(
            (r.workgroup_size, r.workgroup_size_ids),
            ([64, 4, 2], [Some(0), None, Some(5)])
        );
        assert_eq!(r.shared_bytes, Some((128 + 1 + 7) * 4));
        assert_eq!(access(&r), (0b001, 0b010));
    }
}

#[test]
fn storage_buffers_of_spirv_1_0() {
    let source = format!(
        "#version 450\nlayout(local_size_x = 1) in; {BUFFERS} void main() {{ b[0] = a[0]; }}"
    );
    let words = compile(SpirvVersion::SPIRV1_0, &source);
    assert_eq!(access(&reflect(&words).unwrap()), (0b001, 0b010));
}

#[test]
fn unsupported_resources() {
    let error = |head: &str, main: &str| {
        let source =
            format!("#version 460\nlayout(local_size_x = 1) in; {head} void main() {{ {main} }}");
        reflect(&compile(SpirvVersion::SPIRV1_6, &source))
            .expect_err("is refused")
            .to_string()
    };
    let buffer = "layout(set = 0, binding = 0) buffer A { float a[]; };";
    let check =
        |text: String, parts: &[&str]| assert!(parts.iter().all(|p| text.contains(p)), "{text}");
    check(
        error(
            &format!("{buffer} layout(binding = 1) uniform U {{ float u; }};"),
            "a[0] = u;",
        ),
        &["word ", "a uniform buffer"],
    );
    check(
        error(
            &format!("{buffer} layout(binding = 1) uniform sampler2D s;"),
            "a[0] = texelFetch(s, ivec2(0), 0).x;",
        ),
        &["OpTypeSampledImage"],
    );
    check(
        error(
            "layout(binding = 1, r32f) uniform image2D s;",
            "imageStore(s, ivec2(0), vec4(0));",
        ),
        &["OpTypeImage"],
    );
    check(
        error(
            "layout(set = 2, binding = 0) buffer A { float a[]; };",
            "a[0] = 1.0;",
        ),
        &["descriptor set 2"],
    );
    check(
        error(
            "layout(binding = 32) buffer A { float a[]; };",
            "a[0] = 1.0;",
        ),
        &["binding 32", "0 to 31"],
    );
    check(
        error(
            "layout(binding = 0) buffer A { float a[]; } x[2];",
            "x[1].a[0] = 1.0;",
        ),
        &["an array of buffers"],
    );
    // Declared but unused resources are not the pipeline's concern.
    let unused = format!(
        "#version 460\nlayout(local_size_x = 1) in; {buffer} layout(set = 3, binding = 40) uniform U {{ float u; }}; void main() {{ a[0] = 1.0; }}"
    );
    assert_eq!(
        access(&reflect(&compile(SpirvVersion::SPIRV1_3, &unused)).unwrap()),
        (0, 1)
    );
}

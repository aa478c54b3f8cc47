//! Modules compiled from GLSL for what producers emit, modules assembled by hand for what they could.

use super::*;
use glslang::{Compiler, CompilerOptions, ShaderInput, ShaderSource, ShaderStage, SourceLanguage};
use glslang::{ShaderMessage, SpirvVersion, Target, VulkanVersion};
use proptest::prelude::*;
use rspirv::spirv::Op;
use std::time::{Duration, Instant};

fn compile(spirv_version: SpirvVersion, source: &str) -> Vec<u32> {
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

/// Reflects a shader of 32 invocations with the buffers a, b, c (bindings 0, 1, 2), further declarations
/// `head` and the body `main`, in which `i` is the invocation.
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

    // What the callbacks touch counts, and only if they are used.
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
    // Structures of addresses in a buffer; handing an address on is no access through it.
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
    // Declared but not used: no need of the pipeline.
    let unused = format!(
        "#version 460\nlayout(local_size_x = 1) in; {buffer} layout(set = 3, binding = 40) uniform U {{ float u; }}; void main() {{ a[0] = 1.0; }}"
    );
    assert_eq!(
        access(&reflect(&compile(SpirvVersion::SPIRV1_3, &unused)).unwrap()),
        (0, 1)
    );
}

/// A module in the making, with one float-array storage buffer per binding.
struct Asm {
    head: Vec<u32>,
    globals: Vec<u32>,
    body: Vec<u32>,
    next: u32,
}

/// Fixed ids of [`Asm`].
mod id {
    pub const MAIN: u32 = 1;
    pub const VOID: u32 = 2;
    pub const FN: u32 = 3;
    pub const FLOAT: u32 = 4;
    pub const UINT: u32 = 5;
    pub const ZERO: u32 = 6;
    pub const ONE_F: u32 = 7;
    pub const BLOCK: u32 = 9;
    /// Pointer to the whole block, to a float in a storage buffer.
    pub const P_BLOCK: u32 = 10;
    pub const P_FLOAT: u32 = 11;
    pub const BOOL: u32 = 12;
    pub const TRUE: u32 = 13;
    /// Function variable that holds a P_FLOAT.
    pub const PP_FLOAT: u32 = 14;
    pub const BUFFERS: u32 = 20;
}

fn put(out: &mut Vec<u32>, op: u16, operands: &[u32]) {
    out.push((operands.len() as u32 + 1) << 16 | u32::from(op));
    out.extend_from_slice(operands);
}

impl Asm {
    fn new(buffers: u32) -> Self {
        use id::*;
        let mut a = Self {
            head: vec![0x0723_0203, 0x0001_0600, 0, 0, 0],
            globals: vec![],
            body: vec![],
            next: 100,
        };
        put(&mut a.head, Op::Capability as u16, &[1]);
        put(&mut a.head, Op::MemoryModel as u16, &[0, 1]);
        put(
            &mut a.head,
            Op::EntryPoint as u16,
            &[5, MAIN, u32::from_le_bytes(*b"main"), 0],
        );
        put(&mut a.head, Op::ExecutionMode as u16, &[MAIN, 17, 4, 2, 1]);
        put(&mut a.head, Op::Decorate as u16, &[BLOCK, 2]);
        put(&mut a.head, Op::MemberDecorate as u16, &[BLOCK, 0, 35, 0]);
        for i in 0..buffers {
            put(&mut a.head, Op::Decorate as u16, &[BUFFERS + i, 34, 0]);
            put(&mut a.head, Op::Decorate as u16, &[BUFFERS + i, 33, i]);
        }
        a.global(Op::TypeVoid, &[VOID]);
        a.global(Op::TypeFunction, &[FN, VOID]);
        a.global(Op::TypeFloat, &[FLOAT, 32]);
        a.global(Op::TypeInt, &[UINT, 32, 0]);
        a.global(Op::TypeBool, &[BOOL]);
        a.global(Op::ConstantTrue, &[BOOL, TRUE]);
        a.global(Op::Constant, &[UINT, ZERO, 0]);
        a.global(Op::Constant, &[FLOAT, ONE_F, 1.0f32.to_bits()]);
        a.global(Op::TypeRuntimeArray, &[8, FLOAT]);
        a.global(Op::TypeStruct, &[BLOCK, 8]);
        a.global(Op::TypePointer, &[P_BLOCK, 12, BLOCK]);
        a.global(Op::TypePointer, &[P_FLOAT, 12, FLOAT]);
        a.global(Op::TypePointer, &[PP_FLOAT, 7, P_FLOAT]);
        for i in 0..buffers {
            a.global(Op::Variable, &[P_BLOCK, BUFFERS + i, 12]);
        }
        a
    }

    fn global(&mut self, op: Op, operands: &[u32]) {
        put(&mut self.globals, op as u16, operands);
    }

    fn op(&mut self, op: Op, operands: &[u32]) {
        put(&mut self.body, op as u16, operands);
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// An instruction with result type and result id.
    fn value(&mut self, op: Op, ty: u32, operands: &[u32]) -> u32 {
        let id = self.id();
        let words: Vec<u32> = [&[ty, id], operands].concat();
        self.op(op, &words);
        id
    }

    /// Pointer to a float in buffer `i`.
    fn element(&mut self, i: u32) -> u32 {
        self.value(
            Op::AccessChain,
            id::P_FLOAT,
            &[id::BUFFERS + i, id::ZERO, id::ZERO],
        )
    }

    fn begin(&mut self, function: u32) {
        self.op(Op::Function, &[id::VOID, function, 0, id::FN]);
        let label = self.id();
        self.op(Op::Label, &[label]);
    }

    fn end(&mut self) {
        self.op(Op::Return, &[]);
        self.op(Op::FunctionEnd, &[]);
    }

    fn words(&self) -> Vec<u32> {
        let mut words = [self.head.as_slice(), &self.globals, &self.body].concat();
        words[3] = self.next + 1;
        words
    }
}

/// Reflects a module of four buffers whose main is `build`.
fn assembled(build: impl FnOnce(&mut Asm)) -> Result<Reflection, ReflectError> {
    let mut a = Asm::new(4);
    a.begin(id::MAIN);
    build(&mut a);
    a.end();
    reflect(&a.words())
}

fn masks(build: impl FnOnce(&mut Asm)) -> (u32, u32) {
    access(&assembled(build).expect("reflects"))
}

#[test]
fn selected_and_merged_pointers() {
    let select = masks(|a| {
        let (x, y) = (a.element(0), a.element(2));
        let p = a.value(Op::Select, id::P_FLOAT, &[id::TRUE, x, y]);
        a.op(Op::Store, &[p, id::ONE_F]);
    });
    assert_eq!(select, (0, 0b101));
    // A loop of phis: each takes the other's value.
    let phi = masks(|a| {
        let (x, y) = (a.element(1), a.element(3));
        let (p, q, label) = (a.id(), a.id(), a.id());
        a.op(Op::Label, &[label]);
        a.op(Op::Phi, &[id::P_FLOAT, p, x, label, q, label]);
        a.op(Op::Phi, &[id::P_FLOAT, q, y, label, p, label]);
        a.value(Op::Load, id::FLOAT, &[p]);
        let r = a.value(Op::PtrAccessChain, id::P_FLOAT, &[q, id::ZERO]);
        let r = a.value(Op::CopyObject, id::P_FLOAT, &[r]);
        a.value(
            Op::AtomicExchange,
            id::FLOAT,
            &[r, id::ZERO, id::ZERO, id::ONE_F],
        );
    });
    assert_eq!(phi, (0b1010, 0b1010));
}

#[test]
fn pointers_kept_in_variables() {
    // Stored after the load in program order, as in a loop; each variable keeps its own.
    let r = masks(|a| {
        let v = a.value(Op::Variable, id::PP_FLOAT, &[7]);
        let w = a.value(Op::Variable, id::PP_FLOAT, &[7]);
        let p = a.value(Op::Load, id::P_FLOAT, &[v]);
        a.op(Op::Store, &[p, id::ONE_F]);
        let (x, y) = (a.element(1), a.element(2));
        a.op(Op::Store, &[v, x]);
        a.op(Op::Store, &[w, y]);
        let q = a.value(Op::Load, id::P_FLOAT, &[w]);
        a.value(Op::Load, id::FLOAT, &[q]);
    });
    assert_eq!(r, (0b100, 0b010));
    // Copied from variable to variable, beyond as many as have a bit of their own.
    let r = masks(|a| {
        let vs: Vec<u32> = (0..40)
            .map(|_| a.value(Op::Variable, id::PP_FLOAT, &[7]))
            .collect();
        for pair in vs.windows(2) {
            a.op(Op::CopyMemory, &[pair[1], pair[0]]);
        }
        let x = a.element(3);
        a.op(Op::Store, &[vs[0], x]);
        let p = a.value(Op::Load, id::P_FLOAT, &[vs[39]]);
        a.op(Op::Store, &[p, id::ONE_F]);
    });
    assert_eq!(r, (0, 0b1000));
}

#[test]
fn copy_memory() {
    let r = masks(|a| {
        let (x, y) = (a.element(0), a.element(1));
        a.op(Op::CopyMemory, &[y, x]);
    });
    assert_eq!(r, (0b01, 0b10));
    let r = masks(|a| {
        let (x, y) = (a.element(3), a.element(2));
        a.op(Op::CopyMemorySized, &[y, x, id::ONE_F]);
    });
    assert_eq!(r, (0b1000, 0b0100));
}

/// Functions that take and return pointers to storage buffers.
#[test]
fn pointers_through_calls() {
    let mut a = Asm::new(4);
    let (take, give) = (a.id(), a.id());
    let (take_type, give_type) = (a.id(), a.id());
    a.global(Op::TypeFunction, &[take_type, id::VOID, id::P_FLOAT]);
    a.global(Op::TypeFunction, &[give_type, id::P_FLOAT, id::P_FLOAT]);
    a.begin(id::MAIN);
    let (x, y) = (a.element(0), a.element(2));
    a.value(Op::FunctionCall, id::VOID, &[take, x]);
    let p = a.value(Op::FunctionCall, id::P_FLOAT, &[give, y]);
    a.value(Op::Load, id::FLOAT, &[p]);
    a.end();
    a.op(Op::Function, &[id::VOID, take, 0, take_type]);
    let p = a.value(Op::FunctionParameter, id::P_FLOAT, &[]);
    let label = a.id();
    a.op(Op::Label, &[label]);
    a.op(Op::Store, &[p, id::ONE_F]);
    a.end();
    a.op(Op::Function, &[id::P_FLOAT, give, 0, give_type]);
    let p = a.value(Op::FunctionParameter, id::P_FLOAT, &[]);
    let label = a.id();
    a.op(Op::Label, &[label]);
    a.op(Op::ReturnValue, &[p]);
    a.op(Op::FunctionEnd, &[]);
    assert_eq!(access(&reflect(&a.words()).unwrap()), (0b100, 0b001));
}

#[test]
fn unreachable_functions_do_not_count() {
    let mut a = Asm::new(4);
    a.begin(id::MAIN);
    let x = a.element(0);
    a.op(Op::Store, &[x, id::ONE_F]);
    a.end();
    let other = a.id();
    a.begin(other);
    let x = a.element(3);
    a.op(Op::Store, &[x, id::ONE_F]);
    a.end();
    let r = reflect(&a.words()).unwrap();
    assert_eq!((access(&r), r.bindings), ((0, 1), 1));
}

#[test]
fn recursion_ends() {
    let r = masks(|a| {
        a.value(Op::FunctionCall, id::VOID, &[id::MAIN]);
        let x = a.element(1);
        a.op(Op::Store, &[x, id::ONE_F]);
    });
    assert_eq!(r, (0, 0b10));
}

const UNKNOWN_OPCODE: u16 = 0x7abc;

#[test]
fn unknown_instructions_are_believed_capable_of_anything() {
    let r = masks(|a| {
        let x = a.element(1);
        put(&mut a.body, UNKNOWN_OPCODE, &[x, 77]);
    });
    assert_eq!(r, (0b10, 0b10));
    // The pointer lies in a variable that is handed over.
    let r = masks(|a| {
        let v = a.value(Op::Variable, id::PP_FLOAT, &[7]);
        let x = a.element(2);
        a.op(Op::Store, &[v, x]);
        put(&mut a.body, UNKNOWN_OPCODE, &[v]);
    });
    assert_eq!(r, (0b100, 0b100));
    // It makes a pointer: a store through that may go anywhere, to any buffer that main names.
    let r = masks(|a| {
        let x = a.element(0);
        a.value(Op::Load, id::FLOAT, &[x]);
        let made = a.id();
        put(&mut a.body, UNKNOWN_OPCODE, &[id::P_FLOAT, made, id::ZERO]);
        a.op(Op::Store, &[made, id::ONE_F]);
    });
    assert_eq!(r, (1, 1));
    // It stores our pointer into our variable.
    let r = masks(|a| {
        let v = a.value(Op::Variable, id::PP_FLOAT, &[7]);
        let x = a.element(3);
        put(&mut a.body, UNKNOWN_OPCODE, &[v]);
        let p = a.value(Op::Load, id::P_FLOAT, &[v]);
        a.op(Op::Store, &[p, id::ONE_F]);
        a.value(Op::Load, id::FLOAT, &[x]);
    });
    assert_eq!(r, (0b1000, 0b1000));
    // Without pointers it does nothing.
    let r = masks(|a| put(&mut a.body, UNKNOWN_OPCODE, &[id::ONE_F, id::ZERO]));
    assert_eq!(r, (0, 0));
}

#[test]
fn unknown_callbacks_get_the_pointers() {
    let mut a = Asm::new(4);
    let (callback, ty) = (a.id(), a.id());
    a.global(Op::TypeFunction, &[ty, id::VOID, id::PP_FLOAT]);
    a.begin(id::MAIN);
    let v = a.value(Op::Variable, id::PP_FLOAT, &[7]);
    let x = a.element(1);
    a.op(Op::Store, &[v, x]);
    put(&mut a.body, UNKNOWN_OPCODE, &[callback, v]);
    a.end();
    a.op(Op::Function, &[id::VOID, callback, 0, ty]);
    a.value(Op::FunctionParameter, id::PP_FLOAT, &[]);
    let label = a.id();
    a.op(Op::Label, &[label]);
    let y = a.element(3);
    a.op(Op::Store, &[y, id::ONE_F]);
    a.end();
    assert_eq!(access(&reflect(&a.words()).unwrap()), (0b0010, 0b1010));
}

#[test]
fn pointers_of_no_known_origin() {
    let r = masks(|a| {
        let x = a.element(1);
        a.value(Op::Load, id::FLOAT, &[x]);
        let p = a.value(Op::Undef, id::P_FLOAT, &[]);
        a.op(Op::Store, &[p, id::ONE_F]);
    });
    assert_eq!(r, (0b10, 0b10));
}

#[test]
fn untyped_pointers() {
    let mut a = Asm::new(4);
    let pointer = a.id();
    let buffer = a.id();
    a.global(Op::TypeUntypedPointerKHR, &[pointer, 12]);
    a.global(Op::UntypedVariableKHR, &[pointer, buffer, 12, id::BLOCK]);
    put(&mut a.head, Op::Decorate as u16, &[buffer, 34, 0]);
    put(&mut a.head, Op::Decorate as u16, &[buffer, 33, 7]);
    a.begin(id::MAIN);
    let p = a.value(
        Op::UntypedAccessChainKHR,
        pointer,
        &[id::BLOCK, buffer, id::ZERO, id::ZERO],
    );
    a.value(
        Op::UntypedArrayLengthKHR,
        id::UINT,
        &[id::BLOCK, id::BUFFERS, 0],
    );
    a.op(Op::Store, &[p, id::ONE_F]);
    a.end();
    let r = reflect(&a.words()).unwrap();
    assert_eq!((access(&r), r.bindings), ((0, 1 << 7), 8));
}

#[test]
fn decoration_groups() {
    let mut a = Asm::new(0);
    let (group, buffer) = (a.id(), a.id());
    put(&mut a.head, Op::Decorate as u16, &[group, 34, 0]);
    put(&mut a.head, Op::Decorate as u16, &[group, 33, 5]);
    put(&mut a.head, Op::DecorationGroup as u16, &[group]);
    put(&mut a.head, Op::GroupDecorate as u16, &[group, buffer]);
    a.global(Op::Variable, &[id::P_BLOCK, buffer, 12]);
    a.begin(id::MAIN);
    let p = a.value(Op::AccessChain, id::P_FLOAT, &[buffer, id::ZERO, id::ZERO]);
    a.op(Op::Store, &[p, id::ONE_F]);
    a.end();
    assert_eq!(access(&reflect(&a.words()).unwrap()), (0, 1 << 5));
}

#[test]
fn debug_information_is_no_access() {
    let mut a = Asm::new(4);
    let set = a.id();
    let name: Vec<u32> = b"NonSemantic.X\0\0\0"
        .chunks(4)
        .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
        .collect();
    put(
        &mut a.head,
        Op::ExtInstImport as u16,
        &[&[set], name.as_slice()].concat(),
    );
    a.begin(id::MAIN);
    a.value(
        Op::ExtInst,
        id::VOID,
        &[set, 1, id::BUFFERS, id::BUFFERS + 3],
    );
    a.end();
    let r = reflect(&a.words()).unwrap();
    assert_eq!((access(&r), r.bindings), ((0, 0), 0));
}

#[test]
fn malformed_modules() {
    let good = {
        let mut a = Asm::new(1);
        a.begin(id::MAIN);
        let x = a.element(0);
        a.op(Op::Store, &[x, id::ONE_F]);
        a.end();
        a.words()
    };
    assert!(reflect(&good).is_ok());
    assert_eq!(reflect(&[]), Err(ReflectError::Header { words: 0 }));
    assert_eq!(reflect(&good[..3]), Err(ReflectError::Header { words: 3 }));
    assert_eq!(
        reflect(&[1, 2, 3, 4, 5]),
        Err(ReflectError::Magic { found: 1 })
    );
    let swapped: Vec<u32> = good.iter().map(|w| w.swap_bytes()).collect();
    assert_eq!(reflect(&swapped), Err(ReflectError::ByteSwapped));
    assert!(matches!(
        reflect(&good[..5]),
        Err(ReflectError::NoEntryPoint { .. })
    ));
    for length in 6..good.len() {
        assert!(reflect(&good[..length]).is_err(), "cut to {length} words");
    }
    let change = |f: &dyn Fn(&mut Vec<u32>)| {
        let mut words = good.clone();
        f(&mut words);
        reflect(&words).expect_err("is malformed").to_string()
    };
    // The store is the last but two instructions: Store (3 words), Return, FunctionEnd.
    let store = good.len() - 5;
    let text = change(&|w| w[store + 1] = 5000);
    assert_eq!(
        text,
        format!(
            "word {store}: OpStore uses id 5000, outside 1..{}, the module's bound",
            good[3]
        )
    );
    assert!(change(&|w| w[store + 1] = 0).contains("id 0"));
    assert!(change(&|w| w[store] = 9 << 16 | 62).contains("5 are left"));
    assert!(change(&|w| w[store] &= 0xffff).contains("length of 0 words"));
    assert!(change(&|w| *w.last_mut().unwrap() = 1 << 16 | 253).contains("no OpFunctionEnd"));
    let short = change(&|w| {
        w[store] = 2 << 16 | 62;
        w[store + 2] = 1 << 16;
    });
    assert_eq!(
        short,
        format!("word {store}: OpStore has 2 words, too few for its operands")
    );
    let text = assembled(|a| a.op(Op::Label, &[id::FLOAT]))
        .expect_err("is malformed")
        .to_string();
    assert!(text.contains("defined twice"), "{text}");
    let text = assembled(|a| {
        a.value(Op::FunctionCall, id::VOID, &[id::FLOAT]);
    });
    assert!(
        text.expect_err("is malformed")
            .to_string()
            .contains("which is no function")
    );
    let text = change(&|w| {
        let at = w
            .iter()
            .position(|&x| x == u32::from_le_bytes(*b"main"))
            .unwrap();
        w[at] = u32::from_le_bytes(*b"mian");
    });
    assert_eq!(
        text,
        "no GLCompute entry point named \"main\" (the module has: GLCompute \"mian\")"
    );
}

#[test]
fn undecorated_buffers_are_refused() {
    let mut a = Asm::new(0);
    a.global(Op::Variable, &[id::P_BLOCK, id::BUFFERS, 12]);
    a.begin(id::MAIN);
    let x = a.element(0);
    a.op(Op::Store, &[x, id::ONE_F]);
    a.end();
    let text = reflect(&a.words()).expect_err("is refused").to_string();
    assert!(text.contains("no DescriptorSet decoration"), "{text}");
}

/// Chains that a sweep in program order would need one pass per link for.
#[test]
fn long_chains_take_linear_time() {
    const N: u32 = 100_000;
    let mut a = Asm::new(4);
    a.begin(id::MAIN);
    let first = a.id();
    a.next += N;
    for i in 0..N {
        a.op(Op::CopyObject, &[id::P_FLOAT, first + i, first + i + 1]);
    }
    a.op(
        Op::AccessChain,
        &[id::P_FLOAT, first + N, id::BUFFERS + 1, id::ZERO, id::ZERO],
    );
    a.op(Op::Store, &[first, id::ONE_F]);
    // As many variables, each loaded and stored through pointers to all of them.
    let mut joined = a.value(Op::Variable, id::PP_FLOAT, &[7]);
    for _ in 0..N / 4 {
        let v = a.value(Op::Variable, id::PP_FLOAT, &[7]);
        joined = a.value(Op::Select, id::PP_FLOAT, &[id::TRUE, joined, v]);
        let p = a.value(Op::Load, id::P_FLOAT, &[joined]);
        a.op(Op::Store, &[joined, p]);
    }
    // One instruction that names functions and pointers alike, thousands of times.
    put(
        &mut a.body,
        UNKNOWN_OPCODE,
        &[[id::MAIN, id::ONE_F]; 30_000].concat(),
    );
    a.end();
    let start = Instant::now();
    assert_eq!(access(&reflect(&a.words()).unwrap()), (0, 0b10));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

/// Modules to mutate: one from GLSL with most of what is modelled, one by hand.
fn seeds() -> Vec<Vec<u32>> {
    let head = "layout(buffer_reference, std430) buffer R { float x[]; }; shared float tile[64];
        layout(constant_id = 3) const uint N = 4; shared float more[N * 3u];
        layout(push_constant) uniform P { R from; mat3 m; uint n; } p;
        float each(const in uint r, const in uint c0, const in float x) { c[r] = x; return x; }
        void set(out float x) { x = p.from.x[0]; }";
    let main = "coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> m;
        coopMatLoad(m, a, 0, 16, gl_CooperativeMatrixLayoutRowMajor); coopMatPerElementNV(m, m, each);
        coopMatStore(m, b, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
        tile[i] = p.m[1].x; more[0] = 1.0; atomicAdd(a[i], 1.0); set(b[i]); c[i] = tile[i] + more[1];";
    let source = format!(
        "{EXTENSIONS}layout(local_size_x_id = 0) in;\n{BUFFERS}{head}\nvoid main() {{ uint i = gl_GlobalInvocationID.x; {main} }}"
    );
    let mut a = Asm::new(4);
    a.begin(id::MAIN);
    let v = a.value(Op::Variable, id::PP_FLOAT, &[7]);
    let (x, y) = (a.element(0), a.element(3));
    let p = a.value(Op::Select, id::P_FLOAT, &[id::TRUE, x, y]);
    a.op(Op::Store, &[v, p]);
    let q = a.value(Op::Load, id::P_FLOAT, &[v]);
    a.op(Op::CopyMemory, &[q, x]);
    put(&mut a.body, UNKNOWN_OPCODE, &[v, id::MAIN]);
    a.end();
    vec![compile(SpirvVersion::SPIRV1_6, &source), a.words()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Damaged modules give an error or an answer, at once.
    #[test]
    fn damaged_modules_never_panic(
        which in 0usize..2,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u32..6, any::<u32>()), 0..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
        specialization in prop::collection::vec(any::<u32>(), 0..6),
    ) {
        thread_local!(static SEEDS: Vec<Vec<u32>> = seeds());
        let mut words = SEEDS.with(|s| s[which].clone());
        for (at, how, value) in changes {
            let at = at.index(words.len());
            words[at] = match how {
                0 => value,
                1 => words[at] ^ (1 << (value % 32)),
                2 => value % 128,
                3 => words[value as usize % words.len()],
                4 => words[at].wrapping_add(value % 5).wrapping_sub(2),
                _ => (words[at] & 0xffff_0000) | (value % 6500),
            };
        }
        if let Some(cut) = cut {
            words.truncate(cut.index(words.len()));
        }
        let start = Instant::now();
        let _ = reflect_with(&words, &specialization);
        prop_assert!(start.elapsed() < Duration::from_secs(1));
    }

    /// Words that never were a module.
    #[test]
    fn noise_never_panics(words in prop::collection::vec(prop_oneof![0u32..300, any::<u32>(), (1u32..6, 0u32..6500).prop_map(|(n, op)| n << 16 | op)], 0..200)) {
        let mut module = vec![0x0723_0203, 0x0001_0600, 0, 300, 0];
        module.extend(words);
        let _ = reflect(&module);
    }
}

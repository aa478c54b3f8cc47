//! Random programs against an interpreter, and damaged modules.

use super::super::*;
use super::assembled::{Asm, UNKNOWN_OPCODE, id, put};
use super::{BUFFERS, EXTENSIONS, access, compile, counting_joins};
use glslang::SpirvVersion;
use proptest::prelude::*;
use rspirv::spirv::Op;

/// A step of a random program over pointers; operands are taken modulo what exists.
#[derive(Clone, Debug)]
enum Step {
    Element(u32),
    Variable,
    SelectPointer(usize, usize),
    SelectVariable(usize, usize),
    Keep { variable: usize, pointer: usize },
    Fetch(usize),
    CopyVariable(usize, usize),
    Read(usize),
    Write(usize),
    Copy(usize, usize),
    Atomic(usize),
    Pass(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0usize..64;
    prop_oneof![
        (0u32..4).prop_map(Step::Element),
        Just(Step::Variable),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::SelectPointer(a, b)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::SelectVariable(a, b)),
        (n.clone(), n.clone()).prop_map(|(variable, pointer)| Step::Keep { variable, pointer }),
        n.clone().prop_map(Step::Fetch),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::CopyVariable(a, b)),
        n.clone().prop_map(Step::Read),
        n.clone().prop_map(Step::Write),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Copy(a, b)),
        n.clone().prop_map(Step::Atomic),
        n.prop_map(Step::Pass),
    ]
}

/// The module of a program. `give` is a function that returns the pointer it gets.
fn assemble(program: &[Step]) -> Vec<u32> {
    let mut a = Asm::new(4);
    let (give, ty) = (a.id(), a.id());
    a.global(Op::TypeFunction, &[ty, id::P_FLOAT, id::P_FLOAT]);
    a.begin(id::MAIN);
    let mut pointers = vec![a.element(0)];
    let mut variables = vec![a.value(Op::Variable, id::PP_FLOAT, &[7])];
    for step in program {
        let p = |i: &usize| pointers[i % pointers.len()];
        let v = |i: &usize| variables[i % variables.len()];
        match step {
            Step::Element(i) => pointers.push(a.element(*i)),
            Step::Variable => variables.push(a.value(Op::Variable, id::PP_FLOAT, &[7])),
            Step::SelectPointer(x, y) => {
                let operands = [id::TRUE, p(x), p(y)];
                pointers.push(a.value(Op::Select, id::P_FLOAT, &operands));
            }
            Step::SelectVariable(x, y) => {
                let operands = [id::TRUE, v(x), v(y)];
                variables.push(a.value(Op::Select, id::PP_FLOAT, &operands));
            }
            Step::Keep { variable, pointer } => a.op(Op::Store, &[v(variable), p(pointer)]),
            Step::Fetch(x) => {
                let variable = v(x);
                pointers.push(a.value(Op::Load, id::P_FLOAT, &[variable]));
            }
            Step::CopyVariable(x, y) => a.op(Op::CopyMemory, &[v(x), v(y)]),
            Step::Read(x) => {
                let pointer = p(x);
                a.value(Op::Load, id::FLOAT, &[pointer]);
            }
            Step::Write(x) => a.op(Op::Store, &[p(x), id::ONE_F]),
            Step::Copy(x, y) => a.op(Op::CopyMemory, &[p(x), p(y)]),
            Step::Atomic(x) => {
                let operands = [p(x), id::ZERO, id::ZERO, id::ONE_F];
                a.value(Op::AtomicExchange, id::FLOAT, &operands);
            }
            Step::Pass(x) => {
                let operands = [give, p(x)];
                pointers.push(a.value(Op::FunctionCall, id::P_FLOAT, &operands));
            }
        }
    }
    a.end();
    a.op(Op::Function, &[id::P_FLOAT, give, 0, ty]);
    let parameter = a.value(Op::FunctionParameter, id::P_FLOAT, &[]);
    let label = a.id();
    a.op(Op::Label, &[label]);
    a.op(Op::ReturnValue, &[parameter]);
    a.op(Op::FunctionEnd, &[]);
    a.words()
}

/// What a program reads and writes when it runs `rounds` times (as the body of a loop), with every choice made by
/// `choose`. Pointers are buffers or undefined; variables name memory cells, whose contents persist.
fn run(program: &[Step], rounds: u32, mut choose: impl FnMut() -> bool) -> (u32, u32) {
    let (mut reads, mut writes) = (0u32, 0u32);
    let mut cells: Vec<Option<u32>> = vec![None; program.len() + 1];
    for _ in 0..rounds {
        let mut pointers = vec![Some(0u32)];
        let mut variables = vec![0usize];
        for (at, step) in program.iter().enumerate() {
            let p = |i: &usize| pointers[i % pointers.len()];
            let v = |i: &usize| variables[i % variables.len()];
            let bit = |p: Option<u32>| p.map_or(0, |b| 1 << b);
            match step {
                Step::Element(i) => pointers.push(Some(*i)),
                Step::Variable => variables.push(at + 1),
                Step::SelectPointer(x, y) => pointers.push(if choose() { p(x) } else { p(y) }),
                Step::SelectVariable(x, y) => variables.push(if choose() { v(x) } else { v(y) }),
                Step::Keep { variable, pointer } => cells[v(variable)] = p(pointer),
                Step::Fetch(x) => pointers.push(cells[v(x)]),
                Step::CopyVariable(x, y) => cells[v(x)] = cells[v(y)],
                Step::Read(x) => reads |= bit(p(x)),
                Step::Write(x) => writes |= bit(p(x)),
                Step::Copy(x, y) => {
                    writes |= bit(p(x));
                    reads |= bit(p(y));
                }
                Step::Atomic(x) => {
                    reads |= bit(p(x));
                    writes |= bit(p(x));
                }
                Step::Pass(x) => pointers.push(p(x)),
            }
        }
    }
    (reads, writes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// No run of a random program makes an access that the reflection omits. Without choices, memory and calls the two
    /// are equal.
    #[test]
    fn no_access_is_missed(program in prop::collection::vec(step(), 0..60), choices in any::<u64>()) {
        let reflected = access(&reflect(&assemble(&program)).unwrap());
        let mut state = choices | 1;
        let executed = run(&program, 3, || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 63 == 0
        });
        prop_assert_eq!((executed.0 & !reflected.0, executed.1 & !reflected.1), (0, 0));

        // The analysis does not distinguish calls, and so not their pointers.
        let joins = |s: &Step| {
            matches!(s, Step::SelectPointer(..) | Step::SelectVariable(..) | Step::Fetch(_) | Step::Pass(_))
        };
        let simple: Vec<Step> = program
            .into_iter()
            .filter(|s| !joins(s))
            .collect();
        prop_assert_eq!(access(&reflect(&assemble(&simple)).unwrap()), run(&simple, 1, || true));
    }
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

    /// Damaged modules return an error or an answer, at once.
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
        let (_, joins) = counting_joins(|| reflect_with(&words, &specialization));
        // A set grows at most 64 times, and each time it passes through at most 64 variables.
        prop_assert!(joins <= 64 * 64 * words.len(), "{joins} joins for {} words", words.len());
    }

    /// Words that never were a module.
    #[test]
    fn noise_never_panics(words in prop::collection::vec(prop_oneof![0u32..300, any::<u32>(), (1u32..6, 0u32..6500).prop_map(|(n, op)| n << 16 | op)], 0..200)) {
        let mut module = vec![0x0723_0203, 0x0001_0600, 0, 300, 0];
        module.extend(words);
        let _ = reflect(&module);
    }
}

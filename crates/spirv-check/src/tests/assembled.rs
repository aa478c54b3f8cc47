//! Modules assembled by hand: what GLSL cannot express, and what is malformed.

use super::super::*;
use super::{access, counting_joins};
use rspirv::spirv::Op;

/// A module under construction, with one float-array storage buffer per binding.
pub(super) struct Asm {
    pub head: Vec<u32>,
    pub globals: Vec<u32>,
    pub body: Vec<u32>,
    next: u32,
}

/// Fixed ids of [`Asm`].
pub(super) mod id {
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

pub(super) fn put(out: &mut Vec<u32>, op: u16, operands: &[u32]) {
    out.push((operands.len() as u32 + 1) << 16 | u32::from(op));
    out.extend_from_slice(operands);
}

impl Asm {
    pub fn new(buffers: u32) -> Self {
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

    pub fn global(&mut self, op: Op, operands: &[u32]) {
        put(&mut self.globals, op as u16, operands);
    }

    pub fn op(&mut self, op: Op, operands: &[u32]) {
        put(&mut self.body, op as u16, operands);
    }

    pub fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// An instruction with result type and result id.
    pub fn value(&mut self, op: Op, ty: u32, operands: &[u32]) -> u32 {
        let id = self.id();
        let words: Vec<u32> = [&[ty, id], operands].concat();
        self.op(op, &words);
        id
    }

    /// Pointer to a float in buffer `i`.
    pub fn element(&mut self, i: u32) -> u32 {
        self.value(
            Op::AccessChain,
            id::P_FLOAT,
            &[id::BUFFERS + i, id::ZERO, id::ZERO],
        )
    }

    pub fn begin(&mut self, function: u32) {
        self.op(Op::Function, &[id::VOID, function, 0, id::FN]);
        let label = self.id();
        self.op(Op::Label, &[label]);
    }

    pub fn end(&mut self) {
        self.op(Op::Return, &[]);
        self.op(Op::FunctionEnd, &[]);
    }

    pub fn words(&self) -> Vec<u32> {
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
    // Copied from variable to variable, through more variables than have a bit of their own.
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

pub(super) const UNKNOWN_OPCODE: u16 = 0x7abc;

#[test]
fn unknown_instructions_are_believed_capable_of_anything() {
    let r = masks(|a| {
        let x = a.element(1);
        put(&mut a.body, UNKNOWN_OPCODE, &[x, 77]);
    });
    assert_eq!(r, (0b10, 0b10));
    // The pointer is in a variable that is passed.
    let r = masks(|a| {
        let v = a.value(Op::Variable, id::PP_FLOAT, &[7]);
        let x = a.element(2);
        a.op(Op::Store, &[v, x]);
        put(&mut a.body, UNKNOWN_OPCODE, &[v]);
    });
    assert_eq!(r, (0b100, 0b100));
    // It makes a pointer: a store through that may go to any buffer that main names.
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
    // It may have replaced the pointer that our variable held.
    let r = masks(|a| {
        let v = a.value(Op::Variable, id::PP_FLOAT, &[7]);
        let (x, y) = (a.element(0), a.element(3));
        a.op(Op::Store, &[v, x]);
        put(&mut a.body, UNKNOWN_OPCODE, &[v]);
        let p = a.value(Op::Load, id::P_FLOAT, &[v]);
        a.op(Op::Store, &[p, id::ONE_F]);
        a.value(Op::Load, id::FLOAT, &[y]);
    });
    assert_eq!(r, (0b1001, 0b1001));
    // It makes a place that our pointer is stored to and that it can read.
    let r = masks(|a| {
        let made = a.id();
        put(&mut a.body, UNKNOWN_OPCODE, &[id::PP_FLOAT, made]);
        let x = a.element(2);
        a.op(Op::Store, &[made, x]);
    });
    assert_eq!(r, (0b100, 0b100));
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

/// A pointer that became a number may come back as any pointer.
#[test]
fn pointers_turned_into_numbers() {
    for op in [Op::ConvertPtrToU, Op::Bitcast] {
        let r = masks(|a| {
            let x = a.element(2);
            a.value(op, id::UINT, &[x]);
        });
        assert_eq!(r, (0b100, 0b100));
    }
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
            .contains("which is not a function")
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

/// Chains for which a sweep in program order would need one pass per link.
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
    let words = a.words();
    let (reflected, joins) = counting_joins(|| reflect(&words).unwrap());
    assert_eq!(access(&reflected), (0, 0b10));
    assert!(
        joins <= 8 * words.len(),
        "{joins} joins for {} words",
        words.len()
    );
}

#[test]
fn the_bound_is_checked_before_anything_is_allocated_by_it() {
    let mut a = Asm::new(1);
    a.begin(id::MAIN);
    let x = a.element(0);
    a.op(Op::Store, &[x, id::ONE_F]);
    a.end();
    let mut words = a.words();
    for bound in [1 << 17, 1 << 28, u32::MAX] {
        words[3] = bound;
        let error = reflect(&words).unwrap_err();
        let length = words.len();
        assert_eq!(
            error,
            ReflectError::Bound {
                bound,
                words: length
            }
        );
    }
    // Gaps between ids are no fault.
    words[3] = 1 << 16;
    assert!(reflect(&words).is_ok());
}

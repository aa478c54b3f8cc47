//! The flat template: every element by itself, four to an invocation at a time, in strides over the grid.

use rspirv::spirv::{BuiltIn, Op as S};

use super::access::{Elements, Operands, WIDTH};
use super::module::{Id, Module};
use super::program::{Program, Type, Value};
use super::values::{evaluate, store};

/// The module of a program of the flat template.
pub fn emit(program: &Program) -> Vec<u32> {
    let mut module = Module::new();
    let m = &mut module;
    let entry = m.id();
    m.begin(entry);
    let operands = Operands::declare(m, program);
    let [count] = operands.sizes[..] else {
        unreachable!("the flat template has one size")
    };
    let first = m.builtin_x(BuiltIn::GlobalInvocationId);
    let groups = m.builtin_x(BuiltIn::NumWorkgroups);
    let (zero, one, lanes) = (m.word(0), m.word(1), m.word(program.lanes));
    let step = m.value(S::IMul, Type::U32, 1, &[groups, lanes]);
    // More invocations than a word counts would make no step at all.
    let wrapped = m.value(S::IEqual, Type::Bool, 1, &[step, zero]);
    let step = m.value(S::Select, Type::U32, 1, &[wrapped, one, step]);
    let known = vec![None; program.live.len()];
    let wanted: Vec<Value> = program.outputs.iter().map(|o| o.value).collect();
    fours(m, first, step, zero, count, false, |m, start, width| {
        let elements = Elements::new(m, start, width, None);
        let (mut at, values) = evaluate(m, program, &operands, elements, &wanted, &known);
        store(m, program, &operands, &mut at, &values, |_| true);
    });
    m.effect(S::Return, &[]);
    module.finish(program.lanes, program.controls)
}

/// The elements from `base` to `base + count`, in fours: those with numbers `first`, `first + step`, … The last four may be a
/// part of one, unless all are `whole`: its elements come one at a time.
pub fn fours(
    m: &mut Module,
    first: Id,
    step: Id,
    base: Id,
    count: Id,
    whole: bool,
    mut elements: impl FnMut(&mut Module, Id, u32),
) {
    let u = |m: &mut Module, op: S, args: &[Id]| m.value(op, Type::U32, 1, args);
    let [zero, one, two, three] = [0, 1, 2, 3].map(|n| m.word(n));
    let fours = u(m, S::ShiftRightLogical, &[count, two]);
    if whole {
        return m.strided(first, step, fours, |m, unit| {
            let offset = u(m, S::ShiftLeftLogical, &[unit, two]);
            let start = u(m, S::IAdd, &[base, offset]);
            elements(m, start, WIDTH);
        });
    }
    let rest = u(m, S::BitwiseAnd, &[count, three]);
    let some = m.value(S::INotEqual, Type::Bool, 1, &[rest, zero]);
    let extra = u(m, S::Select, &[some, one, zero]);
    let units = u(m, S::IAdd, &[fours, extra]);
    let end = u(m, S::IAdd, &[base, count]);
    m.strided(first, step, units, |m, unit| {
        let offset = u(m, S::ShiftLeftLogical, &[unit, two]);
        let start = u(m, S::IAdd, &[base, offset]);
        let whole = m.value(S::ULessThan, Type::Bool, 1, &[unit, fours]);
        let elements = std::cell::RefCell::new(&mut elements);
        m.either(
            whole,
            |m| elements.borrow_mut()(m, start, WIDTH),
            |m| m.strided(start, one, end, |m, at| elements.borrow_mut()(m, at, 1)),
        );
    });
}

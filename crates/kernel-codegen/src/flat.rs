//! The flat template: each element by itself. An invocation takes a vector of elements at a time, or two, and strides over
//! the grid.

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
    let layout = program.layout;
    let load = |m: &mut Module, start: Id, width: u32| {
        let elements = Elements::new(m, start, width, None);
        evaluate(m, program, &operands, elements, &wanted, &known)
    };
    let save = |m: &mut Module, (mut at, values): (Elements, Vec<Id>)| {
        store(m, program, &operands, &mut at, &values, |_| true);
    };
    let log = m.word(layout.width.ilog2());
    let full = u(m, S::ShiftRightLogical, &[count, log]);
    if layout.pairs {
        // Both are loaded before either is stored: an output may be an input, so a compiler cannot do that, and one vector of each
        // invocation is too little in flight for fast memory. A step of half of all numbers leads past every vector, and so must
        // twice that.
        let twice = u(m, S::ShiftLeftLogical, &[step, one]);
        let wrapped = m.value(S::ULessThan, Type::Bool, 1, &[twice, step]);
        let most = m.word(u32::MAX);
        let twice = u(m, S::Select, &[wrapped, most, twice]);
        m.strided(first, twice, full, |m, vector| {
            let left = u(m, S::ISub, &[full, vector]);
            let there = m.value(S::ULessThan, Type::Bool, 1, &[step, left]);
            let next = u(m, S::IAdd, &[vector, step]);
            // Where there is no second one, the first is computed twice and stored once.
            let second = u(m, S::Select, &[there, next, vector]);
            let [one, two] = [vector, second].map(|vector| {
                let start = u(m, S::ShiftLeftLogical, &[vector, log]);
                load(m, start, layout.width)
            });
            save(m, one);
            m.when(there, |m| save(m, two));
        });
    } else {
        m.strided(first, step, full, |m, vector| {
            let start = u(m, S::ShiftLeftLogical, &[vector, log]);
            let loaded = load(m, start, layout.width);
            save(m, loaded);
        });
    }
    if !program.is_whole() {
        // The last elements, fewer than a vector, are one invocation's: two of them may share a word.
        let is_first = m.value(S::IEqual, Type::Bool, 1, &[first, zero]);
        m.when(is_first, |m| {
            let start = u(m, S::ShiftLeftLogical, &[full, log]);
            m.strided(start, one, count, |m, at| {
                let loaded = load(m, at, 1);
                save(m, loaded);
            });
        });
    }
    m.effect(S::Return, &[]);
    module.finish(program.lanes, program.controls)
}

fn u(m: &mut Module, op: S, args: &[Id]) -> Id {
    m.value(op, Type::U32, 1, args)
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

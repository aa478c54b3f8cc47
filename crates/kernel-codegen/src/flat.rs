//! The flat template: every element by itself, four to an invocation at a time, in strides over the grid.

use rspirv::spirv::{BuiltIn, Op as S};

use super::access::{Elements, Operands, WIDTH};
use super::module::{Id, Module};
use super::program::{Op, Program, Type, value_args};
use super::scalar::Scalar;

/// The module of a program of the flat template.
pub fn emit(program: &Program) -> Vec<u32> {
    let m = &mut Module::new();
    let [entry, header, body, whole, part, done, merge, next] = [(); 8].map(|()| m.id());
    m.begin(entry);
    let operands = Operands::declare(m, program);
    let u = |m: &mut Module, op: S, args: &[Id]| m.value(op, Type::U32, 1, args);
    let test = |m: &mut Module, op: S, args: &[Id]| m.value(op, Type::Bool, 1, args);

    let [one, two, three] = [1, 2, 3].map(|n| m.word(n));
    let global = m.builtin(BuiltIn::GlobalInvocationId);
    let groups = m.builtin(BuiltIn::NumWorkgroups);
    let vector = m.ty(Type::U32, 3);
    let global = m.result(S::Load, vector, &[global]);
    let first = u(m, S::CompositeExtract, &[global, 0]);
    let groups = m.result(S::Load, vector, &[groups]);
    let groups = u(m, S::CompositeExtract, &[groups, 0]);
    let lanes = m.word(program.lanes);
    let step = u(m, S::IMul, &[groups, lanes]);
    // More invocations than a word counts would make no step at all, or one back.
    let zero = m.word(0);
    let wrapped = test(m, S::IEqual, &[step, zero]);
    let step = u(m, S::Select, &[wrapped, one, step]);
    // Fours, the last of which may be a part of one.
    let fours = u(m, S::ShiftRightLogical, &[operands.count, two]);
    let rest = u(m, S::BitwiseAnd, &[operands.count, three]);
    let zero = m.word(0);
    let some = test(m, S::INotEqual, &[rest, zero]);
    let extra = u(m, S::Select, &[some, one, zero]);
    let units = u(m, S::IAdd, &[fours, extra]);
    m.branch(header);

    m.begin(header);
    let word = m.ty(Type::U32, 1);
    let following = m.id();
    let unit = m.result(S::Phi, word, &[first, entry, following, next]);
    let more = test(m, S::ULessThan, &[unit, units]);
    m.effect(S::LoopMerge, &[merge, next, 0]);
    m.effect(S::BranchConditional, &[more, body, merge]);

    m.begin(body);
    let start = u(m, S::ShiftLeftLogical, &[unit, two]);
    let is_whole = test(m, S::ULessThan, &[unit, fours]);
    m.effect(S::SelectionMerge, &[done, 0]);
    m.effect(S::BranchConditional, &[is_whole, whole, part]);

    m.begin(whole);
    elements(m, program, &operands, start, WIDTH);
    m.branch(done);

    m.begin(part);
    tail(m, program, &operands, start, done);

    m.begin(done);
    m.branch(next);
    m.begin(next);
    let left = u(m, S::ISub, &[units, unit]);
    let reaches = test(m, S::ULessThan, &[step, left]);
    let sum = u(m, S::IAdd, &[unit, step]);
    m.result_as(following, S::Select, word, &[reaches, sum, units]);
    m.branch(header);
    m.begin(merge);
    m.effect(S::Return, &[]);
    std::mem::replace(m, Module::new()).finish(program.lanes)
}

/// The elements from `start` to the count, one at a time; goes on at `done`.
fn tail(m: &mut Module, program: &Program, operands: &Operands, start: Id, done: Id) {
    let [header, body, next, merge] = [(); 4].map(|()| m.id());
    let before = m.block;
    m.branch(header);
    m.begin(header);
    let word = m.ty(Type::U32, 1);
    let following = m.id();
    let element = m.result(S::Phi, word, &[start, before, following, next]);
    let more = m.value(S::ULessThan, Type::Bool, 1, &[element, operands.count]);
    m.effect(S::LoopMerge, &[merge, next, 0]);
    m.effect(S::BranchConditional, &[more, body, merge]);
    m.begin(body);
    elements(m, program, operands, element, 1);
    m.branch(next);
    m.begin(next);
    let one = m.word(1);
    m.result_as(following, S::IAdd, word, &[element, one]);
    m.branch(header);
    m.begin(merge);
    m.branch(done);
}

/// Loads, computes and stores `width` elements from `start` on.
fn elements(m: &mut Module, program: &Program, operands: &Operands, start: Id, width: u32) {
    let mut at = Elements::new(m, start, width);
    let mut values: Vec<Id> = Vec::with_capacity(program.live.len());
    let mut types = Vec::with_capacity(program.live.len());
    for (k, input) in program.inputs.iter().enumerate() {
        let live = program.live[k];
        values.push(if live {
            operands.load(m, k, &mut at)
        } else {
            0
        });
        types.push(input.storage.value());
    }
    for (&scalar, &ty) in operands.scalars.iter().zip(&program.scalars) {
        values.push(match width {
            1 => scalar,
            _ => {
                let parts = vec![scalar; width as usize];
                m.value(S::CompositeConstruct, ty, width, &parts)
            }
        });
        types.push(ty);
    }
    for instruction in &program.instructions {
        let ty = instruction.ty;
        let live = program.live[values.len()];
        values.push(match instruction.op {
            _ if !live => 0,
            Op::Const => m.constant(ty, instruction.args[1], width),
            Op::Index => at.index(m),
            op => {
                let args = &instruction.args[..value_args(op)];
                let ids: Vec<Id> = args.iter().map(|&a| values[a as usize]).collect();
                // Of a selection the type is in the last two, and not looked at.
                let of = types[args[0] as usize];
                Scalar { m, width }.emit(op, ty, of, &ids)
            }
        });
        types.push(ty);
    }
    for (k, output) in program.outputs.iter().enumerate() {
        operands.store(m, k, &mut at, values[output.value as usize]);
    }
}

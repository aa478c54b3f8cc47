//! Loads, computes and stores the values of a program for some elements.

use rspirv::spirv::Op as S;

use super::access::{Elements, Operands};
use super::module::{Id, Module};
use super::program::{Op, Output, Program, Type, Value, value_args};
use super::scalar::Scalar;

/// Values by their numbers, where they are known.
pub type Known = Vec<Option<Id>>;

/// The type of a value.
pub fn type_of(program: &Program, value: usize) -> Type {
    let scalars = program.inputs.len();
    let first = program.first_instruction();
    if value < scalars {
        program.inputs[value].storage.value()
    } else if value < first {
        program.scalars[value - scalars]
    } else {
        program.instructions[value - first].ty
    }
}

/// Computes the `wanted` values of some elements, and what they depend on. A value that is `known` is the same for all of them.
pub fn evaluate(
    m: &mut Module,
    program: &Program,
    operands: &Operands,
    mut at: Elements,
    wanted: &[Value],
    known: &[Option<Id>],
) -> (Elements, Vec<Id>) {
    let width = at.width();
    let first = program.first_instruction();
    let needed = program.needs(wanted, known);
    // Of what is known, vectors are made where something takes them.
    let mut taken = vec![width == 1; needed.len()];
    for &value in wanted {
        taken[value as usize] = true;
    }
    for (i, instruction) in program.instructions.iter().enumerate() {
        if needed[first + i] {
            for &arg in &instruction.args[..value_args(instruction.op)] {
                taken[arg as usize] = true;
            }
        }
    }
    let mut values: Vec<Id> = Vec::with_capacity(needed.len());
    for value in 0..needed.len() {
        let ty = type_of(program, value);
        let one = match known[value] {
            None if value >= program.inputs.len() && value < first => {
                Some(operands.scalars[value - program.inputs.len()])
            }
            other => other,
        };
        values.push(if let Some(one) = one {
            match width {
                1 => one,
                _ if !taken[value] => 0,
                _ => m.value(S::CompositeConstruct, ty, width, &vec![one; width as usize]),
            }
        } else if !needed[value] {
            0
        } else if value < first {
            operands.load(m, value, &mut at)
        } else {
            let instruction = &program.instructions[value - first];
            match instruction.op {
                Op::Const if ty == Type::F32 && program.controls.hides_constants() => {
                    let bits = m.constant(Type::U32, instruction.args[1], width);
                    let zero = operands.unseen_zero(m, width);
                    let bits = m.value(S::BitwiseOr, Type::U32, width, &[bits, zero]);
                    m.value(S::Bitcast, ty, width, &[bits])
                }
                Op::Const => m.constant(ty, instruction.args[1], width),
                Op::Index => at.index(m),
                op => {
                    let args = &instruction.args[..value_args(op)];
                    let ids: Vec<Id> = args.iter().map(|&a| values[a as usize]).collect();
                    // Of a selection the type is in the last two, and not looked at.
                    let of = type_of(program, args[0] as usize);
                    Scalar::new(m, width, program.layout.native).emit(op, ty, of, &ids)
                }
            }
        });
    }
    (at, values)
}

/// Stores those outputs of these elements that `which` names.
pub fn store(
    m: &mut Module,
    program: &Program,
    operands: &Operands,
    at: &mut Elements,
    values: &[Id],
    which: impl Fn(&Output) -> bool,
) {
    for (k, output) in program.outputs.iter().enumerate() {
        if which(output) {
            operands.store(m, k, at, values[output.value as usize]);
        }
    }
}

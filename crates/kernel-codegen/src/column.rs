//! The column template: reductions over the rows. An invocation takes four columns of a slice of the rows. Eight neighbours
//! take neighbouring fours; the other invocations of the workgroup take other rows. Each slice writes its own result; where
//! there are several, another dispatch combines them.

use rspirv::spirv::{BuiltIn, Op as S};

use super::access::{Elements, Operands, WIDTH, parts};
use super::module::{Id, Module};
use super::program::{COLUMN_LANES, Output, Program, Type, Value};
use super::reduce::{Accumulator, Shared, reductions};
use super::values::{Known, evaluate, store};

fn u(m: &mut Module, op: S, args: &[Id]) -> Id {
    m.value(op, Type::U32, 1, args)
}

fn test(m: &mut Module, op: S, args: &[Id]) -> Id {
    m.value(op, Type::Bool, 1, args)
}

/// a / b, rounded up.
fn ceil_div(m: &mut Module, a: Id, b: Id) -> Id {
    let (zero, one) = (m.word(0), m.word(1));
    let quotient = u(m, S::UDiv, &[a, b]);
    let rest = u(m, S::UMod, &[a, b]);
    let some = test(m, S::INotEqual, &[rest, zero]);
    let extra = u(m, S::Select, &[some, one, zero]);
    u(m, S::IAdd, &[quotient, extra])
}

/// A divisor.
fn at_least_one(m: &mut Module, x: Id) -> Id {
    let (zero, one) = (m.word(0), m.word(1));
    let none = test(m, S::IEqual, &[x, zero]);
    u(m, S::Select, &[none, one, x])
}

/// The module of a program of the column template.
pub fn emit(program: &Program) -> Vec<u32> {
    let mut module = Module::new();
    let m = &mut module;
    let entry = m.id();
    m.begin(entry);
    let operands = Operands::declare(m, program);
    let [rows, columns, slice] = operands.sizes[..] else {
        unreachable!("the column template has three sizes")
    };
    let [zero, two, eight] = [0, 2, COLUMN_LANES].map(|n| m.word(n));
    let lane = m.builtin_x(BuiltIn::LocalInvocationId);
    let group = m.builtin_x(BuiltIn::WorkgroupId);
    let groups = m.builtin_x(BuiltIn::NumWorkgroups);
    let shared = Shared::declare(m, lane, program.lanes, WIDTH);
    // Where this invocation's columns and rows are among those of its workgroup.
    let across = u(m, S::UMod, &[lane, eight]);
    let down = u(m, S::UDiv, &[lane, eight]);
    let step = m.word(program.lanes / COLUMN_LANES);
    let four = m.word(WIDTH);
    let whole_units = u(m, S::UDiv, &[columns, four]);
    let units = ceil_div(m, columns, four);
    let blocks = ceil_div(m, units, eight);
    let slice = at_least_one(m, slice);
    let slices = ceil_div(m, rows, slice);
    let tasks = u(m, S::IMul, &[blocks, slices]);
    let blocks = at_least_one(m, blocks);
    let now = reductions(program, 1);
    let nothing: Known = vec![None; program.live.len()];
    let of_column = |output: &Output| program.uniform[output.value as usize];
    let wanted = |uniform: bool| -> Vec<Value> {
        let those = program.outputs.iter().filter(|o| of_column(o) == uniform);
        those.map(|o| o.value).collect()
    };
    let mut inner = wanted(false);
    inner.extend(now.iter().map(|r| r.arg));
    let outer = wanted(true);

    m.strided(group, groups, tasks, |m, task| {
        let block = u(m, S::UMod, &[task, blocks]);
        let number = u(m, S::UDiv, &[task, blocks]);
        let unit = u(m, S::IMul, &[block, eight]);
        let unit = u(m, S::IAdd, &[unit, across]);
        let column = u(m, S::ShiftLeftLogical, &[unit, two]);
        let whole = test(m, S::ULessThan, &[unit, whole_units]);
        // Of the last unit there may be a part only, and of the last block no unit.
        let inside: Vec<Id> = (0..WIDTH)
            .map(|j| {
                let j = m.word(j);
                let own = u(m, S::IAdd, &[column, j]);
                test(m, S::ULessThan, &[own, columns])
            })
            .collect();
        let top = u(m, S::IMul, &[number, slice]);
        let left = u(m, S::ISub, &[rows, top]);
        let last = test(m, S::ULessThan, &[left, slice]);
        let height = u(m, S::Select, &[last, left, slice]);
        let bottom = u(m, S::IAdd, &[top, height]);
        let accumulators: Vec<Vec<Accumulator>> = now
            .iter()
            .map(|reduction| (0..WIDTH).map(|_| reduction.accumulator(m)).collect())
            .collect();
        // `width` columns from number `j` of the unit on.
        let elements = |m: &mut Module, row: Id, base: Id, j: u32, width: u32| {
            let offset = m.word(j);
            let start = u(m, S::IAdd, &[base, offset]);
            let own = u(m, S::IAdd, &[column, offset]);
            let all = Elements::new(m, start, width, Some((row, own)));
            let (mut at, values) = evaluate(m, program, &operands, all, &inner, &nothing);
            for (reduction, own) in now.iter().zip(&accumulators) {
                let value = values[reduction.arg as usize];
                let each = parts(m, Type::F32, value, width);
                for (&accumulator, value) in own[j as usize..].iter().zip(each) {
                    reduction.accumulate(m, accumulator, value, 1);
                }
            }
            store(m, program, &operands, &mut at, &values, |o| !of_column(o));
        };
        let first = u(m, S::IAdd, &[top, down]);
        m.strided(first, step, bottom, |m, row| {
            let base = u(m, S::IMul, &[row, columns]);
            let base = u(m, S::IAdd, &[base, column]);
            if program.in_fours() {
                m.when(whole, |m| elements(m, row, base, 0, WIDTH));
                return;
            }
            m.either(
                whole,
                |m| elements(m, row, base, 0, WIDTH),
                |m| {
                    for (j, &inside) in (0..).zip(&inside) {
                        m.when(inside, |m| elements(m, row, base, j, 1));
                    }
                },
            );
        });
        if outer.is_empty() {
            return;
        }
        let mut known: Vec<Known> = vec![nothing.clone(); WIDTH as usize];
        for (reduction, own) in now.iter().zip(&accumulators) {
            let own: Vec<Id> = own.iter().map(|accumulator| accumulator.load(m)).collect();
            let results = shared.reduce(m, reduction, &own, COLUMN_LANES, across);
            for (known, result) in known.iter_mut().zip(results) {
                known[reduction.value] = Some(reduction.settle(m, result));
            }
        }
        let at = u(m, S::IMul, &[number, columns]);
        let at = u(m, S::IAdd, &[at, column]);
        let writes = test(m, S::IEqual, &[down, zero]);
        for (j, (known, &inside)) in (0..).zip(known.iter().zip(&inside)) {
            let own = test(m, S::LogicalAnd, &[writes, inside]);
            m.when(own, |m| {
                let offset = m.word(j);
                let at = u(m, S::IAdd, &[at, offset]);
                let one = Elements::new(m, at, 1, None);
                let (mut at, values) = evaluate(m, program, &operands, one, &outer, known);
                store(m, program, &operands, &mut at, &values, of_column);
            });
        }
    });
    m.effect(S::Return, &[]);
    module.finish(program.lanes, program.controls)
}

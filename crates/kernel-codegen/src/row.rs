//! The row template: a workgroup takes a row at a time. It makes a pass over the row for each reduction that depends on the one
//! before, and a last one for the elements that depend on reductions. Each pass loads and computes the row again.

use rspirv::spirv::{BuiltIn, Op as S};

use super::access::{Elements, Operands};
use super::flat::fours;
use super::module::{Id, Module};
use super::program::{LONE_ROWS, Output, Program, Type, Value};
use super::reduce::{Shared, reductions};
use super::values::{Known, evaluate, store};

/// The module of a program of the row template.
pub fn emit(program: &Program) -> Vec<u32> {
    let mut module = Module::new();
    let m = &mut module;
    let entry = m.id();
    m.begin(entry);
    let operands = Operands::declare(m, program);
    let [rows, columns] = operands.sizes[..] else {
        unreachable!("the row template has two sizes")
    };
    let (zero, lanes) = (m.word(0), m.word(program.lanes));
    let lane = m.builtin_x(BuiltIn::LocalInvocationId);
    let group = m.builtin_x(BuiltIn::WorkgroupId);
    let groups = m.builtin_x(BuiltIn::NumWorkgroups);
    let shared = Shared::declare(m, lane, program.lanes, 1);
    // A workgroup for each row, or an invocation.
    let lone = program.lanes == 1;
    let (first, step) = if lone {
        let eight = m.word(LONE_ROWS);
        let step = m.value(S::IMul, Type::U32, 1, &[groups, eight]);
        (m.builtin_x(BuiltIn::GlobalInvocationId), step)
    } else {
        (group, groups)
    };
    let lane = if lone { zero } else { lane };
    let whole = program.in_fours();
    m.strided(first, step, rows, |m, row| {
        let base = m.value(S::IMul, Type::U32, 1, &[row, columns]);
        let mut known: Known = vec![None; program.live.len()];
        let of_row = |output: &Output| program.uniform[output.value as usize];
        let wanted = |uniform: bool| -> Vec<Value> {
            let those = program.outputs.iter().filter(|o| of_row(o) == uniform);
            those.map(|o| o.value).collect()
        };
        let mut elements = wanted(false);
        let depth_of = |value: &Value| program.depth[*value as usize];
        // Elements that wait for no reduction are stored on the way, where the row is gone through just once.
        let once = reductions(program, 2).is_empty() && elements.iter().all(|v| depth_of(v) == 0);
        let place = |m: &mut Module, start: Id, width: u32| {
            let column = m.value(S::ISub, Type::U32, 1, &[start, base]);
            Elements::new(m, start, width, Some((row, column)))
        };
        for depth in 1.. {
            let now = reductions(program, depth);
            if now.is_empty() {
                break;
            }
            let mut needed: Vec<Value> = now.iter().map(|r| r.arg).collect();
            if once {
                needed.append(&mut elements);
            }
            let accumulators: Vec<_> = now.iter().map(|r| r.accumulator(m)).collect();
            fours(m, lane, lanes, base, columns, whole, |m, start, width| {
                let all = place(m, start, width);
                let (mut at, values) = evaluate(m, program, &operands, all, &needed, &known);
                for (reduction, &accumulator) in now.iter().zip(&accumulators) {
                    let value = values[reduction.arg as usize];
                    reduction.accumulate(m, accumulator, value, width);
                }
                store(m, program, &operands, &mut at, &values, |o| {
                    once && !of_row(o)
                });
            });
            for (reduction, &accumulator) in now.iter().zip(&accumulators) {
                let own = accumulator.load(m);
                let results = shared.reduce(m, reduction, &[own], 1, zero);
                known[reduction.value] = Some(reduction.settle(m, results[0]));
            }
        }
        if !elements.is_empty() {
            fours(m, lane, lanes, base, columns, whole, |m, start, width| {
                let all = place(m, start, width);
                let (mut at, values) = evaluate(m, program, &operands, all, &elements, &known);
                store(m, program, &operands, &mut at, &values, |o| !of_row(o));
            });
        }
        let values = wanted(true);
        if !values.is_empty() {
            let first = m.value(S::IEqual, Type::Bool, 1, &[lane, zero]);
            m.when(first, |m| {
                let one = Elements::new(m, row, 1, None);
                let (mut at, values) = evaluate(m, program, &operands, one, &values, &known);
                store(m, program, &operands, &mut at, &values, of_row);
            });
        }
    });
    m.effect(S::Return, &[]);
    module.finish(
        if lone { LONE_ROWS } else { program.lanes },
        program.controls,
    )
}

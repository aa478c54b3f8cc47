//! Reductions: each invocation accumulates, then the workgroup combines the accumulators.

use rspirv::spirv::{Op as S, StorageClass};

use super::access::parts;
use super::module::{Id, Module};
use super::program::{Op, Program, Type};
use super::scalar::Scalar;

/// A reduction of a program.
#[derive(Clone, Copy)]
pub struct Reduction {
    pub value: usize,
    op: Op,
    /// What is reduced.
    pub arg: u32,
}

/// The reductions at a depth that an output depends on.
pub fn reductions(program: &Program, depth: u32) -> Vec<Reduction> {
    let first = program.first_instruction();
    let all = program.instructions.iter().enumerate();
    all.map(|(i, instruction)| Reduction {
        value: first + i,
        op: instruction.op,
        arg: instruction.args[0],
    })
    .filter(|r| r.op.reduces() && program.live[r.value] && program.depth[r.value] == depth)
    .collect()
}

impl Reduction {
    /// The result over no elements.
    fn start(&self, m: &mut Module) -> Id {
        let value = match self.op {
            Op::ReduceMax => f32::NEG_INFINITY,
            Op::ReduceMin => f32::INFINITY,
            _ => 0.0,
        };
        m.constant(Type::F32, value.to_bits(), 1)
    }

    /// Combines two values.
    pub fn join(&self, m: &mut Module, a: Id, b: Id) -> Id {
        let op = match self.op {
            Op::ReduceMax => Op::Max,
            Op::ReduceMin => Op::Min,
            _ => Op::Add,
        };
        Scalar::new(m, 1, false).emit(op, Type::F32, Type::F32, &[a, b])
    }

    /// The result of a workgroup. Among zeros of both signs an extreme would depend on the order; here it is 0.
    pub fn settle(&self, m: &mut Module, value: Id) -> Id {
        if self.op == Op::ReduceSum {
            return value;
        }
        let zero = m.constant(Type::F32, 0, 1);
        let is_zero = m.value(S::FOrdEqual, Type::Bool, 1, &[value, zero]);
        m.value(S::Select, Type::F32, 1, &[is_zero, zero, value])
    }

    /// An accumulator that nothing was added to.
    pub fn accumulator(&self, m: &mut Module) -> Accumulator {
        let start = self.start(m);
        let total = m.accumulator();
        m.effect(S::Store, &[total, start]);
        let lost = (self.op == Op::ReduceSum).then(|| m.accumulator());
        if let Some(lost) = lost {
            m.effect(S::Store, &[lost, start]);
        }
        Accumulator { total, lost }
    }

    /// Adds the components of a value to an accumulator, by pairs first.
    pub fn accumulate(&self, m: &mut Module, accumulator: Accumulator, value: Id, width: u32) {
        let mut all = parts(m, Type::F32, value, width);
        while all.len() > 1 {
            let pairs: Vec<Id> = all
                .chunks(2)
                .map(|pair| self.join(m, pair[0], pair[1]))
                .collect();
            all = pairs;
        }
        let Accumulator { total, lost } = accumulator;
        let before = m.value(S::Load, Type::F32, 1, &[total]);
        let sum = self.join(m, before, all[0]);
        m.effect(S::Store, &[total, sum]);
        if let Some(lost) = lost {
            let sub = |m: &mut Module, a, b| m.exact(S::FSub, 1, &[a, b]);
            let taken = sub(m, sum, before);
            let kept = sub(m, sum, taken);
            let of_total = sub(m, before, kept);
            let of_value = sub(m, all[0], taken);
            let error = m.exact(S::FAdd, 1, &[of_total, of_value]);
            let errors = m.value(S::Load, Type::F32, 1, &[lost]);
            let errors = m.exact(S::FAdd, 1, &[errors, error]);
            m.effect(S::Store, &[lost, errors]);
        }
    }
}

/// What an invocation has reduced: a sum with what its additions lost by rounding (Knuth's TwoSum; Kahan 1965, Neumaier 1974), so that
/// a chain of a million equal numbers is off by a rounding, not by thousands.
#[derive(Clone, Copy)]
pub struct Accumulator {
    total: Id,
    lost: Option<Id>,
}

impl Accumulator {
    /// The result. An infinity, and a sum beyond the largest number, have lost nothing.
    pub fn load(self, m: &mut Module) -> Id {
        let total = m.value(S::Load, Type::F32, 1, &[self.total]);
        let Some(lost) = self.lost else {
            return total;
        };
        let lost = m.value(S::Load, Type::F32, 1, &[lost]);
        let bits = m.value(S::Bitcast, Type::U32, 1, &[lost]);
        let [mask, infinity] = [0x7fff_ffff, 0x7f80_0000].map(|bits| m.word(bits));
        let size = m.value(S::BitwiseAnd, Type::U32, 1, &[bits, mask]);
        let finite = m.value(S::ULessThan, Type::Bool, 1, &[size, infinity]);
        let sum = m.exact(S::FAdd, 1, &[total, lost]);
        m.value(S::Select, Type::F32, 1, &[finite, sum, total])
    }
}

/// Memory that a workgroup reduces in: `values` words of each invocation.
pub struct Shared {
    words: Id,
    lane: Id,
    lanes: u32,
}

impl Shared {
    /// Declares the memory.
    pub fn declare(m: &mut Module, lane: Id, lanes: u32, values: u32) -> Self {
        let words = m.shared_words(lanes * values);
        Self { words, lane, lanes }
    }

    /// A pointer to word `k` of the invocation that is `further` behind `lane`.
    fn word(&self, m: &mut Module, lane: Id, further: u32, k: u32) -> Id {
        let offset = m.word(k * self.lanes + further);
        let at = m.value(S::IAdd, Type::U32, 1, &[lane, offset]);
        let word = m.ty(Type::U32, 1);
        let pointer = m.pointer(StorageClass::Workgroup, word);
        m.result(S::AccessChain, pointer, &[self.words, at])
    }

    fn load(&self, m: &mut Module, lane: Id, further: u32, k: u32) -> Id {
        let pointer = self.word(m, lane, further, k);
        let bits = m.value(S::Load, Type::U32, 1, &[pointer]);
        m.value(S::Bitcast, Type::F32, 1, &[bits])
    }

    fn store(&self, m: &mut Module, k: u32, value: Id) {
        let bits = m.value(S::Bitcast, Type::U32, 1, &[value]);
        let pointer = self.word(m, self.lane, 0, k);
        m.effect(S::Store, &[pointer, bits]);
    }

    /// Joins the `values` of all invocations whose numbers are equal modulo `kept`: in a tree, so that the order is always the
    /// same. Every invocation of the workgroup comes here. The results are those of the first `kept` invocations, by `of`.
    pub fn reduce(
        &self,
        m: &mut Module,
        reduction: &Reduction,
        values: &[Id],
        kept: u32,
        of: Id,
    ) -> Vec<Id> {
        if self.lanes == kept {
            return values.to_vec();
        }
        for (k, &value) in (0..).zip(values) {
            self.store(m, k, value);
        }
        m.barrier();
        let mut half = self.lanes / 2;
        while half >= kept {
            let limit = m.word(half);
            let joins = m.value(S::ULessThan, Type::Bool, 1, &[self.lane, limit]);
            m.when(joins, |m| {
                for (k, _) in (0..).zip(values) {
                    let a = self.load(m, self.lane, 0, k);
                    let b = self.load(m, self.lane, half, k);
                    let joined = reduction.join(m, a, b);
                    self.store(m, k, joined);
                }
            });
            m.barrier();
            half /= 2;
        }
        let results = (0..)
            .zip(values)
            .map(|(k, _)| self.load(m, of, 0, k))
            .collect();
        // Nobody writes before everybody has read.
        m.barrier();
        results
    }
}

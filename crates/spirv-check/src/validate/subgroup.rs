//! Instructions over a subgroup.

use super::declarations::SUBGROUP;
use super::{Base, Checker, Inst, Result, ensure, length, scope, wrong};
use rspirv::spirv::Op;

impl Checker<'_, '_> {
    pub(super) fn subgroup(&self, inst: &Inst, op: Op) -> Result<()> {
        use Base::{Bool, Float, Int};
        let w = inst.words;
        let capability = match op {
            Op::GroupNonUniformElect => SUBGROUP,
            Op::GroupNonUniformAll | Op::GroupNonUniformAny | Op::GroupNonUniformAllEqual => 62,
            Op::GroupNonUniformBroadcast
            | Op::GroupNonUniformBroadcastFirst
            | Op::GroupNonUniformBallot
            | Op::GroupNonUniformInverseBallot
            | Op::GroupNonUniformBallotBitExtract
            | Op::GroupNonUniformBallotBitCount
            | Op::GroupNonUniformBallotFindLSB
            | Op::GroupNonUniformBallotFindMSB => 64,
            Op::GroupNonUniformShuffle | Op::GroupNonUniformShuffleXor => 65,
            Op::GroupNonUniformShuffleUp | Op::GroupNonUniformShuffleDown => 66,
            Op::GroupNonUniformQuadBroadcast | Op::GroupNonUniformQuadSwap => 68,
            Op::GroupNonUniformIAdd
            | Op::GroupNonUniformFAdd
            | Op::GroupNonUniformIMul
            | Op::GroupNonUniformFMul
            | Op::GroupNonUniformSMin
            | Op::GroupNonUniformUMin
            | Op::GroupNonUniformFMin
            | Op::GroupNonUniformSMax
            | Op::GroupNonUniformUMax
            | Op::GroupNonUniformFMax
            | Op::GroupNonUniformBitwiseAnd
            | Op::GroupNonUniformBitwiseOr
            | Op::GroupNonUniformBitwiseXor
            | Op::GroupNonUniformLogicalAnd
            | Op::GroupNonUniformLogicalOr
            | Op::GroupNonUniformLogicalXor => {
                if w.get(4) == Some(&3) {
                    67
                } else {
                    63
                }
            }
            _ => return Err(wrong(inst, "is not allowed")),
        };
        ensure(inst, self.has(capability), "lacks its capability")?;
        ensure(
            inst,
            w.len() >= 4 && self.fixed(w[3]) == Some(scope::SUBGROUP),
            "is of another scope than subgroup",
        )?;
        let result = self.result_shape(inst)?;
        let flag = result.base == Bool && result.count == 1;
        let word = result.base == Int && result.count == 1 && result.width == 32;
        let ballot = |at: usize| -> Result<bool> {
            let shape = self.shape_of(inst, at)?;
            Ok(shape.base == Int && shape.width == 32 && shape.count == 4)
        };
        let fits = match op {
            Op::GroupNonUniformElect => w.len() == 4 && flag,
            Op::GroupNonUniformAll | Op::GroupNonUniformAny => {
                w.len() == 5 && flag && self.value(inst, w[4])? == w[1]
            }
            Op::GroupNonUniformAllEqual => w.len() == 5 && flag && self.shape_of(inst, 4).is_ok(),
            Op::GroupNonUniformBallot => {
                let is = result.base == Int && result.width == 32 && result.count == 4;
                w.len() == 5
                    && is
                    && self.shape_of(inst, 4)?.base == Bool
                    && self.shape_of(inst, 4)?.count == 1
            }
            Op::GroupNonUniformInverseBallot => w.len() == 5 && flag && ballot(4)?,
            Op::GroupNonUniformBallotBitExtract => {
                w.len() == 6 && flag && ballot(4)? && self.is_index(inst, w[5])?
            }
            Op::GroupNonUniformBallotBitCount => w.len() == 6 && word && w[4] <= 2 && ballot(5)?,
            Op::GroupNonUniformBallotFindLSB | Op::GroupNonUniformBallotFindMSB => {
                w.len() == 5 && word && ballot(4)?
            }
            Op::GroupNonUniformBroadcastFirst => w.len() == 5 && self.value(inst, w[4])? == w[1],
            Op::GroupNonUniformBroadcast
            | Op::GroupNonUniformQuadBroadcast
            | Op::GroupNonUniformQuadSwap => {
                length(inst, 6)?;
                let most = match op {
                    Op::GroupNonUniformBroadcast => u64::MAX,
                    Op::GroupNonUniformQuadBroadcast => 4,
                    _ => 3,
                };
                // Compilers treat a lane that is not constant as a different instruction.
                self.value(inst, w[4])? == w[1]
                    && self.is_index(inst, w[5])?
                    && self.fixed(w[5]).is_some_and(|lane| lane < most)
            }
            Op::GroupNonUniformShuffle
            | Op::GroupNonUniformShuffleXor
            | Op::GroupNonUniformShuffleUp
            | Op::GroupNonUniformShuffleDown => {
                w.len() == 6
                    && self.value(inst, w[4])? == w[1]
                    && self.is_index(inst, w[5])?
                    && self.shape_of(inst, 5)?.width == 32
            }
            _ => {
                let base = match op {
                    Op::GroupNonUniformFAdd
                    | Op::GroupNonUniformFMul
                    | Op::GroupNonUniformFMin
                    | Op::GroupNonUniformFMax => Float,
                    Op::GroupNonUniformLogicalAnd
                    | Op::GroupNonUniformLogicalOr
                    | Op::GroupNonUniformLogicalXor => Bool,
                    _ => Int,
                };
                let words = match w.get(4) {
                    Some(0..=2) => 6,
                    Some(3) => 7,
                    _ => return Err(wrong(inst, "is not a group operation allowed here")),
                };
                length(inst, words)?;
                let cluster = words == 6
                    || self
                        .fixed(w[6])
                        .is_some_and(|n| n.is_power_of_two() && n <= 128);
                cluster && result.base == base && self.value(inst, w[5])? == w[1]
            }
        };
        ensure(inst, fits, "takes or returns types that it must not")
    }
}

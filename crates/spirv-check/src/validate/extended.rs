//! The instructions of GLSL.std.450.

use super::{Base, Checker, Def, Inst, Result, Type, ensure, length, wrong};
use rspirv::spirv::GlslStd450Op as G;

impl Checker<'_, '_> {
    pub(super) fn extended(&self, inst: &Inst) -> Result<()> {
        use Base::{Float, Int};
        let w = inst.words;
        ensure(
            inst,
            w.len() >= 6 && matches!(self.def(w[3]), Def::Set),
            "is of an unknown set",
        )?;
        let Some(op) = G::from_u32(w[4]) else {
            return Err(wrong(inst, format!("{} is not known", w[4])));
        };
        let narrow = |inst: &Inst| -> Result<()> {
            let width = self.result_shape(inst)?.width;
            ensure(inst, width <= 32, "is of too wide a float")
        };
        let word = |inst: &Inst| -> Result<()> {
            let width = self.result_shape(inst)?.width;
            ensure(inst, width == 32, "is not of 32 bits")
        };
        match op {
            G::Round
            | G::RoundEven
            | G::Trunc
            | G::FAbs
            | G::FSign
            | G::Floor
            | G::Ceil
            | G::Fract
            | G::Sqrt
            | G::InverseSqrt
            | G::Normalize => self.alike(inst, 5, 1, Float),
            G::Radians
            | G::Degrees
            | G::Sin
            | G::Cos
            | G::Tan
            | G::Asin
            | G::Acos
            | G::Atan
            | G::Sinh
            | G::Cosh
            | G::Tanh
            | G::Asinh
            | G::Acosh
            | G::Atanh
            | G::Exp
            | G::Log
            | G::Exp2
            | G::Log2 => {
                self.alike(inst, 5, 1, Float)?;
                narrow(inst)
            }
            G::Atan2 | G::Pow => {
                self.alike(inst, 5, 2, Float)?;
                narrow(inst)
            }
            G::FMin | G::FMax | G::NMin | G::NMax | G::Step | G::Reflect => {
                self.alike(inst, 5, 2, Float)
            }
            G::FClamp | G::NClamp | G::FMix | G::SmoothStep | G::Fma | G::FaceForward => {
                self.alike(inst, 5, 3, Float)
            }
            G::SAbs | G::SSign => self.alike(inst, 5, 1, Int),
            G::UMin | G::SMin | G::UMax | G::SMax => self.alike(inst, 5, 2, Int),
            G::UClamp | G::SClamp => self.alike(inst, 5, 3, Int),
            G::FindILsb | G::FindSMsb | G::FindUMsb => {
                self.alike(inst, 5, 1, Int)?;
                word(inst)
            }
            G::Ldexp => {
                length(inst, 7)?;
                let (result, x, exp) = (
                    self.result_shape(inst)?,
                    self.shape_of(inst, 5)?,
                    self.shape_of(inst, 6)?,
                );
                let fits = result.base == Float
                    && x == result
                    && exp.base == Int
                    && exp.count == x.count
                    && exp.width == 32;
                ensure(inst, fits, "takes operands that it must not")
            }
            G::ModfStruct | G::FrexpStruct => {
                length(inst, 6)?;
                let x = self.value(inst, w[5])?;
                let shape = self.shape_of(inst, 5)?;
                let Some(Type::Struct(&[first, second])) = self.type_of(w[1]) else {
                    return Err(wrong(inst, "does not return a pair"));
                };
                let whole = match op {
                    G::ModfStruct => second == x,
                    _ => self
                        .shape(second)
                        .is_some_and(|s| s.base == Int && s.count == shape.count && s.width == 32),
                };
                ensure(
                    inst,
                    shape.base == Float && first == x && whole,
                    "does not return such a pair",
                )
            }
            G::Length | G::Distance => {
                let count = if op == G::Length { 1 } else { 2 };
                length(inst, 5 + count)?;
                let (result, x) = (self.result_shape(inst)?, self.shape_of(inst, 5)?);
                let same = self.shape_of(inst, 4 + count)? == x;
                let fits = result.base == Float
                    && result.count == 1
                    && x.base == Float
                    && x.width == result.width
                    && same;
                ensure(inst, fits, "takes operands that it must not")
            }
            G::Cross => {
                self.alike(inst, 5, 2, Float)?;
                ensure(
                    inst,
                    self.result_shape(inst)?.count == 3,
                    "is not of vectors of 3",
                )
            }
            G::Refract => {
                length(inst, 8)?;
                let (result, eta) = (self.result_shape(inst)?, self.shape_of(inst, 7)?);
                let same = self.shape_of(inst, 5)? == result && self.shape_of(inst, 6)? == result;
                let fits = same
                    && result.base == Float
                    && eta.base == Float
                    && eta.count == 1
                    && eta.width == result.width;
                ensure(inst, fits, "takes operands that it must not")
            }
            G::Determinant | G::MatrixInverse => {
                length(inst, 6)?;
                let x = self.value(inst, w[5])?;
                let fits = match self.type_of(x) {
                    Some(Type::Matrix { column, columns }) => match self.type_of(column) {
                        Some(Type::Vector { of, count }) => {
                            count == columns && w[1] == if op == G::Determinant { of } else { x }
                        }
                        _ => false,
                    },
                    _ => false,
                };
                ensure(inst, fits, "does not match its matrix")
            }
            G::PackSnorm4x8 | G::PackUnorm4x8 => self.packed(inst, (Float, 32, 4), (Int, 32, 1)),
            G::PackSnorm2x16 | G::PackUnorm2x16 | G::PackHalf2x16 => {
                self.packed(inst, (Float, 32, 2), (Int, 32, 1))
            }
            G::UnpackSnorm4x8 | G::UnpackUnorm4x8 => {
                self.packed(inst, (Int, 32, 1), (Float, 32, 4))
            }
            G::UnpackSnorm2x16 | G::UnpackUnorm2x16 | G::UnpackHalf2x16 => {
                self.packed(inst, (Int, 32, 1), (Float, 32, 2))
            }
            G::PackDouble2x32 => self.packed(inst, (Int, 32, 2), (Float, 64, 1)),
            G::UnpackDouble2x32 => self.packed(inst, (Float, 64, 1), (Int, 32, 2)),
            _ => Err(wrong(inst, format!("{op:?} is not allowed"))),
        }
    }

    fn packed(&self, inst: &Inst, from: (Base, u32, u32), to: (Base, u32, u32)) -> Result<()> {
        length(inst, 6)?;
        let (result, x) = (self.result_shape(inst)?, self.shape_of(inst, 5)?);
        let fits =
            (x.base, x.width, x.count) == from && (result.base, result.width, result.count) == to;
        ensure(inst, fits, "takes or returns types that it must not")
    }
}

//! What each operation of a program is in SPIR-V, for one element or a vector of them.
//!
//! Additions, subtractions and products round once each (`NoContraction`), so that a value does not depend on how operations
//! are cut into kernels. Where SPIR-V leaves a result open (integer division by 0, conversions out of range,
//! shifts by more than 31 bits, NaN through built-in functions), it is settled here.

use rspirv::spirv::{GlslStd450Op as G, Op as S};

use super::module::{Id, Module};
use super::program::{Op, Storage, Type};

/// erf(x) / x in powers of x² below 1, within 1.7e-7 of it.
const ERF_SMALL: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_26,
    0.112_835_94,
    -0.026_854_211,
    0.005_189_087,
    -0.000_801_686_4,
    7.875_875e-5,
];
/// The logarithm of erfc in powers of x from 1 to 4, where erf rounds to 1.
const LOG_ERFC: [f32; 8] = [
    -0.000_765_897_57,
    -1.125_893_7,
    -0.639_141_26,
    -0.103_281_12,
    0.022_604_773,
    -0.003_432_351_4,
    0.000_316_937_05,
    -1.327_236_3e-5,
];
/// (tanh(x) / x - 1) / x² in powers of x² below 0.6.
const TANH_SMALL: [f32; 5] = [
    -0.333_333_3,
    0.133_329_15,
    -0.053_873_95,
    0.021_110_96,
    -0.006_269_119_7,
];
/// sin(x) / x and cos(x) in powers of x², by Taylor: exact to f32 below π/4.
const SIN: [f32; 5] = [
    1.0,
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
];
const COS: [f32; 6] = [
    1.0,
    -0.5,
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
];
/// π/2 in three parts: of 8 and 12 bits, so that small multiples are exact, and the rest.
const HALF_PI: [f32; 3] = [1.570_312_5, 0.000_483_870_5, -4.371_139e-8];

/// Emits operations at one width.
pub struct Scalar<'a> {
    pub m: &'a mut Module,
    pub width: u32,
    /// See [`Layout`](super::options::Layout).
    native: bool,
}

impl<'a> Scalar<'a> {
    pub fn new(m: &'a mut Module, width: u32, native: bool) -> Self {
        Self { m, width, native }
    }

    fn f(&mut self, value: f32) -> Id {
        self.m.constant(Type::F32, value.to_bits(), self.width)
    }

    fn u(&mut self, value: u32) -> Id {
        self.m.constant(Type::U32, value, self.width)
    }

    fn make(&mut self, op: S, ty: Type, args: &[Id]) -> Id {
        self.m.value(op, ty, self.width, args)
    }

    fn exact(&mut self, op: S, args: &[Id]) -> Id {
        self.m.exact(op, self.width, args)
    }

    fn add(&mut self, a: Id, b: Id) -> Id {
        self.exact(S::FAdd, &[a, b])
    }

    fn sub(&mut self, a: Id, b: Id) -> Id {
        self.exact(S::FSub, &[a, b])
    }

    fn mul(&mut self, a: Id, b: Id) -> Id {
        self.exact(S::FMul, &[a, b])
    }

    fn select(&mut self, ty: Type, condition: Id, a: Id, b: Id) -> Id {
        self.make(S::Select, ty, &[condition, a, b])
    }

    fn glsl(&mut self, op: G, ty: Type, args: &[Id]) -> Id {
        let mut words = vec![self.m.glsl, op as u32];
        words.extend_from_slice(args);
        self.make(S::ExtInst, ty, &words)
    }

    fn bits(&mut self, to: Type, x: Id) -> Id {
        self.make(S::Bitcast, to, &[x])
    }

    /// By the bits: a driver may take it that no f32 is a NaN.
    pub fn is_nan(&mut self, x: Id) -> Id {
        let bits = self.bits(Type::U32, x);
        let (mask, infinity) = (self.u(0x7fff_ffff), self.u(0x7f80_0000));
        let magnitude = self.make(S::BitwiseAnd, Type::U32, &[bits, mask]);
        self.make(S::UGreaterThan, Type::Bool, &[magnitude, infinity])
    }

    /// `y`, and NaN where `x` is. NVIDIA's compiler makes a minimum of a comparison and a selection, which loses it.
    fn or_nan(&mut self, x: Id, y: Id) -> Id {
        let nan = self.is_nan(x);
        self.select(Type::F32, nan, x, y)
    }

    /// A built-in function that gives NaN for NaN.
    fn propagating(&mut self, op: G, x: Id) -> Id {
        let y = self.glsl(op, Type::F32, &[x]);
        if self.native { y } else { self.or_nan(x, y) }
    }

    /// a · b + c, in one rounding where the device has that.
    fn multiply_add(&mut self, a: Id, b: Id, c: Id) -> Id {
        if self.native {
            return self.glsl(G::Fma, Type::F32, &[a, b, c]);
        }
        let product = self.mul(a, b);
        self.add(product, c)
    }

    /// Horner's scheme, the constant term first.
    fn polynomial(&mut self, coefficients: &[f32], x: Id) -> Id {
        let mut rest = coefficients.iter().rev();
        let mut sum = self.f(rest.next().copied().unwrap_or(0.0));
        for &coefficient in rest {
            let c = self.f(coefficient);
            sum = self.multiply_add(sum, x, c);
        }
        sum
    }

    /// The magnitude of one with the sign of another.
    fn with_sign(&mut self, magnitude: Id, sign: Id) -> Id {
        let (low, high) = (self.u(0x7fff_ffff), self.u(0x8000_0000));
        let (m, s) = (self.bits(Type::U32, magnitude), self.bits(Type::U32, sign));
        let m = self.make(S::BitwiseAnd, Type::U32, &[m, low]);
        let s = self.make(S::BitwiseAnd, Type::U32, &[s, high]);
        let both = self.make(S::BitwiseOr, Type::U32, &[m, s]);
        self.bits(Type::F32, both)
    }

    fn erf(&mut self, x: Id) -> Id {
        let a = self.glsl(G::FAbs, Type::F32, &[x]);
        let z = self.mul(x, x);
        let p = self.polynomial(&ERF_SMALL, z);
        let small = self.mul(x, p);
        let four = self.f(4.0);
        let beyond = self.make(S::FOrdGreaterThan, Type::Bool, &[a, four]);
        let capped = self.select(Type::F32, beyond, four, a);
        let q = self.polynomial(&LOG_ERFC, capped);
        let complement = self.glsl(G::Exp, Type::F32, &[q]);
        let one = self.f(1.0);
        let large = self.sub(one, complement);
        let large = self.with_sign(large, x);
        let is_small = self.make(S::FOrdLessThan, Type::Bool, &[a, one]);
        let y = self.select(Type::F32, is_small, small, large);
        self.or_nan(x, y)
    }

    fn tanh(&mut self, x: Id) -> Id {
        let a = self.glsl(G::FAbs, Type::F32, &[x]);
        let z = self.mul(x, x);
        let p = self.polynomial(&TANH_SMALL, z);
        let p = self.mul(z, p);
        let small = self.multiply_add(x, p, x);
        // 1 - 2 / (e + 1) of e = exp(2 |x|).
        let (one, two) = (self.f(1.0), self.f(2.0));
        let large = if self.native {
            // e may be infinite: the quotient is 0 then.
            let factor = self.f(2.0 * std::f32::consts::LOG2_E);
            let exponent = self.mul(a, factor);
            let e = self.glsl(G::Exp2, Type::F32, &[exponent]);
            let e = self.add(e, one);
            let inverse = self.exact(S::FDiv, &[one, e]);
            let minus_two = self.f(-2.0);
            self.multiply_add(minus_two, inverse, one)
        } else {
            // From 10 on tanh rounds to 1, and the exponential stays finite.
            let ten = self.f(10.0);
            let beyond = self.make(S::FOrdGreaterThan, Type::Bool, &[a, ten]);
            let capped = self.select(Type::F32, beyond, ten, a);
            let doubled = self.add(capped, capped);
            let e = self.glsl(G::Exp, Type::F32, &[doubled]);
            let e = self.add(e, one);
            let q = self.exact(S::FDiv, &[two, e]);
            self.sub(one, q)
        };
        let large = self.with_sign(large, x);
        let limit = self.f(0.6);
        let is_small = self.make(S::FOrdLessThan, Type::Bool, &[a, limit]);
        let y = self.select(Type::F32, is_small, small, large);
        if self.native { y } else { self.or_nan(x, y) }
    }

    /// Sine and cosine, after subtracting the nearest multiple of π/2.
    fn sin_cos(&mut self, x: Id) -> (Id, Id) {
        let inverse = self.f(std::f32::consts::FRAC_2_PI);
        let n = self.mul(x, inverse);
        let n = self.glsl(G::RoundEven, Type::F32, &[n]);
        let mut r = x;
        for part in HALF_PI {
            let part = self.f(part);
            let product = self.mul(n, part);
            r = self.sub(r, product);
        }
        let z = self.mul(r, r);
        let s = self.polynomial(&SIN, z);
        let s = self.mul(s, r);
        let c = self.polynomial(&COS, z);
        let quadrant = self.float_to_i32(n);
        let quadrant = self.bits(Type::U32, quadrant);
        let (zero, one, two) = (self.u(0), self.u(1), self.u(2));
        let odd = self.make(S::BitwiseAnd, Type::U32, &[quadrant, one]);
        let odd = self.make(S::INotEqual, Type::Bool, &[odd, zero]);
        let next = self.make(S::IAdd, Type::U32, &[quadrant, one]);
        let part = |this: &mut Self, straight, crossed, at| {
            let value = this.select(Type::F32, odd, crossed, straight);
            let minus = this.make(S::BitwiseAnd, Type::U32, &[at, two]);
            let minus = this.make(S::INotEqual, Type::Bool, &[minus, zero]);
            let negated = this.make(S::FNegate, Type::F32, &[value]);
            this.select(Type::F32, minus, negated, value)
        };
        let sine = part(self, s, c, quadrant);
        let cosine = part(self, c, s, next);
        (sine, cosine)
    }

    /// x to the power of y as in C: 2^(y log2 |x|), with the sign of x for odd y, and NaN for finite x < 0 unless y is whole.
    fn pow(&mut self, x: Id, y: Id) -> Id {
        let (zero, half, one, nan) = (
            self.f(0.0),
            self.f(0.5),
            self.f(1.0),
            self.f(f32::from_bits(0x7fc0_0000)),
        );
        let a = self.glsl(G::FAbs, Type::F32, &[x]);
        let log = self.propagating(G::Log2, a);
        let exponent = self.mul(y, log);
        let magnitude = self.propagating(G::Exp2, exponent);
        let whole = self.glsl(G::Floor, Type::F32, &[y]);
        let is_whole = self.make(S::FOrdEqual, Type::Bool, &[whole, y]);
        let halved = self.mul(y, half);
        let floor = self.glsl(G::Floor, Type::F32, &[halved]);
        let is_even = self.make(S::FOrdEqual, Type::Bool, &[floor, halved]);
        let negated = self.make(S::FNegate, Type::F32, &[magnitude]);
        let of_whole = self.select(Type::F32, is_even, magnitude, negated);
        let infinity = self.f(f32::INFINITY);
        let x_infinite = self.make(S::FOrdEqual, Type::Bool, &[a, infinity]);
        let real = self.make(S::LogicalOr, Type::Bool, &[is_whole, x_infinite]);
        let of_whole = self.select(Type::F32, is_whole, of_whole, magnitude);
        let of_negative = self.select(Type::F32, real, of_whole, nan);
        let negative = self.make(S::FOrdLessThan, Type::Bool, &[x, zero]);
        let power = self.select(Type::F32, negative, of_negative, magnitude);
        // 0 to a power, by the power's sign; logarithms of 0 are not every device's.
        let below = self.make(S::FOrdLessThan, Type::Bool, &[y, zero]);
        let of_zero = self.select(Type::F32, below, infinity, zero);
        let y_nan = self.is_nan(y);
        let of_zero = self.select(Type::F32, y_nan, y, of_zero);
        let not_even = self.make(S::LogicalNot, Type::Bool, &[is_even]);
        let is_odd = self.make(S::LogicalAnd, Type::Bool, &[is_whole, not_even]);
        let signed = self.with_sign(of_zero, x);
        let of_zero = self.select(Type::F32, is_odd, signed, of_zero);
        let is_zero = self.make(S::FOrdEqual, Type::Bool, &[x, zero]);
        let power = self.select(Type::F32, is_zero, of_zero, power);
        // Of 1, and to 0: 1, also where the other is NaN. So of -1 to an infinity.
        let is_one = self.make(S::FOrdEqual, Type::Bool, &[x, one]);
        let to_zero = self.make(S::FOrdEqual, Type::Bool, &[y, zero]);
        let trivial = self.make(S::LogicalOr, Type::Bool, &[is_one, to_zero]);
        let y_size = self.glsl(G::FAbs, Type::F32, &[y]);
        let y_infinite = self.make(S::FOrdEqual, Type::Bool, &[y_size, infinity]);
        let of_unit = self.make(S::FOrdEqual, Type::Bool, &[a, one]);
        let of_unit = self.make(S::LogicalAnd, Type::Bool, &[of_unit, y_infinite]);
        let trivial = self.make(S::LogicalOr, Type::Bool, &[trivial, of_unit]);
        self.select(Type::F32, trivial, one, power)
    }

    /// Towards zero; the nearest i32 outside of its range, and 0 for NaN.
    fn float_to_i32(&mut self, x: Id) -> Id {
        let (low, high) = (self.f(-2_147_483_648.0), self.f(2_147_483_648.0));
        let inside = {
            let above = self.make(S::FOrdGreaterThanEqual, Type::Bool, &[x, low]);
            let below = self.make(S::FOrdLessThan, Type::Bool, &[x, high]);
            self.make(S::LogicalAnd, Type::Bool, &[above, below])
        };
        let zero = self.f(0.0);
        let safe = self.select(Type::F32, inside, x, zero);
        let converted = self.make(S::ConvertFToS, Type::I32, &[safe]);
        let least = self.m.constant(Type::I32, 0x8000_0000, self.width);
        let most = self.m.constant(Type::I32, 0x7fff_ffff, self.width);
        let is_low = self.make(S::FOrdLessThan, Type::Bool, &[x, low]);
        let is_high = self.make(S::FOrdGreaterThanEqual, Type::Bool, &[x, high]);
        let converted = self.select(Type::I32, is_low, least, converted);
        self.select(Type::I32, is_high, most, converted)
    }

    fn float_to_u32(&mut self, x: Id) -> Id {
        let (zero, high) = (self.f(0.0), self.f(4_294_967_296.0));
        let above = self.make(S::FOrdGreaterThan, Type::Bool, &[x, zero]);
        let below = self.make(S::FOrdLessThan, Type::Bool, &[x, high]);
        let inside = self.make(S::LogicalAnd, Type::Bool, &[above, below]);
        let safe = self.select(Type::F32, inside, x, zero);
        let converted = self.make(S::ConvertFToU, Type::U32, &[safe]);
        let most = self.u(u32::MAX);
        let is_high = self.make(S::FOrdGreaterThanEqual, Type::Bool, &[x, high]);
        self.select(Type::U32, is_high, most, converted)
    }

    pub fn convert(&mut self, from: Type, to: Type, x: Id) -> Id {
        use Type::*;
        match (from, to) {
            (F32, I32) => self.float_to_i32(x),
            (F32, U32) => self.float_to_u32(x),
            (F32, Bool) => {
                let zero = self.f(0.0);
                self.make(S::FUnordNotEqual, Bool, &[x, zero])
            }
            (I32, F32) => self.make(S::ConvertSToF, F32, &[x]),
            (U32, F32) => {
                // By halves, which are exact, so that the sum is the one rounding: not every driver's own is.
                let (sixteen, low, scale) = (self.u(16), self.u(0xffff), self.f(65_536.0));
                let high = self.make(S::ShiftRightLogical, U32, &[x, sixteen]);
                let low = self.make(S::BitwiseAnd, U32, &[x, low]);
                let high = self.make(S::ConvertUToF, F32, &[high]);
                let low = self.make(S::ConvertUToF, F32, &[low]);
                let high = self.mul(high, scale);
                self.add(high, low)
            }
            (I32, U32) | (U32, I32) => self.bits(to, x),
            (I32 | U32, Bool) => {
                let zero = self.m.constant(from, 0, self.width);
                self.make(S::INotEqual, Bool, &[x, zero])
            }
            (Bool, _) if to != Bool => {
                let one = if to == F32 { 1f32.to_bits() } else { 1 };
                let zero = self.m.constant(to, 0, self.width);
                let one = self.m.constant(to, one, self.width);
                self.select(to, x, one, zero)
            }
            _ => x,
        }
    }

    /// Quotient or remainder. By 0 the quotient is 0 and the remainder the dividend; the least i32 by -1 is itself.
    fn divide(&mut self, ty: Type, quotient: bool, a: Id, b: Id) -> Id {
        let zero = self.m.constant(ty, 0, self.width);
        let one = self.m.constant(ty, 1, self.width);
        let by_zero = self.make(S::IEqual, Type::Bool, &[b, zero]);
        let mut special = by_zero;
        let by_minus_one = (ty == Type::I32).then(|| {
            let minus_one = self.m.constant(ty, u32::MAX, self.width);
            self.make(S::IEqual, Type::Bool, &[b, minus_one])
        });
        if let Some(minus) = by_minus_one {
            special = self.make(S::LogicalOr, Type::Bool, &[by_zero, minus]);
        }
        let divisor = self.select(ty, special, one, b);
        let op = if ty == Type::I32 { S::SDiv } else { S::UDiv };
        let mut q = self.make(op, ty, &[a, divisor]);
        if let Some(minus) = by_minus_one {
            let negated = self.make(S::SNegate, ty, &[a]);
            q = self.select(ty, minus, negated, q);
        }
        q = self.select(ty, by_zero, zero, q);
        if quotient {
            return q;
        }
        let product = self.make(S::IMul, ty, &[q, b]);
        self.make(S::ISub, ty, &[a, product])
    }

    /// a / b. Vulkan bounds the error for divisors from 2^-126 to 2^126 alone. Beyond, the quotient of NVIDIA's devices is 0, since the
    /// reciprocal that they multiply by is subnormal; so both are divided by 4 there.
    fn quotient(&mut self, a: Id, b: Id) -> Id {
        let one = self.f(1.0);
        // 1 / b is subnormal itself beyond.
        if a == one {
            return self.exact(S::FDiv, &[a, b]);
        }
        let (limit, quarter) = (self.f(2f32.powi(126)), self.f(0.25));
        let size = self.glsl(G::FAbs, Type::F32, &[b]);
        let is_large = self.make(S::FOrdGreaterThan, Type::Bool, &[size, limit]);
        let scale = self.select(Type::F32, is_large, quarter, one);
        let (a, b) = (self.mul(a, scale), self.mul(b, scale));
        self.exact(S::FDiv, &[a, b])
    }

    /// The larger or smaller; NaN where either is.
    fn extreme(&mut self, ty: Type, largest: bool, a: Id, b: Id) -> Id {
        let op = match (ty, largest) {
            (Type::I32, true) => S::SGreaterThan,
            (Type::I32, false) => S::SLessThan,
            (Type::F32, true) => S::FOrdGreaterThan,
            (Type::F32, false) => S::FOrdLessThan,
            (_, true) => S::UGreaterThan,
            (_, false) => S::ULessThan,
        };
        let mut first = self.make(op, Type::Bool, &[a, b]);
        if ty == Type::F32 {
            let nan = self.is_nan(a);
            first = self.make(S::LogicalOr, Type::Bool, &[first, nan]);
        }
        self.select(ty, first, a, b)
    }

    fn compare(&mut self, op: Op, of: Type, a: Id, b: Id) -> Id {
        let (float, signed, unsigned) = match op {
            Op::Eq => (S::FOrdEqual, S::IEqual, S::IEqual),
            Op::Ne => (S::FUnordNotEqual, S::INotEqual, S::INotEqual),
            Op::Lt => (S::FOrdLessThan, S::SLessThan, S::ULessThan),
            Op::Le => (S::FOrdLessThanEqual, S::SLessThanEqual, S::ULessThanEqual),
            Op::Gt => (S::FOrdGreaterThan, S::SGreaterThan, S::UGreaterThan),
            _ => (
                S::FOrdGreaterThanEqual,
                S::SGreaterThanEqual,
                S::UGreaterThanEqual,
            ),
        };
        let op = match of {
            Type::F32 => float,
            Type::I32 => signed,
            Type::U32 => unsigned,
            Type::Bool if op == Op::Eq => S::LogicalEqual,
            Type::Bool => S::LogicalNotEqual,
        };
        self.make(op, Type::Bool, &[a, b])
    }

    /// -1, 0 or 1; NaN for NaN.
    fn sign(&mut self, ty: Type, x: Id) -> Id {
        let one = if ty == Type::F32 { 1f32.to_bits() } else { 1 };
        let (zero, one) = (
            self.m.constant(ty, 0, self.width),
            self.m.constant(ty, one, self.width),
        );
        let (above, below) = match ty {
            Type::F32 => (S::FOrdGreaterThan, S::FOrdLessThan),
            Type::I32 => (S::SGreaterThan, S::SLessThan),
            _ => (S::UGreaterThan, S::ULessThan),
        };
        let above = self.make(above, Type::Bool, &[x, zero]);
        let mut y = self.select(ty, above, one, x);
        if ty != Type::U32 {
            let minus = match ty {
                Type::F32 => (-1f32).to_bits(),
                _ => u32::MAX,
            };
            let minus = self.m.constant(ty, minus, self.width);
            let below = self.make(below, Type::Bool, &[x, zero]);
            y = self.select(ty, below, minus, y);
        }
        y
    }

    /// The result of an operation of `of` operands that gives `ty`; constants, indices and values of memory are not here.
    pub fn emit(&mut self, op: Op, ty: Type, of: Type, args: &[Id]) -> Id {
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        let float = of == Type::F32;
        match op {
            Op::ToF32 | Op::ToI32 | Op::ToU32 | Op::ToBool => self.convert(of, ty, a),
            Op::Bits if of == ty => a,
            Op::Bits => self.bits(ty, a),
            Op::Add if float => self.add(a, b),
            Op::Sub if float => self.sub(a, b),
            Op::Mul if float => self.mul(a, b),
            Op::Div if float => self.quotient(a, b),
            Op::Add => self.make(S::IAdd, ty, &[a, b]),
            Op::Sub => self.make(S::ISub, ty, &[a, b]),
            Op::Mul => self.make(S::IMul, ty, &[a, b]),
            Op::Div => self.divide(ty, true, a, b),
            Op::Rem => self.divide(ty, false, a, b),
            Op::Max => self.extreme(ty, true, a, b),
            Op::Min => self.extreme(ty, false, a, b),
            Op::Neg if float => self.make(S::FNegate, ty, &[a]),
            Op::Neg => self.make(S::SNegate, ty, &[a]),
            Op::Abs if float => self.glsl(G::FAbs, ty, &[a]),
            Op::Abs if of == Type::I32 => self.glsl(G::SAbs, ty, &[a]),
            Op::Abs => a,
            Op::Sign => self.sign(ty, a),
            Op::Sqrt => self.propagating(G::Sqrt, a),
            Op::Rsqrt => self.propagating(G::InverseSqrt, a),
            Op::Exp => self.propagating(G::Exp, a),
            Op::Log => self.propagating(G::Log, a),
            Op::Exp2 => self.propagating(G::Exp2, a),
            Op::Log2 => self.propagating(G::Log2, a),
            Op::Sin => self.sin_cos(a).0,
            Op::Cos => self.sin_cos(a).1,
            Op::Tan => {
                let (s, c) = self.sin_cos(a);
                self.exact(S::FDiv, &[s, c])
            }
            Op::Tanh => self.tanh(a),
            Op::Erf => self.erf(a),
            Op::Pow => self.pow(a, b),
            Op::Floor => self.glsl(G::Floor, ty, &[a]),
            Op::Ceil => self.glsl(G::Ceil, ty, &[a]),
            Op::Trunc => self.glsl(G::Trunc, ty, &[a]),
            Op::Round => self.glsl(G::RoundEven, ty, &[a]),
            Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge => self.compare(op, of, a, b),
            Op::Select => self.select(ty, a, b, args[2]),
            Op::And if ty == Type::Bool => self.make(S::LogicalAnd, ty, &[a, b]),
            Op::Or if ty == Type::Bool => self.make(S::LogicalOr, ty, &[a, b]),
            Op::Xor if ty == Type::Bool => self.make(S::LogicalNotEqual, ty, &[a, b]),
            Op::Not if ty == Type::Bool => self.make(S::LogicalNot, ty, &[a]),
            Op::And => self.make(S::BitwiseAnd, ty, &[a, b]),
            Op::Or => self.make(S::BitwiseOr, ty, &[a, b]),
            Op::Xor => self.make(S::BitwiseXor, ty, &[a, b]),
            Op::Not => self.make(S::Not, ty, &[a]),
            Op::Shl | Op::Shr => {
                let mask = self.m.constant(ty, 31, self.width);
                let amount = self.make(S::BitwiseAnd, ty, &[b, mask]);
                let op = match (op, ty) {
                    (Op::Shl, _) => S::ShiftLeftLogical,
                    (_, Type::I32) => S::ShiftRightArithmetic,
                    _ => S::ShiftRightLogical,
                };
                self.make(op, ty, &[a, amount])
            }
            Op::IsNan => self.is_nan(a),
            // The caller's.
            Op::Const | Op::Index | Op::ReduceSum | Op::ReduceMax | Op::ReduceMin => a,
        }
    }

    // ---- halves

    /// f16 or bf16 in the low 16 bits of words, as f32: exact.
    pub fn of_half(&mut self, bf16: bool, bits: Id) -> Id {
        if bf16 {
            let sixteen = self.u(16);
            let high = self.make(S::ShiftLeftLogical, Type::U32, &[bits, sixteen]);
            return self.bits(Type::F32, high);
        }
        // By integers, as UnpackHalf2x16 may flush what is below 2^-14.
        let (magnitude, infinite, normal) = (self.u(0x7fff), self.u(0x7c00), self.u(0x400));
        let (thirteen, sixteen, bias, sign) =
            (self.u(13), self.u(16), self.u(112 << 23), self.u(0x8000));
        let m = self.make(S::BitwiseAnd, Type::U32, &[bits, magnitude]);
        let wide = self.make(S::ShiftLeftLogical, Type::U32, &[m, thirteen]);
        let shifted = self.make(S::IAdd, Type::U32, &[wide, bias]);
        let twice = self.make(S::IAdd, Type::U32, &[shifted, bias]);
        let is_infinite = self.make(S::UGreaterThanEqual, Type::Bool, &[m, infinite]);
        let value = self.select(Type::U32, is_infinite, twice, shifted);
        let tiny = {
            let integer = self.make(S::ConvertUToF, Type::F32, &[m]);
            let unit = self.f(1.0 / 16_777_216.0);
            let product = self.mul(integer, unit);
            self.bits(Type::U32, product)
        };
        let is_tiny = self.make(S::ULessThan, Type::Bool, &[m, normal]);
        let value = self.select(Type::U32, is_tiny, tiny, value);
        let s = self.make(S::BitwiseAnd, Type::U32, &[bits, sign]);
        let s = self.make(S::ShiftLeftLogical, Type::U32, &[s, sixteen]);
        let value = self.make(S::BitwiseOr, Type::U32, &[value, s]);
        self.bits(Type::F32, value)
    }

    /// The words of a value of a type that is no half; of bytes what is above them as well.
    pub fn words_of(&mut self, storage: Storage, value: Id) -> Id {
        match storage {
            Storage::F32 | Storage::I32 | Storage::I8 => self.bits(Type::U32, value),
            Storage::Bool => self.convert(Type::Bool, Type::U32, value),
            _ => value,
        }
    }

    /// Bytes in words, with a sign.
    pub fn of_signed_byte(&mut self, bits: Id) -> Id {
        let shift = self.u(24);
        let up = self.make(S::ShiftLeftLogical, Type::U32, &[bits, shift]);
        let up = self.bits(Type::I32, up);
        self.make(S::ShiftRightArithmetic, Type::I32, &[up, shift])
    }

    /// The nearest f16 or bf16, ties to even, in the low 16 bits of words. NaN stays NaN.
    pub fn round_to_half(&mut self, storage: Storage, x: Id) -> Id {
        if storage == Storage::F16 {
            return self.round_to_f16(x);
        }
        let high = self.round_to_bf16(x, true);
        let sixteen = self.u(16);
        self.make(S::ShiftRightLogical, Type::U32, &[high, sixteen])
    }

    /// The nearest bf16, ties to even, in the high 16 bits of words; the low ones are what they are. NaN stays NaN if it is
    /// looked for.
    pub fn round_to_bf16(&mut self, x: Id, checks: bool) -> Id {
        let bits = self.bits(Type::U32, x);
        let (half, sixteen, one) = (self.u(0x7fff), self.u(16), self.u(1));
        let last = self.make(S::ShiftRightLogical, Type::U32, &[bits, sixteen]);
        let last = self.make(S::BitwiseAnd, Type::U32, &[last, one]);
        // A carry goes no further than the exponent: the largest magnitude that is no NaN is infinity's.
        let up = self.make(S::IAdd, Type::U32, &[last, half]);
        let rounded = self.make(S::IAdd, Type::U32, &[bits, up]);
        if !checks {
            return rounded;
        }
        let nan = self.is_nan(x);
        let quiet = self.u(0x7fc0_0000);
        let quiet = self.make(S::BitwiseOr, Type::U32, &[bits, quiet]);
        self.select(Type::U32, nan, quiet, rounded)
    }

    /// The nearest f16, ties to even, in the low 16 bits of words. NaN stays NaN.
    fn round_to_f16(&mut self, x: Id) -> Id {
        let bits = self.bits(Type::U32, x);
        let (low, sixteen, one) = (self.u(0x7fff_ffff), self.u(16), self.u(1));
        let m = self.make(S::BitwiseAnd, Type::U32, &[bits, low]);
        let infinity = self.u(0x7f80_0000);
        let nan = self.make(S::UGreaterThan, Type::Bool, &[m, infinity]);
        let (shift, half) = (self.u(13), self.u((1 << 12) - 1));
        let last = self.make(S::ShiftRightLogical, Type::U32, &[m, shift]);
        let last = self.make(S::BitwiseAnd, Type::U32, &[last, one]);
        let up = self.make(S::IAdd, Type::U32, &[last, half]);
        let rounded = self.make(S::IAdd, Type::U32, &[m, up]);
        let bias = self.u(112 << 23);
        let normal = self.make(S::ISub, Type::U32, &[rounded, bias]);
        let value = self.make(S::ShiftRightLogical, Type::U32, &[normal, shift]);
        // Below 2^-14 the sum with 0.5 rounds to multiples of 2^-24, the distance of small f16.
        let half = self.f(0.5);
        let magnitude = self.bits(Type::F32, m);
        let sum = self.add(magnitude, half);
        let (sum, half) = (self.bits(Type::U32, sum), self.bits(Type::U32, half));
        let tiny = self.make(S::ISub, Type::U32, &[sum, half]);
        let least = self.u(0x3880_0000);
        let is_tiny = self.make(S::ULessThan, Type::Bool, &[m, least]);
        let value = self.select(Type::U32, is_tiny, tiny, value);
        let (largest, infinite, quiet) = (self.u(0x477f_f000), self.u(0x7c00), self.u(0x7e00));
        let is_large = self.make(S::UGreaterThanEqual, Type::Bool, &[m, largest]);
        let value = self.select(Type::U32, is_large, infinite, value);
        let value = self.select(Type::U32, nan, quiet, value);
        let sign = self.u(0x8000);
        let s = self.make(S::ShiftRightLogical, Type::U32, &[bits, sixteen]);
        let s = self.make(S::BitwiseAnd, Type::U32, &[s, sign]);
        self.make(S::BitwiseOr, Type::U32, &[value, s])
    }
}

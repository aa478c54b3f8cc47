//! Operands of each instruction in a function: kinds, types, and whether they are defined there.

use super::declarations::DOT_PRODUCT;
use super::{
    Base, Checker, Def, Function, Inst, Result, Shape, Type, class, ensure, length, scope, wrong,
};
use rspirv::spirv::Op;

/// Largest number of values that one instruction may load or make.
const MAX_VALUE: u64 = 1 << 12;

impl<'a> Checker<'_, 'a> {
    pub(super) fn instructions(&self, function: &Function<'a>) -> Result<()> {
        let result = self.signature(function)?;
        let mut ids = Vec::new();
        for (b, block) in function.blocks.iter().enumerate() {
            let mut variables = b == 0;
            let mut phis = b != 0;
            for (k, inst) in block.instructions.iter().enumerate() {
                let op = inst.op();
                phis &= op == Some(Op::Phi);
                variables &= op == Some(Op::Variable);
                match op {
                    Some(Op::Phi) => {
                        ensure(inst, phis, "does not come first in its block")?;
                        self.phi(function, b, inst)?;
                        continue;
                    }
                    Some(Op::Variable) => {
                        ensure(inst, variables, "does not come first in its function")?;
                        self.local(inst)?;
                        continue;
                    }
                    // Their labels were checked already.
                    Some(
                        Op::Branch
                        | Op::SelectionMerge
                        | Op::LoopMerge
                        | Op::Return
                        | Op::Unreachable,
                    ) => {
                        let void = self.type_of(result) == Some(Type::Void);
                        ensure(inst, op != Some(Op::Return) || void, "returns no value")?;
                        continue;
                    }
                    Some(Op::BranchConditional) => ids = vec![inst.words[1]],
                    Some(Op::Switch) => ids = vec![inst.words[1]],
                    _ => inst.operand_ids(self.module.bound, &mut ids)?,
                }
                if let (Some(ty), _) = inst.result(self.module.bound)? {
                    ensure(inst, self.type_of(ty).is_some(), "has no type")?;
                }
                for &id in &ids {
                    ensure(
                        inst,
                        self.available(function, id, b, k + 1),
                        &format!("uses %{id}, which is not defined there"),
                    )?;
                }
                match op {
                    Some(Op::BranchConditional) => {
                        let w = inst.words;
                        let differ = self.version < 0x1_0600 || w[2] != w[3];
                        ensure(inst, differ, "names one label twice")?;
                        let ty = self.value(inst, inst.words[1])?;
                        ensure(
                            inst,
                            self.type_of(ty) == Some(Type::Bool),
                            "branches on something that is not a boolean",
                        )?;
                    }
                    Some(Op::Switch) => {
                        let shape = self.shape(self.value(inst, inst.words[1])?);
                        let fits = shape
                            .is_some_and(|s| s.base == Base::Int && s.count == 1 && s.width == 32);
                        ensure(inst, fits, "has a selector that is not of 32 bits")?;
                        let mut cases: Vec<u32> = inst.words[3..].chunks(2).map(|c| c[0]).collect();
                        cases.sort_unstable();
                        ensure(
                            inst,
                            cases.windows(2).all(|c| c[0] != c[1]),
                            "repeats a case",
                        )?;
                    }
                    Some(Op::ReturnValue) => {
                        ensure(
                            inst,
                            self.value(inst, inst.words[1])? == result,
                            "returns another type",
                        )?;
                    }
                    _ => self.typed(inst)?,
                }
            }
        }
        Ok(())
    }

    fn phi(&self, function: &Function<'a>, block: usize, inst: &Inst<'a>) -> Result<()> {
        let w = inst.words;
        ensure(
            inst,
            w.len() >= 5 && w.len() % 2 == 1,
            "has more or fewer words than its operands",
        )?;
        ensure(inst, self.is_data(w[1]), "merges what is not a value")?;
        let mut seen = Vec::new();
        for pair in w[3..].chunks(2) {
            if function.dead.contains(&pair[1]) {
                continue;
            }
            let from = function.index.get(&pair[1]).copied();
            let Some(from) = from.filter(|f| function.predecessors[block].contains(f)) else {
                return Err(wrong(
                    inst,
                    format!("names %{}, which does not lead to it", pair[1]),
                ));
            };
            ensure(inst, !seen.contains(&from), "names a block twice")?;
            seen.push(from);
            ensure(
                inst,
                self.available(function, pair[0], from, usize::MAX)
                    && self.value(inst, pair[0])? == w[1],
                &format!(
                    "takes %{}, which is of another type or not defined there",
                    pair[0]
                ),
            )?;
        }
        ensure(
            inst,
            seen.len() == function.predecessors[block].len(),
            "names too few blocks",
        )?;
        ensure(
            inst,
            !seen.is_empty(),
            "is in a block that nothing leads to",
        )
    }

    fn local(&self, inst: &Inst<'a>) -> Result<()> {
        let w = inst.words;
        ensure(
            inst,
            matches!(w.len(), 4 | 5),
            "has more or fewer words than its operands",
        )?;
        let Some(Type::Pointer { class, to }) = self.type_of(w[1]) else {
            return Err(wrong(inst, "is not a pointer"));
        };
        ensure(
            inst,
            class == class::FUNCTION && w[3] == class,
            "is not of storage class Function",
        )?;
        ensure(inst, self.is_data(to), "is of a type not allowed here")?;
        if let Some(&initial) = w.get(4) {
            let fits = matches!(self.def(initial), Def::Constant { ty, .. } if ty == to);
            ensure(inst, fits, "has an initial value of another type")?;
        }
        Ok(())
    }

    /// Whether values of the type exist and are not pointers.
    pub(super) fn is_data(&self, ty: u32) -> bool {
        match self.type_of(ty) {
            Some(Type::Array { of, .. }) => self.is_data(of),
            Some(Type::Struct(members)) => members.iter().all(|&m| self.is_data(m)),
            Some(
                Type::Void | Type::Pointer { .. } | Type::Function { .. } | Type::Runtime { .. },
            )
            | None => false,
            Some(_) => true,
        }
    }

    /// Scalars of a value.
    fn scalars(&self, ty: u32) -> u64 {
        match self.type_of(ty) {
            Some(Type::Vector { count, .. }) => u64::from(count),
            Some(Type::Matrix { column, columns }) => self.scalars(column) * u64::from(columns),
            Some(Type::Array { of, length }) => self.scalars(of).saturating_mul(length),
            Some(Type::Struct(members)) => members
                .iter()
                .fold(0, |sum: u64, &m| sum.saturating_add(self.scalars(m))),
            _ => 1,
        }
    }

    /// Whether the instruction may make a value of its type.
    pub(super) fn makes(&self, inst: &Inst, ty: u32) -> Result<()> {
        let fits = self.is_data(ty) && self.scalars(ty) <= MAX_VALUE;
        ensure(
            inst,
            fits,
            "makes a value of a type that is too large or has none",
        )
    }

    pub(super) fn shape_of(&self, inst: &Inst, word: usize) -> Result<Shape> {
        let id = inst.word(word)?;
        let shape = self.shape(self.value(inst, id)?);
        shape.ok_or_else(|| {
            wrong(
                inst,
                format!("takes %{id}, which is not a scalar or vector"),
            )
        })
    }

    pub(super) fn result_shape(&self, inst: &Inst) -> Result<Shape> {
        let shape = self.shape(inst.word(1)?);
        shape.ok_or_else(|| wrong(inst, "does not return a scalar or vector"))
    }

    /// Checks `count` operands from word `from`: all must have the result's base, width and count.
    pub(super) fn alike(&self, inst: &Inst, from: usize, count: usize, base: Base) -> Result<()> {
        length(inst, from + count)?;
        let shape = self.result_shape(inst)?;
        ensure(inst, shape.base == base, "returns another kind of number")?;
        for word in from..from + count {
            ensure(
                inst,
                self.shape_of(inst, word)? == shape,
                "takes operands that are not of its result's type",
            )?;
        }
        Ok(())
    }

    /// Checks operands of one shape that are compared into booleans.
    fn compared(&self, inst: &Inst, base: Base, count: usize) -> Result<()> {
        length(inst, 3 + count)?;
        let (result, first) = (self.result_shape(inst)?, self.shape_of(inst, 3)?);
        let same = (4..3 + count).try_fold(true, |all, word| {
            Ok(all && self.shape_of(inst, word)? == first)
        })?;
        let fits =
            result.base == Base::Bool && result.count == first.count && first.base == base && same;
        ensure(inst, fits, "compares types that cannot be compared")
    }

    /// Checks a conversion between numbers of the same count.
    fn converted(
        &self,
        inst: &Inst,
        from: Base,
        to: Base,
        widths: fn(u32, u32) -> bool,
    ) -> Result<()> {
        length(inst, 4)?;
        let (result, operand) = (self.result_shape(inst)?, self.shape_of(inst, 3)?);
        let fits = result.base == to
            && operand.base == from
            && result.count == operand.count
            && widths(operand.width, result.width);
        ensure(inst, fits, "converts types that it cannot")
    }

    /// Checks any instruction with a result, and stores, atomics and barriers.
    pub(super) fn typed(&self, inst: &Inst) -> Result<()> {
        use Base::{Bool, Float, Int};
        let w = inst.words;
        let Some(op) = inst.op() else {
            return Err(wrong(inst, "is not known"));
        };
        match op {
            Op::Undef => {
                length(inst, 3)?;
                self.makes(inst, w[1])
            }
            Op::Load => self.load(inst),
            Op::Store => self.store(inst),
            Op::CopyMemory => self.copy_memory(inst),
            Op::AccessChain | Op::InBoundsAccessChain => self.access_chain(inst),
            Op::ArrayLength => self.array_length(inst),
            Op::FunctionCall => self.call(inst),
            Op::ExtInst => self.extended(inst),
            Op::CopyObject => {
                length(inst, 4)?;
                ensure(
                    inst,
                    self.value(inst, w[3])? == w[1],
                    "returns another type",
                )?;
                self.makes(inst, w[1])
            }
            Op::CopyLogical => {
                length(inst, 4)?;
                let from = self.value(inst, w[3])?;
                self.makes(inst, w[1])?;
                ensure(
                    inst,
                    from != w[1] && self.match_logically(from, w[1]),
                    "returns another type",
                )
            }
            Op::CompositeConstruct => self.composite_construct(inst),
            Op::CompositeExtract => {
                ensure(inst, w.len() >= 5, "has no indices")?;
                let part = self.part(inst, self.value(inst, w[3])?, &w[4..])?;
                ensure(inst, part == w[1], "returns another type")
            }
            Op::CompositeInsert => {
                ensure(inst, w.len() >= 6, "has no indices")?;
                let whole = self.value(inst, w[4])?;
                let part = self.part(inst, whole, &w[5..])?;
                ensure(
                    inst,
                    whole == w[1] && part == self.value(inst, w[3])?,
                    "returns another type",
                )?;
                self.makes(inst, w[1])
            }
            Op::VectorExtractDynamic => {
                length(inst, 5)?;
                let whole = self.value(inst, w[3])?;
                let of = matches!(self.type_of(whole), Some(Type::Vector { of, .. }) if of == w[1]);
                ensure(
                    inst,
                    of && self.is_index(inst, w[4])?,
                    "does not select a component of a vector",
                )
            }
            Op::VectorInsertDynamic => {
                length(inst, 6)?;
                let of = match self.type_of(w[1]) {
                    Some(Type::Vector { of, .. }) => of == self.value(inst, w[4])?,
                    _ => false,
                };
                let fits = of && self.value(inst, w[3])? == w[1] && self.is_index(inst, w[5])?;
                ensure(inst, fits, "does not set a component of a vector")
            }
            Op::VectorShuffle => self.shuffle(inst),
            Op::Transpose => {
                length(inst, 4)?;
                let (to, from) = (self.matrix(w[1]), self.matrix(self.value(inst, w[3])?));
                let fits = matches!((to, from), (Some(a), Some(b)) if a.0 == b.1 && a.1 == b.0 && a.2 == b.2);
                ensure(inst, fits, "does not match its matrix")
            }
            Op::Select => {
                length(inst, 6)?;
                let condition = self.shape_of(inst, 3)?;
                let count = self.shape(w[1]).map_or(1, |s| s.count);
                let fits = condition.base == Bool
                    && (condition.count == 1 && (count == 1 || self.version >= 0x1_0400)
                        || condition.count == count)
                    && self.value(inst, w[4])? == w[1]
                    && self.value(inst, w[5])? == w[1];
                ensure(inst, fits, "selects between values of another type")?;
                let scalar = self.shape(w[1]).is_some() || self.version >= 0x1_0400;
                ensure(inst, scalar, "selects between composites")?;
                self.makes(inst, w[1])
            }
            Op::ConvertFToS => self.converted(inst, Float, Int, |_, _| true),
            Op::ConvertUToF | Op::ConvertSToF => self.converted(inst, Int, Float, |_, _| true),
            Op::SConvert => self.converted(inst, Int, Int, |a, b| a != b),
            Op::ConvertFToU | Op::UConvert => {
                let unsigned = match self.type_of(w[1]) {
                    Some(Type::Vector { of, .. }) => self.type_of(of),
                    ty => ty,
                };
                let unsigned = matches!(unsigned, Some(Type::Int { signed: false, .. }));
                ensure(inst, unsigned, "returns a signed number")?;
                match op {
                    Op::UConvert => self.converted(inst, Int, Int, |a, b| a != b),
                    _ => self.converted(inst, Float, Int, |_, _| true),
                }
            }
            Op::FConvert => self.converted(inst, Float, Float, |a, b| a != b),
            Op::QuantizeToF16 => self.converted(inst, Float, Float, |a, b| a == 32 && b == 32),
            Op::Bitcast => {
                length(inst, 4)?;
                let (to, from) = (self.result_shape(inst)?, self.shape_of(inst, 3)?);
                let bits = |s: Shape| s.width * s.count;
                let whole = to.count % from.count == 0 || from.count % to.count == 0;
                let fits = to.base != Bool && from.base != Bool && bits(to) == bits(from) && whole;
                ensure(inst, fits, "returns another number of bits")
            }
            Op::SNegate | Op::Not | Op::BitReverse => self.alike(inst, 3, 1, Int),
            Op::BitCount => self.converted(inst, Int, Int, |_, _| true),
            Op::FNegate => self.alike(inst, 3, 1, Float),
            Op::IAdd
            | Op::ISub
            | Op::IMul
            | Op::UDiv
            | Op::SDiv
            | Op::UMod
            | Op::SRem
            | Op::SMod
            | Op::BitwiseOr
            | Op::BitwiseXor
            | Op::BitwiseAnd => self.alike(inst, 3, 2, Int),
            Op::FAdd | Op::FSub | Op::FMul | Op::FDiv | Op::FRem | Op::FMod => {
                self.alike(inst, 3, 2, Float)
            }
            Op::LogicalEqual | Op::LogicalNotEqual | Op::LogicalOr | Op::LogicalAnd => {
                self.alike(inst, 3, 2, Bool)
            }
            Op::LogicalNot => self.alike(inst, 3, 1, Bool),
            Op::ShiftRightLogical | Op::ShiftRightArithmetic | Op::ShiftLeftLogical => {
                length(inst, 5)?;
                let (result, base, shift) = (
                    self.result_shape(inst)?,
                    self.shape_of(inst, 3)?,
                    self.shape_of(inst, 4)?,
                );
                let fits = result.base == Int
                    && result == base
                    && shift.base == Int
                    && shift.count == base.count;
                ensure(inst, fits, "shifts types that it cannot")
            }
            Op::BitFieldInsert => {
                length(inst, 7)?;
                let result = self.result_shape(inst)?;
                let fits = result.base == Int
                    && result.width == 32
                    && self.shape_of(inst, 3)? == result
                    && self.shape_of(inst, 4)? == result;
                ensure(
                    inst,
                    fits && self.is_index(inst, w[5])? && self.is_index(inst, w[6])?,
                    "takes operands that it must not",
                )
            }
            Op::BitFieldSExtract | Op::BitFieldUExtract => {
                length(inst, 6)?;
                let result = self.result_shape(inst)?;
                let fits =
                    result.base == Int && result.width == 32 && self.shape_of(inst, 3)? == result;
                ensure(
                    inst,
                    fits && self.is_index(inst, w[4])? && self.is_index(inst, w[5])?,
                    "takes operands that it must not",
                )
            }
            Op::Any | Op::All => {
                length(inst, 4)?;
                let (result, of) = (self.result_shape(inst)?, self.shape_of(inst, 3)?);
                let fits =
                    result.base == Bool && result.count == 1 && of.base == Bool && of.count > 1;
                ensure(inst, fits, "does not take a vector of booleans")
            }
            Op::IsNan | Op::IsInf => self.compared(inst, Float, 1),
            Op::IEqual
            | Op::INotEqual
            | Op::UGreaterThan
            | Op::SGreaterThan
            | Op::UGreaterThanEqual
            | Op::SGreaterThanEqual
            | Op::ULessThan
            | Op::SLessThan
            | Op::ULessThanEqual
            | Op::SLessThanEqual => self.compared(inst, Int, 2),
            Op::FOrdEqual
            | Op::FUnordEqual
            | Op::FOrdNotEqual
            | Op::FUnordNotEqual
            | Op::FOrdLessThan
            | Op::FUnordLessThan
            | Op::FOrdGreaterThan
            | Op::FUnordGreaterThan
            | Op::FOrdLessThanEqual
            | Op::FUnordLessThanEqual
            | Op::FOrdGreaterThanEqual
            | Op::FUnordGreaterThanEqual => self.compared(inst, Float, 2),
            Op::VectorTimesScalar
            | Op::MatrixTimesScalar
            | Op::VectorTimesMatrix
            | Op::MatrixTimesVector
            | Op::MatrixTimesMatrix
            | Op::OuterProduct
            | Op::Dot => self.linear(inst, op),
            Op::IAddCarry | Op::ISubBorrow | Op::UMulExtended | Op::SMulExtended => {
                length(inst, 5)?;
                let (a, b) = (self.value(inst, w[3])?, self.value(inst, w[4])?);
                let shape = self.shape_of(inst, 3)?;
                let pair =
                    matches!(self.type_of(w[1]), Some(Type::Struct(&[x, y])) if x == a && y == a);
                ensure(
                    inst,
                    a == b && pair && shape.base == Int && shape.width == 32,
                    "does not return such a pair",
                )
            }
            Op::SDot | Op::UDot | Op::SUDot => {
                ensure(
                    inst,
                    DOT_PRODUCT
                        .iter()
                        .all(|&c| self.has(c) || c != DOT_PRODUCT[3]),
                    "needs DotProduct",
                )?;
                let (result, a, b) = (
                    self.result_shape(inst)?,
                    self.shape_of(inst, 3)?,
                    self.shape_of(inst, 4)?,
                );
                let packed = a.count == 1
                    && a.width == 32
                    && w.len() == 6
                    && w[5] == 0
                    && self.has(DOT_PRODUCT[2]);
                let bytes =
                    a.count == 4 && a.width == 8 && w.len() == 5 && self.has(DOT_PRODUCT[1]);
                let fits = result.base == Int
                    && result.count == 1
                    && a == b
                    && a.base == Int
                    && (packed || bytes);
                ensure(inst, fits, "takes operands that it must not")
            }
            Op::AtomicLoad
            | Op::AtomicStore
            | Op::AtomicExchange
            | Op::AtomicCompareExchange
            | Op::AtomicIIncrement
            | Op::AtomicIDecrement
            | Op::AtomicIAdd
            | Op::AtomicISub
            | Op::AtomicSMin
            | Op::AtomicUMin
            | Op::AtomicSMax
            | Op::AtomicUMax
            | Op::AtomicAnd
            | Op::AtomicOr
            | Op::AtomicXor
            | Op::AtomicFAddEXT => self.atomic(inst, op),
            Op::ControlBarrier => {
                length(inst, 4)?;
                let of = self.fixed(w[1]);
                ensure(
                    inst,
                    matches!(of, Some(scope::WORKGROUP | scope::SUBGROUP)),
                    "waits for another scope than workgroup or subgroup",
                )?;
                self.ordered(inst, w[2], w[3])
            }
            Op::MemoryBarrier => {
                length(inst, 3)?;
                self.ordered(inst, w[1], w[2])
            }
            _ => self.subgroup(inst, op),
        }
    }

    pub(super) fn is_index(&self, inst: &Inst, id: u32) -> Result<bool> {
        let shape = self.shape(self.value(inst, id)?);
        Ok(shape.is_some_and(|s| s.base == Base::Int && s.count == 1))
    }

    /// Rows, columns and component type.
    fn matrix(&self, ty: u32) -> Option<(u32, u32, u32)> {
        match self.type_of(ty)? {
            Type::Matrix { column, columns } => match self.type_of(column)? {
                Type::Vector { of, count } => Some((count, columns, of)),
                _ => None,
            },
            _ => None,
        }
    }

    fn match_logically(&self, a: u32, b: u32) -> bool {
        match (self.type_of(a), self.type_of(b)) {
            _ if a == b => true,
            (Some(Type::Array { of: x, length: n }), Some(Type::Array { of: y, length: m })) => {
                n == m && self.match_logically(x, y)
            }
            (Some(Type::Struct(x)), Some(Type::Struct(y))) => {
                x.len() == y.len() && x.iter().zip(y).all(|(&x, &y)| self.match_logically(x, y))
            }
            _ => false,
        }
    }

    /// The type of the part that the literal indices select.
    fn part(&self, inst: &Inst, mut ty: u32, indices: &[u32]) -> Result<u32> {
        for &index in indices {
            let at = u64::from(index);
            ty = match self.type_of(ty) {
                Some(Type::Vector { of, count }) if at < u64::from(count) => of,
                Some(Type::Matrix { column, columns }) if at < u64::from(columns) => column,
                Some(Type::Array { of, length }) if at < length => of,
                Some(Type::Struct(members)) if (index as usize) < members.len() => {
                    members[index as usize]
                }
                _ => return Err(wrong(inst, format!("has no part {index}"))),
            };
        }
        Ok(ty)
    }

    /// Used for constants too.
    pub(super) fn composite_construct(&self, inst: &Inst) -> Result<()> {
        let w = inst.words;
        self.makes(inst, w[1])?;
        let parts = &w[3..];
        let each = |of: u32, count: u64| -> Result<bool> {
            let all = parts
                .iter()
                .try_fold(true, |all, &p| Ok(all && self.value(inst, p)? == of))?;
            Ok(all && parts.len() as u64 == count)
        };
        let fits = match self.type_of(w[1]) {
            Some(Type::Vector { of, count }) => {
                let mut sum = 0;
                for &part in parts {
                    let ty = self.value(inst, part)?;
                    sum += match self.type_of(ty) {
                        Some(Type::Vector { of: o, count })
                            if o == of && inst.op() == Some(Op::CompositeConstruct) =>
                        {
                            count
                        }
                        _ if ty == of => 1,
                        _ => return Err(wrong(inst, "has parts of other types")),
                    };
                }
                sum == count && parts.len() >= 2
            }
            Some(Type::Matrix { column, columns }) => each(column, u64::from(columns))?,
            Some(Type::Array { of, length }) => each(of, length)?,
            Some(Type::Struct(members)) => {
                let mut same = members.len() == parts.len();
                for (&member, &part) in members.iter().zip(parts) {
                    same &= self.value(inst, part)? == member;
                }
                same
            }
            _ => false,
        };
        ensure(inst, fits, "has parts of other types")
    }

    fn shuffle(&self, inst: &Inst) -> Result<()> {
        let w = inst.words;
        ensure(inst, w.len() >= 5, "has too few words")?;
        let (result, a, b) = (
            self.result_shape(inst)?,
            self.shape_of(inst, 3)?,
            self.shape_of(inst, 4)?,
        );
        let count = a.count + b.count;
        let fits = result.count > 1
            && a.count > 1
            && b.count > 1
            && w.len() == 5 + result.count as usize
            && w[5..].iter().all(|&i| i < count || i == u32::MAX)
            && [a, b]
                .iter()
                .all(|s| s.base == result.base && s.width == result.width);
        ensure(inst, fits, "selects components that do not exist")
    }

    fn linear(&self, inst: &Inst, op: Op) -> Result<()> {
        length(inst, 5)?;
        let w = inst.words;
        let (a, b) = (self.value(inst, w[3])?, self.value(inst, w[4])?);
        let vector = |ty: u32| match self.type_of(ty) {
            Some(Type::Vector { of, count }) => Some((count, of)),
            _ => None,
        };
        let float = |ty: u32| matches!(self.type_of(ty), Some(Type::Float { .. }));
        let fits = match op {
            Op::VectorTimesScalar => a == w[1] && float(b) && vector(a).is_some_and(|v| v.1 == b),
            Op::MatrixTimesScalar => {
                a == w[1] && float(b) && self.matrix(a).is_some_and(|m| m.2 == b)
            }
            Op::VectorTimesMatrix => match (vector(w[1]), vector(a), self.matrix(b)) {
                (Some(r), Some(v), Some(m)) => v == (m.0, m.2) && r == (m.1, m.2),
                _ => false,
            },
            Op::MatrixTimesVector => match (vector(w[1]), self.matrix(a), vector(b)) {
                (Some(r), Some(m), Some(v)) => v == (m.1, m.2) && r == (m.0, m.2),
                _ => false,
            },
            Op::MatrixTimesMatrix => match (self.matrix(w[1]), self.matrix(a), self.matrix(b)) {
                (Some(r), Some(x), Some(y)) => r == (x.0, y.1, x.2) && x.1 == y.0 && x.2 == y.2,
                _ => false,
            },
            Op::OuterProduct => match (self.matrix(w[1]), vector(a), vector(b)) {
                (Some(r), Some(x), Some(y)) => r == (x.0, y.0, x.1) && x.1 == y.1,
                _ => false,
            },
            // Dot.
            _ => a == b && float(w[1]) && vector(a).is_some_and(|v| v.1 == w[1]),
        };
        ensure(inst, fits, "multiplies types that it cannot")
    }
}

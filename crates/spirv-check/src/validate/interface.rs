//! Decorations, the layout of blocks, and the variables that a shader shares with its pipeline.

use super::super::MAX_BINDINGS;
use super::declarations::SUBGROUP;
use super::{Base, Checker, Def, Function, Inst, Result, Type, class, ensure, wrong};
use rspirv::spirv::Op;

mod decoration {
    pub const SPEC_ID: u32 = 1;
    pub const BLOCK: u32 = 2;
    pub const BUFFER_BLOCK: u32 = 3;
    pub const ROW_MAJOR: u32 = 4;
    pub const COL_MAJOR: u32 = 5;
    pub const ARRAY_STRIDE: u32 = 6;
    pub const MATRIX_STRIDE: u32 = 7;
    pub const BUILT_IN: u32 = 11;
    pub const BINDING: u32 = 33;
    pub const DESCRIPTOR_SET: u32 = 34;
    pub const OFFSET: u32 = 35;
}
const BUILT_IN_WORKGROUP_SIZE: u32 = 25;

/// Largest size in bytes of one invocation's variables, with those of functions: drivers keep them on a stack.
const MAX_PRIVATE: u64 = 16 << 10;
/// What may have a SpecId.
const SPECIAL: [Op; 3] = [
    Op::SpecConstant,
    Op::SpecConstantTrue,
    Op::SpecConstantFalse,
];

impl<'a> Checker<'_, 'a> {
    pub(super) fn check_decorations(&self) -> Result<()> {
        use decoration::*;
        let at = self.module.inst(5)?;
        let mut targets: Vec<_> = self.decorations.iter().collect();
        targets.sort_unstable_by_key(|(id, _)| **id);
        for (&id, list) in targets {
            let def = self.def(id);
            let is_struct = matches!(def, Def::Type(Type::Struct(_)));
            let variable = match def {
                Def::Variable { class, .. } => Some(class),
                _ => None,
            };
            let bindable = matches!(variable, Some(class::STORAGE_BUFFER | class::UNIFORM));
            for d in list {
                let (fits, words) = match d[0] {
                    // RelaxedPrecision, NoContraction, NoSignedWrap, NoUnsignedWrap.
                    0 | 42 | 4469 | 4470 => (
                        matches!(
                            def,
                            Def::Value { .. }
                                | Def::Variable { .. }
                                | Def::Parameter { .. }
                                | Def::Constant { .. }
                        ),
                        1,
                    ),
                    SPEC_ID => {
                        let scalar = matches!(def, Def::Constant { ty, fixed: false } if self.shape(ty).is_some_and(|s| s.count == 1));
                        (scalar && self.is_made_by(id, &SPECIAL), 2)
                    }
                    BLOCK | BUFFER_BLOCK => (is_struct, 1),
                    ARRAY_STRIDE => (
                        matches!(def, Def::Type(Type::Array { .. } | Type::Runtime { .. })),
                        2,
                    ),
                    BUILT_IN => (
                        match variable {
                            Some(class) => class == class::INPUT,
                            None => {
                                d.get(1) == Some(&BUILT_IN_WORKGROUP_SIZE)
                                    && matches!(def, Def::Constant { ty, .. } if self.is_uvec(ty, 3))
                            }
                        },
                        2,
                    ),
                    BINDING | DESCRIPTOR_SET => (bindable, 2),
                    // Restrict, Aliased, Volatile, Coherent, NonWritable, NonReadable.
                    19..=21 | 23..=25 => (
                        matches!(def, Def::Parameter { .. })
                            || variable.is_some_and(|c| c != class::INPUT),
                        1,
                    ),
                    _ => (false, d.len()),
                };
                let once = list.iter().filter(|o| o[0] == d[0]).count() == 1;
                ensure(
                    &at,
                    fits && d.len() == words && once,
                    &format!(
                        "begins a module that gives %{id} the decoration {}, which is not allowed there",
                        d[0]
                    ),
                )?;
            }
        }
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_unstable_by_key(|(key, _)| **key);
        for (&(id, member), list) in members {
            let of = match self.def(id) {
                Def::Type(Type::Struct(of)) => of.get(member as usize).copied(),
                _ => None,
            };
            let matrix = of
                .is_some_and(|ty| matches!(self.type_of(self.bare(ty)), Some(Type::Matrix { .. })));
            for d in list {
                let (fits, words) = match d[0] {
                    0 | 19..=21 | 23..=25 => (true, 1),
                    OFFSET => (true, 2),
                    ROW_MAJOR | COL_MAJOR => (matrix, 1),
                    MATRIX_STRIDE => (matrix, 2),
                    _ => (false, d.len()),
                };
                let once = list.iter().filter(|o| o[0] == d[0]).count() == 1;
                ensure(
                    &at,
                    of.is_some() && fits && d.len() == words && once,
                    &format!(
                        "begins a module that gives member {member} of %{id} the decoration {}, which is not allowed there",
                        d[0]
                    ),
                )?;
            }
        }
        Ok(())
    }

    /// Whether a declaration of one of these kinds defines it.
    pub(super) fn is_made_by(&self, id: u32, ops: &[Op]) -> bool {
        self.made.get(&id).is_some_and(|op| ops.contains(op))
    }

    /// The element type of an array of arrays.
    fn bare(&self, mut ty: u32) -> u32 {
        while let Some(Type::Array { of, .. } | Type::Runtime { of }) = self.type_of(ty) {
            ty = of;
        }
        ty
    }

    fn is_uvec(&self, ty: u32, count: u32) -> bool {
        self.shape(ty)
            .is_some_and(|s| s.base == Base::Int && s.width == 32 && s.count == count)
    }

    /// Checks that built-ins have their type, and that buffers and push constants are blocks with a layout.
    pub(super) fn check_variables(&self, shared_bytes: u64) -> Result<()> {
        let (mut private, mut shared) = (0u64, 0u64);
        for variable in &self.module.variables {
            let inst = self.module.inst(variable.at)?;
            let Some(Type::Pointer { class, to }) = self.type_of(variable.ty) else {
                return Err(wrong(&inst, "is not a pointer"));
            };
            match class {
                class::INPUT => {
                    let built_in = self
                        .decorated(variable.id, decoration::BUILT_IN)
                        .map(|d| d[1]);
                    let count = match built_in {
                        Some(24 | 26 | 27 | 28) => 3,
                        Some(29) => 1,
                        Some(36 | 38 | 40 | 41) if self.has(SUBGROUP) => 1,
                        Some(4416..=4420) if self.has(64) => 4,
                        _ => 0,
                    };
                    ensure(
                        &inst,
                        self.is_uvec(to, count),
                        "is not a built-in of compute shaders",
                    )?;
                }
                class::STORAGE_BUFFER | class::UNIFORM | class::PUSH_CONSTANT => {
                    let block = if class == class::UNIFORM {
                        decoration::BUFFER_BLOCK
                    } else {
                        decoration::BLOCK
                    };
                    let is_block = self.decorated(to, block).is_some();
                    ensure(&inst, is_block, "is not a block")?;
                    let number = |decoration| self.decorated(variable.id, decoration).map(|d| d[1]);
                    let place = (
                        number(decoration::DESCRIPTOR_SET),
                        number(decoration::BINDING),
                    );
                    let bound = matches!(place, (Some(0), Some(0..MAX_BINDINGS)));
                    ensure(
                        &inst,
                        bound || class == class::PUSH_CONSTANT,
                        "is not a binding from 0 to 31 of set 0",
                    )?;
                    let size = self.laid_out(&inst, to, None)?;
                    if class == class::PUSH_CONSTANT {
                        ensure(&inst, size.is_some(), "has a runtime array")?;
                    }
                }
                class::PRIVATE | class::FUNCTION => {
                    let size = self.layouts.get(to).and_then(|t| t.size);
                    private = private.saturating_add(size.unwrap_or(u64::MAX));
                    ensure(
                        &inst,
                        private <= MAX_PRIVATE,
                        "makes more than 16 KiB of private variables",
                    )?;
                }
                // Workgroup memory counts even if `main` does not use it.
                _ => {
                    let size = self.layouts.get(to).and_then(|t| t.size);
                    shared = shared.saturating_add(size.unwrap_or(u64::MAX));
                    ensure(
                        &inst,
                        shared <= shared_bytes,
                        "makes more workgroup memory than the device has",
                    )?;
                }
            }
        }
        let push = self.module.variables.iter();
        let push = push.filter(|v| v.class == class::PUSH_CONSTANT).count();
        let first = self.module.inst(5)?;
        ensure(
            &first,
            push <= 1,
            "begins a module of several push constant blocks",
        )
    }

    /// Size of a type with explicit layout, or none if it ends in a runtime array. Its offsets and strides must keep
    /// scalars aligned and apart. `matrix`: the member's matrix stride and order.
    fn laid_out(&self, inst: &Inst, ty: u32, matrix: Option<(u64, bool)>) -> Result<Option<u64>> {
        let odd = |what: &str| wrong(inst, format!("has a layout {what}"));
        Ok(match self.type_of(ty) {
            Some(Type::Int { width, .. } | Type::Float { width }) => Some(u64::from(width / 8)),
            Some(Type::Vector { of, count }) => self
                .laid_out(inst, of, None)?
                .map(|size| size * u64::from(count)),
            Some(Type::Matrix { column, columns }) => {
                let (stride, rows) =
                    matrix.ok_or_else(|| odd("without a matrix stride and order"))?;
                let Some(shape) = self.shape(column) else {
                    return Err(odd("of no matrix"));
                };
                let scalar = u64::from(shape.width / 8);
                let (vectors, each) = match rows {
                    true => (shape.count, columns),
                    false => (columns, shape.count),
                };
                let fits = stride % scalar == 0 && stride >= scalar * u64::from(each);
                ensure(inst, fits, "has a layout with too small a matrix stride")?;
                Some(stride * u64::from(vectors))
            }
            Some(Type::Array { of, .. } | Type::Runtime { of }) => {
                let stride = self
                    .decorated(ty, decoration::ARRAY_STRIDE)
                    .map(|d| u64::from(d[1]));
                let stride = stride.ok_or_else(|| odd("without an array stride"))?;
                let size = self.laid_out(inst, of, matrix)?;
                let size = size.ok_or_else(|| odd("with nested runtime arrays"))?;
                let fits = stride >= size && stride > 0 && stride % self.alignment(of) == 0;
                ensure(inst, fits, "has a layout with too small an array stride")?;
                match self.type_of(ty) {
                    Some(Type::Array { length, .. }) => Some(
                        stride
                            .checked_mul(length)
                            .ok_or_else(|| odd("that is too large"))?,
                    ),
                    _ => None,
                }
            }
            Some(Type::Struct(members)) => {
                let mut ranges = Vec::new();
                for (i, &member) in (0u32..).zip(members) {
                    let offset = self
                        .member(ty, i, decoration::OFFSET)
                        .map(|d| u64::from(d[1]));
                    let offset = offset.ok_or_else(|| odd("without an offset"))?;
                    let stride = self.member(ty, i, decoration::MATRIX_STRIDE);
                    let rows = self.member(ty, i, decoration::ROW_MAJOR).is_some();
                    let columns = self.member(ty, i, decoration::COL_MAJOR).is_some();
                    let matrix = stride
                        .filter(|_| rows != columns)
                        .map(|d| (u64::from(d[1]), rows));
                    let size = self.laid_out(inst, member, matrix)?;
                    let aligned = offset % self.alignment(member) == 0;
                    ensure(inst, aligned, "has a layout with a misaligned offset")?;
                    ranges.push((offset, size));
                }
                let last = members.last().map(|_| ranges[members.len() - 1]);
                ranges.sort_unstable();
                let overlap = ranges.windows(2).any(|p| match p[0].1 {
                    Some(size) => p[0].0.saturating_add(size) > p[1].0,
                    None => true,
                });
                ensure(inst, !overlap, "has a layout with members that overlap")?;
                match last {
                    Some((_, None)) => None,
                    _ => Some(
                        ranges
                            .last()
                            .map_or(0, |r| r.0.saturating_add(r.1.unwrap_or(0))),
                    ),
                }
            }
            _ => return Err(odd("of a type that has none")),
        })
    }

    /// The alignment of a type's largest scalar.
    fn alignment(&self, ty: u32) -> u64 {
        match self.type_of(ty) {
            Some(Type::Int { width, .. } | Type::Float { width }) => u64::from(width / 8).max(1),
            Some(
                Type::Vector { of, .. }
                | Type::Matrix { column: of, .. }
                | Type::Array { of, .. }
                | Type::Runtime { of },
            ) => self.alignment(of),
            Some(Type::Struct(members)) => members
                .iter()
                .map(|&m| self.alignment(m))
                .max()
                .unwrap_or(1),
            _ => 1,
        }
    }

    /// Checks that the entry point lists the variables it uses: inputs, and since SPIR-V 1.4 all of the module's.
    pub(super) fn interface(&self, functions: &[Function<'a>]) -> Result<()> {
        let at = self.module.inst(5)?;
        for &id in &self.listed {
            let global =
                matches!(self.def(id), Def::Variable { class, .. } if class != class::FUNCTION);
            let early = self.version >= 0x1_0400
                || matches!(
                    self.def(id),
                    Def::Variable {
                        class: class::INPUT,
                        ..
                    }
                );
            ensure(
                &at,
                global && early,
                &format!("begins a module whose entry point lists %{id}"),
            )?;
        }
        let mut ids = Vec::new();
        for inst in functions.iter().flat_map(|f| f.instructions()) {
            inst.operand_ids(self.module.bound, &mut ids)?;
            for &id in &ids {
                let Def::Variable { class, .. } = self.def(id) else {
                    continue;
                };
                let needed =
                    class == class::INPUT || (self.version >= 0x1_0400 && class != class::FUNCTION);
                ensure(
                    inst,
                    !needed || self.listed.contains(&id),
                    &format!("uses %{id}, which the entry point does not list"),
                )?;
            }
        }
        Ok(())
    }
}

//! Values of constants under a specialization, and sizes of types.

use super::module::{Inst, Module, Variable};
use super::{ReflectError, storage_class};
use rspirv::spirv::{Op, StorageClass};
use std::collections::HashMap;

/// What is known of a type.
#[derive(Clone, Debug)]
pub(super) struct Type<'a> {
    pub kind: Kind<'a>,
    /// Whether a value of the type may be or contain a pointer.
    pub holds_pointer: bool,
    /// Size in bytes: with the explicit layout where decorated, else packed with C alignment.
    pub size: Option<u64>,
    align: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Kind<'a> {
    Bool,
    Int {
        width: u32,
    },
    Float,
    Vector {
        element: u32,
        count: u32,
    },
    Matrix {
        column: u32,
        columns: u32,
    },
    Array {
        element: u32,
        stride: Option<u64>,
    },
    Struct {
        members: &'a [u32],
    },
    Pointer {
        class: u32,
        pointee: Option<u32>,
    },
    /// Any other type, by the name of its declaration.
    Other(String),
}

#[derive(Clone, Debug)]
enum Constant<'a> {
    /// Bits, zero-extended; booleans are 0 and 1. `fixed`: the same under every specialization.
    Scalar {
        bits: u64,
        width: u32,
        fixed: bool,
    },
    Composite(&'a [u32]),
}

/// Constants and types of a module, in the order of their definition (so nothing here recurses).
pub(super) struct Layouts<'a> {
    types: HashMap<u32, Type<'a>>,
    constants: HashMap<u32, Constant<'a>>,
}

impl<'a> Layouts<'a> {
    pub fn compute(module: &Module<'a>, specialization: &[u32]) -> Result<Self, ReflectError> {
        let mut layouts = Self {
            types: HashMap::new(),
            constants: HashMap::new(),
        };
        for &at in &module.globals {
            let inst = module.inst(at)?;
            layouts.constant(module, &inst, specialization)?;
            layouts.declare(module, &inst)?;
        }
        Ok(layouts)
    }

    pub fn get(&self, ty: u32) -> Option<&Type<'a>> {
        self.types.get(&ty)
    }

    /// Whether a value of type `ty` may carry a pointer; true for unknown types.
    pub fn holds_pointer(&self, ty: u32) -> bool {
        self.types.get(&ty).is_none_or(|t| t.holds_pointer)
    }

    /// Storage class word of the pointer type `ty`.
    pub fn pointer_class(&self, ty: u32) -> Option<u32> {
        match self.types.get(&ty)?.kind {
            Kind::Pointer { class, .. } => Some(class),
            _ => None,
        }
    }

    /// The data type of a variable.
    pub fn data_type(&self, variable: &Variable) -> Option<u32> {
        variable.data.or(match self.types.get(&variable.ty)?.kind {
            Kind::Pointer { pointee, .. } => pointee,
            _ => None,
        })
    }

    /// The bits of a scalar constant under the specialization.
    pub fn scalar(&self, id: u32) -> Option<u64> {
        match self.constants.get(&id)? {
            Constant::Scalar { bits, .. } => Some(*bits),
            Constant::Composite(_) => None,
        }
    }

    /// The parts of a composite constant.
    pub fn composite(&self, id: u32) -> Option<&'a [u32]> {
        match self.constants.get(&id)? {
            Constant::Composite(parts) => Some(parts),
            Constant::Scalar { .. } => None,
        }
    }

    /// The bits of a scalar constant that no specialization can change.
    fn fixed(&self, id: u32) -> Option<u64> {
        match self.constants.get(&id)? {
            Constant::Scalar {
                bits, fixed: true, ..
            } => Some(*bits),
            _ => None,
        }
    }

    /// Workgroup memory of the variables in `used`.
    pub fn shared_bytes(&self, module: &Module<'a>, used: &[usize]) -> Option<u64> {
        let mut sum = 0u64;
        let mut aliased = 0u64;
        for variable in used.iter().map(|&i| &module.variables[i]) {
            if storage_class(variable.class) != Some(StorageClass::Workgroup) {
                continue;
            }
            let ty = self.types.get(&self.data_type(variable)?)?;
            let size = ty.size?;
            if module
                .decorations
                .get(&variable.id)
                .is_some_and(|d| d.aliased)
            {
                aliased = aliased.max(size);
            } else {
                sum = sum.checked_next_multiple_of(ty.align)?.checked_add(size)?;
            }
        }
        sum.checked_add(aliased)
    }

    /// First byte after what an access chain into a block of type `ty` can touch, given its index ids. The walk stops
    /// at the first index that is not a fixed constant: everything below it counts.
    pub fn access_end(&self, module: &Module<'a>, mut ty: u32, indices: &[u32]) -> Option<u64> {
        let mut offset = 0u64;
        for &index in indices {
            let Some(index) = self.fixed(index) else {
                break;
            };
            match &self.types.get(&ty)?.kind {
                Kind::Struct { members } => {
                    let index = u32::try_from(index).ok()?;
                    let member = *members.get(index as usize)?;
                    let layout = module
                        .members
                        .get(&(ty, index))
                        .copied()
                        .unwrap_or_default();
                    offset = offset.checked_add(u64::from(layout.offset?))?;
                    if layout.matrix_stride.is_some() {
                        return offset.checked_add(self.member_size(module, ty, index, member)?);
                    }
                    ty = member;
                }
                Kind::Array {
                    element,
                    stride: Some(stride),
                } => {
                    offset = offset.checked_add(index.checked_mul(*stride)?)?;
                    ty = *element;
                }
                Kind::Vector { element, .. } => {
                    let size = self.types.get(element)?.size?;
                    offset = offset.checked_add(index.checked_mul(size)?)?;
                    ty = *element;
                }
                _ => break,
            }
        }
        offset.checked_add(self.types.get(&ty)?.size?)
    }

    /// Size of a structure member, with its matrix stride if it has one.
    fn member_size(&self, module: &Module<'a>, ty: u32, index: u32, member: u32) -> Option<u64> {
        let known = self.types.get(&member)?;
        let layout = module
            .members
            .get(&(ty, index))
            .copied()
            .unwrap_or_default();
        match (&known.kind, layout.matrix_stride) {
            (Kind::Matrix { column, columns }, Some(stride)) => {
                let Kind::Vector {
                    element,
                    count: rows,
                } = self.types.get(column)?.kind
                else {
                    return None;
                };
                let (vectors, length) = if layout.row_major {
                    (rows, *columns)
                } else {
                    (*columns, rows)
                };
                let last = u64::from(length).checked_mul(self.types.get(&element)?.size?)?;
                u64::from(stride)
                    .checked_mul(u64::from(vectors.checked_sub(1)?))?
                    .checked_add(last)
            }
            _ => known.size,
        }
    }

    fn declare(&mut self, module: &Module<'a>, inst: &Inst<'a>) -> Result<(), ReflectError> {
        let Some(op) = inst.op() else { return Ok(()) };
        let plain = |kind, size: Option<u64>, align| Type {
            kind,
            holds_pointer: false,
            size,
            align,
        };
        let ty = match op {
            Op::TypeBool => plain(Kind::Bool, Some(4), 4),
            Op::TypeInt | Op::TypeFloat => {
                let width = inst.word(2)?;
                let bytes = u64::from(width.div_ceil(8)).max(1);
                let kind = match op {
                    Op::TypeInt => Kind::Int { width },
                    _ => Kind::Float,
                };
                plain(kind, Some(bytes), bytes)
            }
            Op::TypeVector => {
                let (element, count) = (inst.word(2)?, inst.word(3)?);
                let (size, align) = self.repeated(element, u64::from(count), None);
                plain(Kind::Vector { element, count }, size, align)
            }
            Op::TypeMatrix => {
                let (column, columns) = (inst.word(2)?, inst.word(3)?);
                let (size, align) = self.repeated(column, u64::from(columns), None);
                plain(Kind::Matrix { column, columns }, size, align)
            }
            Op::TypeArray | Op::TypeRuntimeArray => {
                let element = inst.word(2)?;
                let explicit = module
                    .decorations
                    .get(&inst.word(1)?)
                    .and_then(|d| d.array_stride);
                let explicit = explicit.map(u64::from);
                let (size, align) = match op {
                    Op::TypeArray => match self.scalar(inst.word(3)?) {
                        Some(count) => self.repeated(element, count, explicit),
                        None => (None, self.types.get(&element).map_or(1, |t| t.align)),
                    },
                    _ => (None, self.types.get(&element).map_or(1, |t| t.align)),
                };
                let holds_pointer = self.holds_pointer(element);
                Type {
                    kind: Kind::Array {
                        element,
                        stride: explicit,
                    },
                    holds_pointer,
                    size,
                    align,
                }
            }
            Op::TypeStruct => {
                let id = inst.word(1)?;
                let members = &inst.words[2..];
                let holds_pointer = members.iter().any(|&m| self.holds_pointer(m));
                let align = members
                    .iter()
                    .filter_map(|m| self.types.get(m))
                    .map(|t| t.align)
                    .max()
                    .unwrap_or(1);
                Type {
                    kind: Kind::Struct { members },
                    holds_pointer,
                    size: self.structure(module, id, members),
                    align,
                }
            }
            Op::TypePointer | Op::TypeUntypedPointerKHR => {
                let kind = Kind::Pointer {
                    class: inst.word(2)?,
                    pointee: inst.words.get(3).copied(),
                };
                Type {
                    kind,
                    holds_pointer: true,
                    size: Some(8),
                    align: 8,
                }
            }
            Op::TypeForwardPointer => {
                let kind = Kind::Pointer {
                    class: inst.word(2)?,
                    pointee: None,
                };
                Type {
                    kind,
                    holds_pointer: true,
                    size: Some(8),
                    align: 8,
                }
            }
            Op::TypeVoid
            | Op::TypeCooperativeMatrixKHR
            | Op::TypeCooperativeMatrixNV
            | Op::TypeVectorIdEXT
            | Op::TypeTensorLayoutNV
            | Op::TypeTensorViewNV => plain(Kind::Other(inst.name()), None, 1),
            _ if inst.result(module.bound)? == (None, inst.words.get(1).copied()) => Type {
                kind: Kind::Other(inst.name()),
                holds_pointer: true,
                size: None,
                align: 1,
            },
            _ => return Ok(()),
        };
        self.types.insert(inst.word(1)?, ty);
        Ok(())
    }

    /// Size and alignment of `count` consecutive elements, `stride` bytes apart (packed by default).
    fn repeated(&self, element: u32, count: u64, stride: Option<u64>) -> (Option<u64>, u64) {
        let Some(ty) = self.types.get(&element) else {
            return (None, 1);
        };
        let size = ty.size.and_then(|size| {
            let stride = stride.or_else(|| size.checked_next_multiple_of(ty.align))?;
            match count.checked_sub(1) {
                Some(gaps) => stride.checked_mul(gaps)?.checked_add(size),
                None => Some(0),
            }
        });
        (size, ty.align)
    }

    fn structure(&self, module: &Module<'a>, id: u32, members: &[u32]) -> Option<u64> {
        let mut end = 0u64;
        for (index, &member) in (0u32..).zip(members) {
            let size = self.member_size(module, id, index, member)?;
            let offset = match module.members.get(&(id, index)).and_then(|m| m.offset) {
                Some(offset) => u64::from(offset),
                None => end.checked_next_multiple_of(self.types.get(&member)?.align)?,
            };
            end = end.max(offset.checked_add(size)?);
        }
        Some(end)
    }

    fn constant(
        &mut self,
        module: &Module<'a>,
        inst: &Inst<'a>,
        spec: &[u32],
    ) -> Result<(), ReflectError> {
        let Some(op) = inst.op() else { return Ok(()) };
        let special = || {
            let id = module.decorations.get(inst.words.get(2)?)?.spec_id?;
            spec.get(usize::try_from(id).ok()?).copied()
        };
        let constant = match op {
            Op::ConstantTrue | Op::ConstantFalse => Constant::Scalar {
                bits: u64::from(op == Op::ConstantTrue),
                width: 1,
                fixed: true,
            },
            Op::SpecConstantTrue | Op::SpecConstantFalse => {
                let value = special().map_or(op == Op::SpecConstantTrue, |v| v != 0);
                Constant::Scalar {
                    bits: u64::from(value),
                    width: 1,
                    fixed: false,
                }
            }
            Op::Constant | Op::SpecConstant => {
                let low = inst.word(3)?;
                let wide = inst.words.get(4).map_or(0, |&high| u64::from(high) << 32);
                let (mut bits, fixed) = (wide | u64::from(low), op == Op::Constant);
                // One word specializes a constant of up to 32 bits; a wider one keeps its default.
                if let (Some(value), false, 4) = (special(), fixed, inst.words.len()) {
                    bits = u64::from(value);
                }
                self.integer(inst.word(1)?, bits, fixed)
            }
            Op::ConstantNull => self.integer(inst.word(1)?, 0, true),
            Op::ConstantComposite | Op::SpecConstantComposite => {
                Constant::Composite(inst.words.get(3..).unwrap_or_default())
            }
            Op::SpecConstantOp => match self.evaluate(inst) {
                Some(bits) => self.integer(inst.word(1)?, bits, false),
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        self.constants.insert(inst.word(2)?, constant);
        Ok(())
    }

    /// A scalar of type `ty` from the low bits of `bits`.
    fn integer(&self, ty: u32, bits: u64, fixed: bool) -> Constant<'a> {
        let width = match self.types.get(&ty).map(|t| &t.kind) {
            Some(&Kind::Int { width }) => width.clamp(1, 64),
            Some(Kind::Bool) => 1,
            _ => 64,
        };
        Constant::Scalar {
            bits: bits & (u64::MAX >> (64 - width)),
            width,
            fixed,
        }
    }

    /// Value of an `OpSpecConstantOp` over integers and booleans; `None` for any other.
    fn evaluate(&self, inst: &Inst<'a>) -> Option<u64> {
        let operands = inst.words.get(4..)?;
        let op = Op::from_u32(*inst.words.get(3)?)?;
        if op == Op::CompositeExtract {
            let (&composite, path) = operands.split_first()?;
            let mut id = composite;
            for &index in path {
                id = *self.composite(id)?.get(index as usize)?;
            }
            return self.scalar(id);
        }
        let value = |i: usize| self.scalar(*operands.get(i)?);
        let signed = |i: usize| match self.constants.get(operands.get(i)?)? {
            Constant::Scalar { bits, width, .. } => {
                Some((*bits << (64 - width)) as i64 >> (64 - width))
            }
            Constant::Composite(_) => None,
        };
        let flag = |b: bool| Some(u64::from(b));
        match op {
            Op::IAdd => Some(value(0)?.wrapping_add(value(1)?)),
            Op::ISub => Some(value(0)?.wrapping_sub(value(1)?)),
            Op::IMul => Some(value(0)?.wrapping_mul(value(1)?)),
            Op::UDiv => value(0)?.checked_div(value(1)?),
            Op::UMod => value(0)?.checked_rem(value(1)?),
            Op::SDiv => signed(0)?.checked_div(signed(1)?).map(|v| v as u64),
            Op::SRem => signed(0)?.checked_rem(signed(1)?).map(|v| v as u64),
            Op::SMod => {
                let (a, b) = (signed(0)?, signed(1)?);
                let r = a.checked_rem(b)?;
                Some(if r != 0 && (r < 0) != (b < 0) {
                    r + b
                } else {
                    r
                } as u64)
            }
            Op::SNegate => Some(value(0)?.wrapping_neg()),
            Op::Not => Some(!value(0)?),
            Op::BitwiseOr | Op::LogicalOr => Some(value(0)? | value(1)?),
            Op::BitwiseXor => Some(value(0)? ^ value(1)?),
            Op::BitwiseAnd | Op::LogicalAnd => Some(value(0)? & value(1)?),
            Op::LogicalNot => flag(value(0)? == 0),
            Op::ShiftLeftLogical => value(0)?.checked_shl(u32::try_from(value(1)?).ok()?),
            Op::ShiftRightLogical => value(0)?.checked_shr(u32::try_from(value(1)?).ok()?),
            Op::ShiftRightArithmetic => signed(0)?
                .checked_shr(u32::try_from(value(1)?).ok()?)
                .map(|v| v as u64),
            Op::IEqual | Op::LogicalEqual => flag(value(0)? == value(1)?),
            Op::INotEqual | Op::LogicalNotEqual => flag(value(0)? != value(1)?),
            Op::UGreaterThan => flag(value(0)? > value(1)?),
            Op::UGreaterThanEqual => flag(value(0)? >= value(1)?),
            Op::ULessThan => flag(value(0)? < value(1)?),
            Op::ULessThanEqual => flag(value(0)? <= value(1)?),
            Op::SGreaterThan => flag(signed(0)? > signed(1)?),
            Op::SGreaterThanEqual => flag(signed(0)? >= signed(1)?),
            Op::SLessThan => flag(signed(0)? < signed(1)?),
            Op::SLessThanEqual => flag(signed(0)? <= signed(1)?),
            Op::Select => value(if value(0)? != 0 { 1 } else { 2 }),
            Op::UConvert => value(0),
            Op::SConvert => signed(0).map(|v| v as u64),
            _ => None,
        }
    }
}

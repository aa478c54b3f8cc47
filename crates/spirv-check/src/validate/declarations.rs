//! Everything outside functions: order, capabilities, types, constants, variables, decorations, layout.

use super::{Base, Checker, Def, Inst, Result, Support, Type, class, ensure, length, wrong};
use rspirv::spirv::Op;
use std::collections::{HashMap, HashSet};

pub(super) const FLOAT16: u32 = 9;
pub(super) const FLOAT64: u32 = 10;
pub(super) const INT64: u32 = 11;
pub(super) const INT64_ATOMICS: u32 = 12;
pub(super) const INT16: u32 = 22;
pub(super) const INT8: u32 = 39;
pub(super) const SUBGROUP: u32 = 61;
pub(super) const VULKAN_MEMORY_MODEL: u32 = 5345;
pub(super) const DOT_PRODUCT: [u32; 4] = [6016, 6017, 6018, 6019];
pub(super) const ATOMIC_FLOAT32_ADD: u32 = 6033;
/// DenormPreserve, DenormFlushToZero and SignedZeroInfNanPreserve: the execution mode of each has its number minus 5.
const FLOAT_CONTROLS: [u32; 3] = [4464, 4465, 4466];
const STORAGE16: [u32; 3] = [4433, 4434, 4435];
const STORAGE8: [u32; 3] = [4448, 4449, 4450];
/// The SPIR-V capabilities that safe mode has rules for; a device may support fewer.
pub const CAPABILITIES: [u32; 33] = [
    0,
    1,
    FLOAT16,
    FLOAT64,
    INT64,
    INT64_ATOMICS,
    INT16,
    INT8,
    SUBGROUP,
    62,
    63,
    64,
    65,
    66,
    67,
    68,
    STORAGE16[0],
    STORAGE16[1],
    STORAGE16[2],
    STORAGE8[0],
    STORAGE8[1],
    STORAGE8[2],
    VULKAN_MEMORY_MODEL,
    5346,
    DOT_PRODUCT[0],
    DOT_PRODUCT[1],
    DOT_PRODUCT[2],
    DOT_PRODUCT[3],
    ATOMIC_FLOAT32_ADD,
    30,
    FLOAT_CONTROLS[0],
    FLOAT_CONTROLS[1],
    FLOAT_CONTROLS[2],
];
const EXTENSIONS: [&str; 15] = [
    "SPV_KHR_storage_buffer_storage_class",
    "SPV_KHR_16bit_storage",
    "SPV_KHR_8bit_storage",
    "SPV_KHR_vulkan_memory_model",
    "SPV_KHR_integer_dot_product",
    "SPV_KHR_non_semantic_info",
    "SPV_KHR_float_controls",
    "SPV_KHR_no_integer_wrap_decoration",
    "SPV_KHR_terminate_invocation",
    "SPV_KHR_relaxed_extended_instruction",
    "SPV_KHR_shader_ballot",
    "SPV_EXT_shader_atomic_float_add",
    "SPV_GOOGLE_hlsl_functionality1",
    "SPV_GOOGLE_decorate_string",
    "SPV_GOOGLE_user_type",
];

const MAX_TYPE_DEPTH: u32 = 32;
/// Largest number of scalars in a type outside buffers.
const MAX_SCALARS: u64 = 1 << 16;

/// The position of a module's sections, by instruction.
fn section(op: Op) -> u32 {
    match op {
        Op::Capability => 0,
        Op::Extension => 1,
        Op::ExtInstImport => 2,
        Op::MemoryModel => 3,
        Op::EntryPoint => 4,
        Op::ExecutionMode | Op::ExecutionModeId => 5,
        Op::Decorate | Op::MemberDecorate => 6,
        _ => 7,
    }
}

/// Totals of the types so far.
#[derive(Default)]
struct Sizes {
    depth: HashMap<u32, u32>,
    /// Scalars of a value; none if it contains a runtime array.
    scalars: HashMap<u32, Option<u64>>,
}

impl<'a> Checker<'_, 'a> {
    /// Checks everything outside functions, and notes what ids in functions stand for.
    pub(super) fn declarations(&mut self, support: &Support) -> Result<()> {
        let module = self.module;
        let header = module.inst(5)?;
        ensure(
            &header,
            self.version & 0xff00_00ff == 0
                && (0x1_0000..=support.version).contains(&self.version)
                && self.words[4] == 0,
            "follows a header with a version that the device does not take",
        )?;
        let (mut at, mut last, mut seen) = (5, 0, [0u32; 8]);
        let mut in_function = false;
        let mut sizes = Sizes::default();
        let mut unique = HashSet::new();
        while at < self.words.len() {
            let inst = module.inst(at)?;
            at += inst.words.len();
            if self.is_debug(&inst) {
                continue;
            }
            let Some(op) = inst.op() else {
                return Err(wrong(&inst, "is not known"));
            };
            if in_function || op == Op::Function {
                in_function = op != Op::FunctionEnd;
                self.note_in_function(&inst, op)?;
                last = 8;
                continue;
            }
            let section = section(op);
            ensure(&inst, section >= last, "is out of order")?;
            last = section;
            seen[section as usize] += 1;
            self.declaration(&inst, op, support, &mut sizes, &mut unique)?;
        }
        let one = |i: usize, what: &str| ensure(&header, seen[i] == 1, what);
        one(3, "is in a module without one memory model")?;
        one(4, "is in a module of several entry points")?;
        ensure(&header, self.has(1), "is in a module without Shader")?;
        self.check_decorations()?;
        self.check_variables(support.shared_bytes)
    }

    fn note_in_function(&mut self, inst: &Inst<'a>, op: Op) -> Result<()> {
        let (ty, id) = inst.result(self.module.bound)?;
        let Some(id) = id else { return Ok(()) };
        self.defs[id as usize] = match (op, ty) {
            (Op::Label, _) => Def::Label,
            (Op::Function, _) => Def::Function { ty: inst.word(4)? },
            (Op::FunctionParameter, Some(ty)) => Def::Parameter { ty },
            (Op::Variable, Some(ty)) => Def::Variable {
                ty,
                class: inst.word(3)?,
            },
            (_, Some(ty)) => Def::Value { ty },
            (_, None) => return Err(wrong(inst, "is not allowed here")),
        };
        Ok(())
    }

    fn declaration(
        &mut self,
        inst: &Inst<'a>,
        op: Op,
        support: &Support,
        sizes: &mut Sizes,
        unique: &mut HashSet<Type<'a>>,
    ) -> Result<()> {
        let w = inst.words;
        match op {
            Op::Capability => {
                length(inst, 2)?;
                ensure(
                    inst,
                    CAPABILITIES.contains(&w[1]) && support.capabilities.contains(&w[1]),
                    &format!(
                        "asks for {}, which is not allowed on this device",
                        name_of(w[1])
                    ),
                )
            }
            Op::Extension => {
                let name = super::super::module::string(inst, 1)?;
                ensure(inst, EXTENSIONS.contains(&name.as_str()), "is not allowed")
            }
            Op::ExtInstImport => {
                let name = super::super::module::string(inst, 2)?;
                ensure(inst, name == "GLSL.std.450", "is not allowed")?;
                self.defs[w[1] as usize] = Def::Set;
                Ok(())
            }
            Op::MemoryModel => {
                length(inst, 3)?;
                let vulkan = self.has(VULKAN_MEMORY_MODEL);
                let model = if vulkan { 3 } else { 1 };
                ensure(
                    inst,
                    w[1] == 0 && w[2] == model,
                    "is neither Logical GLSL450 nor, with its capability, Logical Vulkan",
                )
            }
            Op::EntryPoint => {
                let name = super::super::module::string(inst, 3)?;
                let from = 3 + name.len() / 4 + 1;
                self.listed = w.get(from..).unwrap_or_default().to_vec();
                let mut sorted = self.listed.clone();
                sorted.sort_unstable();
                sorted.dedup();
                ensure(
                    inst,
                    sorted.len() == self.listed.len(),
                    "lists a variable twice",
                )
            }
            Op::ExecutionMode => {
                // Float controls do not affect memory accesses.
                let controls = FLOAT_CONTROLS.map(|capability| capability - 5);
                if w.len() == 4 && controls.contains(&w[2]) {
                    return ensure(
                        inst,
                        w[1] == self.module.main && w[3] == 32 && self.has(w[2] + 5),
                        "is not a float control of main for 32 bits with its capability",
                    );
                }
                length(inst, 6)?;
                ensure(
                    inst,
                    w[1] == self.module.main && w[2] == 17,
                    "is not LocalSize of main",
                )
            }
            Op::ExecutionModeId => {
                length(inst, 6)?;
                ensure(
                    inst,
                    w[1] == self.module.main && w[2] == 38,
                    "is not LocalSizeId of main",
                )
            }
            Op::Decorate => {
                ensure(inst, w.len() >= 3, "has too few words")?;
                self.decorations.entry(w[1]).or_default().push(&w[2..]);
                Ok(())
            }
            Op::MemberDecorate => {
                ensure(inst, w.len() >= 4, "has too few words")?;
                self.members.entry((w[1], w[2])).or_default().push(&w[3..]);
                Ok(())
            }
            _ => {
                if let Some(ty) = self.declared_type(inst, op, sizes)? {
                    let aggregate = matches!(
                        ty,
                        Type::Array { .. }
                            | Type::Runtime { .. }
                            | Type::Struct(_)
                            | Type::Pointer { .. }
                    );
                    ensure(inst, aggregate || unique.insert(ty), "repeats a type")?;
                    self.defs[w[1] as usize] = Def::Type(ty);
                    return Ok(());
                }
                self.global(inst, op, sizes)
            }
        }
    }

    fn declared_type(
        &self,
        inst: &Inst<'a>,
        op: Op,
        sizes: &mut Sizes,
    ) -> Result<Option<Type<'a>>> {
        let w = inst.words;
        let known = |id: u32| match self.type_of(id) {
            Some(Type::Void | Type::Function { .. } | Type::Pointer { .. }) | None => Err(wrong(
                inst,
                format!("is made of %{id}, which is not a type allowed there"),
            )),
            Some(ty) => Ok(ty),
        };
        let (ty, parts): (Type<'a>, &[u32]) = match op {
            Op::TypeVoid => (length(inst, 2).map(|()| Type::Void)?, &[]),
            Op::TypeBool => (length(inst, 2).map(|()| Type::Bool)?, &[]),
            Op::TypeInt => {
                length(inst, 4)?;
                let storage16 = STORAGE16.iter().any(|&c| self.has(c));
                let storage8 = STORAGE8.iter().any(|&c| self.has(c));
                let fits = match w[2] {
                    8 => self.has(INT8) || storage8,
                    16 => self.has(INT16) || storage16,
                    32 => true,
                    64 => self.has(INT64),
                    _ => false,
                };
                ensure(
                    inst,
                    fits && w[3] <= 1,
                    "has a width without its capability",
                )?;
                (
                    Type::Int {
                        width: w[2],
                        signed: w[3] == 1,
                    },
                    &[],
                )
            }
            Op::TypeFloat => {
                length(inst, 3)?;
                let fits = match w[2] {
                    16 => self.has(FLOAT16) || STORAGE16.iter().any(|&c| self.has(c)),
                    32 => true,
                    64 => self.has(FLOAT64),
                    _ => false,
                };
                ensure(inst, fits, "has a width without its capability")?;
                (Type::Float { width: w[2] }, &[])
            }
            Op::TypeVector => {
                length(inst, 4)?;
                let scalar = self.shape(w[2]).is_some_and(|s| s.count == 1);
                ensure(
                    inst,
                    scalar && (2..=4).contains(&w[3]),
                    "is not 2 to 4 scalars",
                )?;
                (
                    Type::Vector {
                        of: w[2],
                        count: w[3],
                    },
                    &w[2..3],
                )
            }
            Op::TypeMatrix => {
                length(inst, 4)?;
                let column = self.shape(w[2]);
                let fits = column.is_some_and(|s| s.count > 1 && s.base == Base::Float);
                ensure(
                    inst,
                    fits && (2..=4).contains(&w[3]),
                    "is not 2 to 4 float vectors",
                )?;
                (
                    Type::Matrix {
                        column: w[2],
                        columns: w[3],
                    },
                    &w[2..3],
                )
            }
            Op::TypeArray => {
                length(inst, 4)?;
                known(w[2])?;
                let integer = match self.def(w[3]) {
                    Def::Constant { ty, .. } => self
                        .shape(ty)
                        .is_some_and(|s| s.base == Base::Int && s.count == 1),
                    _ => false,
                };
                let length = self
                    .layouts
                    .scalar(w[3])
                    .filter(|&n| integer && (1..1 << 31).contains(&n));
                let length = length.ok_or_else(|| wrong(inst, "has no length from 1 to 2^31"))?;
                ensure(
                    inst,
                    sizes.scalars.get(&w[2]).copied().flatten().is_some(),
                    "is made of runtime arrays",
                )?;
                (Type::Array { of: w[2], length }, &w[2..3])
            }
            Op::TypeRuntimeArray => {
                length(inst, 3)?;
                known(w[2])?;
                ensure(
                    inst,
                    sizes.scalars.get(&w[2]).copied().flatten().is_some(),
                    "is made of runtime arrays",
                )?;
                (Type::Runtime { of: w[2] }, &w[2..3])
            }
            Op::TypeStruct => {
                let members = &w[2..];
                for (i, &member) in members.iter().enumerate() {
                    let ty = known(member)?;
                    let open = sizes.scalars.get(&member).copied().flatten().is_none();
                    ensure(
                        inst,
                        !open || (matches!(ty, Type::Runtime { .. }) && i + 1 == members.len()),
                        "has a runtime array that is not its last member",
                    )?;
                }
                (Type::Struct(members), members)
            }
            Op::TypePointer => {
                length(inst, 4)?;
                known(w[3])?;
                ensure(
                    inst,
                    class::ALL.contains(&w[2]),
                    "has a storage class that is not allowed",
                )?;
                (
                    Type::Pointer {
                        class: w[2],
                        to: w[3],
                    },
                    &w[3..4],
                )
            }
            Op::TypeFunction => {
                ensure(inst, w.len() >= 3, "has too few words")?;
                let any = |id: u32, void: bool| match self.type_of(id) {
                    Some(Type::Function { .. }) | None => false,
                    Some(Type::Void) => void,
                    Some(Type::Pointer { .. }) => !void,
                    Some(_) => sizes.scalars.get(&id).copied().flatten().is_some(),
                };
                ensure(
                    inst,
                    any(w[2], true) && w[3..].iter().all(|&p| any(p, false)),
                    "has a type that functions cannot take or return",
                )?;
                (
                    Type::Function {
                        result: w[2],
                        parameters: &w[3..],
                    },
                    &[],
                )
            }
            _ => return Ok(None),
        };
        let depth = 1 + parts
            .iter()
            .filter_map(|p| sizes.depth.get(p))
            .max()
            .copied()
            .unwrap_or(0);
        ensure(inst, depth <= MAX_TYPE_DEPTH, "is nested too deeply")?;
        sizes.depth.insert(w[1], depth);
        let part = |p: u32| sizes.scalars.get(&p).copied().flatten();
        let scalars = match ty {
            Type::Vector { count, .. } => Some(u64::from(count)),
            Type::Matrix { column, columns } => part(column).map(|n| n * u64::from(columns)),
            Type::Array { of, length } => part(of).and_then(|n| n.checked_mul(length)),
            Type::Runtime { .. } => None,
            Type::Struct(members) => members
                .iter()
                .try_fold(0u64, |sum, &m| sum.checked_add(part(m)?)),
            _ => Some(1),
        };
        sizes.scalars.insert(w[1], scalars);
        Ok(Some(ty))
    }

    /// Constants and variables.
    fn global(&mut self, inst: &Inst<'a>, op: Op, sizes: &Sizes) -> Result<()> {
        let w = inst.words;
        ensure(inst, w.len() >= 3, "is not allowed here")?;
        let (ty, id) = match inst.result(self.module.bound)? {
            (Some(ty), Some(id)) => (ty, id),
            _ => return Err(wrong(inst, "is not allowed here")),
        };
        self.made.insert(id, op);
        let shape = self.shape(ty);
        let fixed = match op {
            Op::ConstantTrue | Op::ConstantFalse | Op::SpecConstantTrue | Op::SpecConstantFalse => {
                length(inst, 3)?;
                ensure(
                    inst,
                    self.type_of(ty) == Some(Type::Bool),
                    "is not a boolean",
                )?;
                matches!(op, Op::ConstantTrue | Op::ConstantFalse)
            }
            Op::Constant | Op::SpecConstant => {
                let shape = shape.filter(|s| s.count == 1 && s.base != Base::Bool);
                let shape = shape.ok_or_else(|| wrong(inst, "is not a number"))?;
                length(inst, if shape.width == 64 { 5 } else { 4 })?;
                op == Op::Constant
            }
            Op::ConstantComposite | Op::SpecConstantComposite => {
                let mut fixed = true;
                for &part in &w[3..] {
                    match self.def(part) {
                        Def::Constant { fixed: f, .. } => fixed &= f,
                        _ => {
                            return Err(wrong(
                                inst,
                                format!("is made of %{part}, which is not a constant"),
                            ));
                        }
                    }
                }
                self.composite_construct(inst)?;
                fixed && op == Op::ConstantComposite
            }
            Op::ConstantNull | Op::Undef => {
                length(inst, 3)?;
                ensure(
                    inst,
                    self.is_plain(ty, sizes),
                    "is of a type that has no such value",
                )?;
                true
            }
            Op::SpecConstantOp => {
                self.specialized(inst)?;
                false
            }
            Op::Variable => {
                ensure(
                    inst,
                    matches!(w.len(), 4 | 5),
                    "has more or fewer words than its operands",
                )?;
                let Some(Type::Pointer { class, to }) = self.type_of(ty) else {
                    return Err(wrong(inst, "is not a pointer"));
                };
                ensure(
                    inst,
                    class == w[3] && class != class::FUNCTION,
                    "has another storage class than its type",
                )?;
                if let Some(&initial) = w.get(4) {
                    let zeroed =
                        class == class::WORKGROUP && self.is_made_by(initial, &[Op::ConstantNull]);
                    let matches = matches!(self.def(initial), Def::Constant { ty, .. } if ty == to);
                    ensure(
                        inst,
                        matches && (class == class::PRIVATE || zeroed),
                        "has an initial value that is not allowed",
                    )?;
                }
                if matches!(class, class::PRIVATE | class::WORKGROUP) {
                    ensure(inst, self.is_plain(to, sizes), "is too large")?;
                }
                self.defs[id as usize] = Def::Variable { ty, class };
                return Ok(());
            }
            _ => return Err(wrong(inst, "is not allowed here")),
        };
        self.defs[id as usize] = Def::Constant { ty, fixed };
        Ok(())
    }

    /// Whether values of the type may exist: not void, not a pointer, and of a size that compilers can handle.
    fn is_plain(&self, ty: u32, sizes: &Sizes) -> bool {
        let scalars = sizes.scalars.get(&ty).copied().flatten();
        scalars.is_some_and(|n| n <= MAX_SCALARS)
            && !matches!(
                self.type_of(ty),
                None | Some(Type::Void | Type::Pointer { .. } | Type::Function { .. })
            )
    }

    fn specialized(&self, inst: &Inst<'a>) -> Result<()> {
        let w = inst.words;
        ensure(inst, w.len() >= 5, "has too few words")?;
        let op = Op::from_u32(w[3]);
        let literals = match op {
            Some(Op::CompositeExtract) => 1,
            Some(Op::CompositeInsert | Op::VectorShuffle) => 2,
            _ => usize::MAX,
        };
        for &id in w[4..].iter().take(literals) {
            ensure(
                inst,
                matches!(self.def(id), Def::Constant { .. }),
                "takes something that is not a constant",
            )?;
        }
        let allowed = matches!(
            op,
            Some(
                Op::SConvert
                    | Op::UConvert
                    | Op::FConvert
                    | Op::SNegate
                    | Op::Not
                    | Op::IAdd
                    | Op::ISub
                    | Op::IMul
                    | Op::UDiv
                    | Op::SDiv
                    | Op::UMod
                    | Op::SRem
                    | Op::SMod
                    | Op::ShiftRightLogical
                    | Op::ShiftRightArithmetic
                    | Op::ShiftLeftLogical
                    | Op::BitwiseOr
                    | Op::BitwiseXor
                    | Op::BitwiseAnd
                    | Op::LogicalOr
                    | Op::LogicalAnd
                    | Op::LogicalNot
                    | Op::LogicalEqual
                    | Op::LogicalNotEqual
                    | Op::Select
                    | Op::IEqual
                    | Op::INotEqual
                    | Op::ULessThan
                    | Op::SLessThan
                    | Op::UGreaterThan
                    | Op::SGreaterThan
                    | Op::ULessThanEqual
                    | Op::SLessThanEqual
                    | Op::UGreaterThanEqual
                    | Op::SGreaterThanEqual
                    | Op::CompositeExtract
                    | Op::CompositeInsert
                    | Op::VectorShuffle
            )
        );
        ensure(inst, allowed, "computes in a way that is not allowed")?;
        let mut words = vec![w[3] | (w.len() as u32 - 1) << 16, w[1], w[2]];
        words.extend_from_slice(&w[4..]);
        let inner = Inst::detached(&words, inst.at)?;
        self.typed(&inner)
    }
}

/// A capability's name, or its number.
fn name_of(capability: u32) -> String {
    rspirv::spirv::Capability::from_u32(capability)
        .map_or_else(|| format!("capability {capability}"), |c| format!("{c:?}"))
}

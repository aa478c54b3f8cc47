//! Instructions that access memory through pointers, order memory, or call functions.

use super::declarations::{ATOMIC_FLOAT32_ADD, INT64_ATOMICS, VULKAN_MEMORY_MODEL};
use super::{Base, Checker, Def, Inst, Result, Type, class, ensure, length, wrong};
use rspirv::spirv::Op;

const ACQUIRE_OR_RELEASE: u64 = 0x2 | 0x4 | 0x8;
const MEMORY_CLASSES: u64 = 0x40 | 0x80 | 0x100 | 0x200 | 0x800;
const VULKAN_SEMANTICS: u64 = 0x2000 | 0x4000 | 0x8000;

impl Checker<'_, '_> {
    pub(super) fn pointer(&self, inst: &Inst, id: u32) -> Result<(u32, u32)> {
        match self.type_of(self.value(inst, id)?) {
            Some(Type::Pointer { class, to }) => Ok((class, to)),
            _ => Err(wrong(
                inst,
                format!("accesses memory through %{id}, which is not a pointer"),
            )),
        }
    }

    /// Checks the memory access operands from word `at` to the end.
    fn access(&self, inst: &Inst, mut at: usize, reads: bool, writes: bool) -> Result<()> {
        let w = inst.words;
        let mut sets = 0;
        while let Some(&mask) = w.get(at) {
            at += 1;
            sets += 1;
            let plain = 0x1 | 0x2 | 0x4;
            let vulkan = 0x20 | if writes { 0x8 } else { 0 } | if reads { 0x10 } else { 0 };
            let allowed = plain
                | if self.has(VULKAN_MEMORY_MODEL) {
                    vulkan
                } else {
                    0
                };
            ensure(
                inst,
                mask & !allowed == 0,
                "accesses memory in a way that is not allowed",
            )?;
            if mask & 0x2 != 0 {
                ensure(
                    inst,
                    inst.word(at)?.is_power_of_two(),
                    "is not aligned to a power of 2",
                )?;
                at += 1;
            }
            for bit in [0x8, 0x10] {
                if mask & bit != 0 {
                    ensure(inst, mask & 0x20 != 0, "needs NonPrivatePointer")?;
                    self.scope(inst, inst.word(at)?)?;
                    at += 1;
                }
            }
        }
        let most = if reads && writes { 2 } else { 1 };
        ensure(
            inst,
            at == w.len() && sets <= most,
            "has more or fewer words than its operands",
        )
    }

    pub(super) fn load(&self, inst: &Inst) -> Result<()> {
        let (_, to) = self.pointer(inst, inst.word(3)?)?;
        ensure(
            inst,
            to == inst.words[1],
            "returns another type than its pointer's",
        )?;
        self.makes(inst, to)?;
        self.access(inst, 4, true, false)
    }

    fn writable(&self, inst: &Inst, class: u32) -> Result<()> {
        ensure(
            inst,
            !matches!(class, class::INPUT | class::PUSH_CONSTANT),
            "writes what is read-only",
        )
    }

    pub(super) fn store(&self, inst: &Inst) -> Result<()> {
        let (class, to) = self.pointer(inst, inst.word(1)?)?;
        self.writable(inst, class)?;
        ensure(
            inst,
            self.value(inst, inst.word(2)?)? == to,
            "takes another type than its pointer's",
        )?;
        self.makes(inst, to)?;
        self.access(inst, 3, false, true)
    }

    pub(super) fn copy_memory(&self, inst: &Inst) -> Result<()> {
        let ((class, to), (_, from)) = (
            self.pointer(inst, inst.word(1)?)?,
            self.pointer(inst, inst.word(2)?)?,
        );
        self.writable(inst, class)?;
        ensure(inst, to == from, "copies between two types")?;
        self.makes(inst, to)?;
        self.access(inst, 3, true, true)
    }

    pub(super) fn access_chain(&self, inst: &Inst) -> Result<()> {
        let w = inst.words;
        ensure(inst, w.len() >= 5, "has no indices")?;
        let (class, mut ty) = self.pointer(inst, w[3])?;
        for &index in &w[4..] {
            let fixed = self.fixed(index);
            ensure(
                inst,
                self.is_index(inst, index)?,
                &format!("takes %{index} as an index, which is not an integer"),
            )?;
            let within = |length: u64| match fixed {
                Some(at) if at >= length => {
                    Err(wrong(inst, format!("goes to element {at} of {length}")))
                }
                _ => Ok(()),
            };
            ty = match self.type_of(ty) {
                Some(Type::Vector { of, count }) => within(u64::from(count)).map(|()| of)?,
                Some(Type::Matrix { column, columns }) => {
                    within(u64::from(columns)).map(|()| column)?
                }
                Some(Type::Array { of, length }) => within(length).map(|()| of)?,
                Some(Type::Runtime { of }) => of,
                Some(Type::Struct(members)) => {
                    let at = fixed
                        .filter(|_| self.is_made_by(index, &[Op::Constant]))
                        .and_then(|at| usize::try_from(at).ok());
                    let member = at.and_then(|at| members.get(at));
                    *member.ok_or_else(|| wrong(inst, "selects no member"))?
                }
                _ => return Err(wrong(inst, "has an index too many")),
            };
        }
        let fits = self.type_of(w[1]) == Some(Type::Pointer { class, to: ty });
        ensure(inst, fits, "returns another type")
    }

    pub(super) fn array_length(&self, inst: &Inst) -> Result<()> {
        length(inst, 5)?;
        let w = inst.words;
        let (_, to) = self.pointer(inst, w[3])?;
        let last = match self.type_of(to) {
            Some(Type::Struct(members)) => {
                w[4] as usize + 1 == members.len()
                    && matches!(
                        self.type_of(members[members.len() - 1]),
                        Some(Type::Runtime { .. })
                    )
            }
            _ => false,
        };
        let shape = self.result_shape(inst)?;
        let word = shape.base == Base::Int && shape.width == 32 && shape.count == 1;
        ensure(
            inst,
            last && word,
            "asks for the length of something that is not a runtime array",
        )
    }

    pub(super) fn call(&self, inst: &Inst) -> Result<()> {
        let w = inst.words;
        let function = match self.def(inst.word(3)?) {
            Def::Function { ty } => self.type_of(ty),
            _ => None,
        };
        let Some(Type::Function { result, parameters }) = function else {
            return Err(wrong(inst, "calls something that is not a function"));
        };
        ensure(
            inst,
            result == w[1] && parameters.len() == w.len() - 4,
            "calls a function of another type",
        )?;
        for (&ty, &argument) in parameters.iter().zip(&w[4..]) {
            ensure(
                inst,
                self.value(inst, argument)? == ty,
                "calls a function of another type",
            )?;
            if matches!(self.type_of(ty), Some(Type::Pointer { .. })) {
                let whole = matches!(
                    self.def(argument),
                    Def::Variable { .. } | Def::Parameter { .. }
                );
                ensure(inst, whole, "passes a pointer into a variable")?;
            }
        }
        Ok(())
    }

    fn scope(&self, inst: &Inst, id: u32) -> Result<()> {
        // Device, workgroup, subgroup, invocation, queue family.
        let most = if self.has(VULKAN_MEMORY_MODEL) { 5 } else { 4 };
        let fits =
            self.fixed(id).is_some_and(|s| (1..=most).contains(&s)) && self.is_index(inst, id)?;
        ensure(inst, fits, "has a scope that is not allowed")
    }

    pub(super) fn ordered(&self, inst: &Inst, scope: u32, semantics: u32) -> Result<()> {
        self.scope(inst, scope)?;
        let vulkan = if self.has(VULKAN_MEMORY_MODEL) {
            VULKAN_SEMANTICS
        } else {
            0
        };
        let bits = self
            .fixed(semantics)
            .filter(|_| matches!(self.is_index(inst, semantics), Ok(true)));
        let fits = bits.is_some_and(|b| {
            let order = b & ACQUIRE_OR_RELEASE;
            b & !(ACQUIRE_OR_RELEASE | MEMORY_CLASSES | vulkan) == 0
                && order.count_ones() <= 1
                && (order != 0 || b & VULKAN_SEMANTICS == 0)
        });
        ensure(inst, fits, "orders memory in a way that is not allowed")
    }

    pub(super) fn atomic(&self, inst: &Inst, op: Op) -> Result<()> {
        let w = inst.words;
        let stores = op == Op::AtomicStore;
        let pointer = if stores { 1 } else { 3 };
        let (class, to) = self.pointer(inst, inst.word(pointer)?)?;
        let memory = matches!(
            class,
            class::STORAGE_BUFFER | class::UNIFORM | class::WORKGROUP
        );
        let shape = self.shape(to).filter(|s| s.count == 1 && memory);
        let shape = shape.ok_or_else(|| wrong(inst, "accesses something that is not atomic"))?;
        let moves = matches!(op, Op::AtomicLoad | Op::AtomicStore | Op::AtomicExchange);
        let fits = match (shape.base, shape.width) {
            (Base::Int, 32) => op != Op::AtomicFAddEXT,
            (Base::Int, 64) => op != Op::AtomicFAddEXT && self.has(INT64_ATOMICS),
            (Base::Float, 32) => moves || (op == Op::AtomicFAddEXT && self.has(ATOMIC_FLOAT32_ADD)),
            _ => false,
        };
        ensure(inst, fits, "accesses something that is not atomic")?;
        ensure(inst, stores || w[1] == to, "returns another type")?;
        let (values, semantics) = match op {
            Op::AtomicLoad | Op::AtomicIIncrement | Op::AtomicIDecrement => (0, 1),
            Op::AtomicCompareExchange => (2, 2),
            _ => (1, 1),
        };
        length(inst, pointer + 2 + semantics + values)?;
        for s in 0..semantics {
            self.ordered(inst, w[pointer + 1], w[pointer + 2 + s])?;
        }
        let first = self.fixed(w[pointer + 2]).unwrap_or(0);
        let order = match op {
            Op::AtomicLoad => first & 0xc == 0,
            Op::AtomicStore => first & 0xa == 0,
            Op::AtomicCompareExchange => self.fixed(w[pointer + 3]).unwrap_or(0) & 0xc == 0,
            _ => true,
        };
        ensure(inst, order, "orders memory in a way that is not allowed")?;
        for &value in &w[pointer + 2 + semantics..] {
            ensure(inst, self.value(inst, value)? == to, "takes another type")?;
        }
        Ok(())
    }
}

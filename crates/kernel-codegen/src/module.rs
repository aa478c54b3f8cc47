//! Builds a SPIR-V module: sections in order, each type and constant once.

use std::collections::HashMap;

use rspirv::spirv::{
    AddressingModel, BuiltIn, Capability, Decoration, ExecutionMode, ExecutionModel,
    FunctionControl, MemoryModel, MemorySemantics, Op, Scope, StorageClass,
};

use super::options::FloatControls;
use super::program::Type;

pub type Id = u32;

const VERSION: u32 = 0x1_0300;

/// One compute shader `main`. Instructions go to the end of its body.
pub struct Module {
    next: Id,
    decorations: Vec<u32>,
    globals: Vec<u32>,
    body: Vec<u32>,
    /// Types and constants by opcode and operands.
    known: HashMap<Vec<u32>, Id>,
    /// Variables of the entry point's interface.
    interface: Vec<Id>,
    /// The block that instructions go to.
    pub block: Id,
    pub glsl: Id,
}

fn put(out: &mut Vec<u32>, op: Op, operands: &[u32]) {
    out.push((operands.len() as u32 + 1) << 16 | op as u32);
    out.extend_from_slice(operands);
}

/// A nul-terminated literal.
fn text(literal: &str) -> Vec<u32> {
    let mut bytes = literal.as_bytes().to_vec();
    bytes.resize((literal.len() / 4 + 1) * 4, 0);
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|w| u32::from_le_bytes(*w)).collect()
}

impl Module {
    pub fn new() -> Self {
        Self {
            next: 2,
            decorations: Vec::new(),
            globals: Vec::new(),
            body: Vec::new(),
            known: HashMap::new(),
            interface: Vec::new(),
            block: 0,
            glsl: 1,
        }
    }

    pub fn id(&mut self) -> Id {
        self.next += 1;
        self.next - 1
    }

    // ---- types, constants, variables

    fn global(&mut self, op: Op, ty: Option<Id>, operands: &[u32]) -> Id {
        let mut key = vec![op as u32];
        key.extend(ty);
        key.extend_from_slice(operands);
        if let Some(&id) = self.known.get(&key) {
            return id;
        }
        let id = self.id();
        let mut words: Vec<u32> = ty.into_iter().collect();
        words.push(id);
        words.extend_from_slice(operands);
        put(&mut self.globals, op, &words);
        self.known.insert(key, id);
        id
    }

    /// A scalar (`width` 1) or a vector of 2 to 4.
    pub fn ty(&mut self, ty: Type, width: u32) -> Id {
        if width > 1 {
            let of = self.ty(ty, 1);
            return self.global(Op::TypeVector, None, &[of, width]);
        }
        match ty {
            Type::F32 => self.global(Op::TypeFloat, None, &[32]),
            Type::I32 => self.global(Op::TypeInt, None, &[32, 1]),
            Type::U32 => self.global(Op::TypeInt, None, &[32, 0]),
            Type::Bool => self.global(Op::TypeBool, None, &[]),
        }
    }

    /// A constant with these bits in every component.
    pub fn constant(&mut self, ty: Type, bits: u32, width: u32) -> Id {
        let of = self.ty(ty, 1);
        let scalar = match ty {
            Type::Bool if bits != 0 => self.global(Op::ConstantTrue, Some(of), &[]),
            Type::Bool => self.global(Op::ConstantFalse, Some(of), &[]),
            _ => self.global(Op::Constant, Some(of), &[bits]),
        };
        if width == 1 {
            return scalar;
        }
        let vector = self.ty(ty, width);
        let parts = vec![scalar; width as usize];
        self.global(Op::ConstantComposite, Some(vector), &parts)
    }

    /// A u32.
    pub fn word(&mut self, value: u32) -> Id {
        self.constant(Type::U32, value, 1)
    }

    /// A vector of u32 constants.
    pub fn words(&mut self, values: &[u32]) -> Id {
        let parts: Vec<Id> = values.iter().map(|&v| self.word(v)).collect();
        let vector = self.ty(Type::U32, values.len() as u32);
        self.global(Op::ConstantComposite, Some(vector), &parts)
    }

    pub fn pointer(&mut self, class: StorageClass, to: Id) -> Id {
        self.global(Op::TypePointer, None, &[class as u32, to])
    }

    fn variable(&mut self, class: StorageClass, to: Id) -> Id {
        let ty = self.pointer(class, to);
        let id = self.id();
        put(&mut self.globals, Op::Variable, &[ty, id, class as u32]);
        id
    }

    fn decorate(&mut self, id: Id, decoration: Decoration, operands: &[u32]) {
        let mut words = vec![id, decoration as u32];
        words.extend_from_slice(operands);
        put(&mut self.decorations, Op::Decorate, &words);
    }

    /// A struct of words, each at the next offset.
    fn block_of(&mut self, members: &[Id]) -> Id {
        let id = self.id();
        let mut words = vec![id];
        words.extend_from_slice(members);
        put(&mut self.globals, Op::TypeStruct, &words);
        self.decorate(id, Decoration::Block, &[]);
        for member in 0..members.len() as u32 {
            let words = [id, member, Decoration::Offset as u32, 4 * member];
            put(&mut self.decorations, Op::MemberDecorate, &words);
        }
        id
    }

    /// A storage buffer of u32 vectors of `width`.
    pub fn buffer(&mut self, binding: u32, width: u32) -> Id {
        let element = self.ty(Type::U32, width);
        let key = vec![u32::MAX, width];
        let block = match self.known.get(&key) {
            Some(&block) => block,
            None => {
                let array = self.id();
                put(&mut self.globals, Op::TypeRuntimeArray, &[array, element]);
                self.decorate(array, Decoration::ArrayStride, &[4 * width]);
                let block = self.block_of(&[array]);
                self.known.insert(key, block);
                block
            }
        };
        let variable = self.variable(StorageClass::StorageBuffer, block);
        self.decorate(variable, Decoration::DescriptorSet, &[0]);
        self.decorate(variable, Decoration::Binding, &[binding]);
        variable
    }

    /// The block of push constants: `count` words.
    pub fn push_constants(&mut self, count: usize) -> Id {
        let word = self.ty(Type::U32, 1);
        let block = self.block_of(&vec![word; count]);
        self.variable(StorageClass::PushConstant, block)
    }

    /// A built-in vector of three u32.
    pub fn builtin(&mut self, which: BuiltIn) -> Id {
        let vector = self.ty(Type::U32, 3);
        let variable = self.variable(StorageClass::Input, vector);
        self.decorate(variable, Decoration::BuiltIn, &[which as u32]);
        self.interface.push(variable);
        variable
    }

    /// An array of words that a workgroup shares.
    pub fn shared_words(&mut self, length: u32) -> Id {
        let (word, length) = (self.ty(Type::U32, 1), self.word(length));
        let array = self.global(Op::TypeArray, None, &[word, length]);
        self.variable(StorageClass::Workgroup, array)
    }

    /// An f32 of each invocation, that changes.
    pub fn accumulator(&mut self) -> Id {
        let float = self.ty(Type::F32, 1);
        self.variable(StorageClass::Private, float)
    }

    /// One component of a built-in vector of three u32.
    pub fn builtin_x(&mut self, which: BuiltIn) -> Id {
        let variable = self.builtin(which);
        let vector = self.ty(Type::U32, 3);
        let loaded = self.result(Op::Load, vector, &[variable]);
        self.value(Op::CompositeExtract, Type::U32, 1, &[loaded, 0])
    }

    // ---- the body

    /// An instruction with a result of a type by its id.
    pub fn result(&mut self, op: Op, ty: Id, operands: &[u32]) -> Id {
        let id = self.id();
        self.result_as(id, op, ty, operands);
        id
    }

    /// An instruction whose result was used before, by a phi.
    fn result_as(&mut self, id: Id, op: Op, ty: Id, operands: &[u32]) {
        let mut words = vec![ty, id];
        words.extend_from_slice(operands);
        put(&mut self.body, op, &words);
    }

    /// An instruction with a result.
    pub fn value(&mut self, op: Op, ty: Type, width: u32, operands: &[u32]) -> Id {
        let ty = self.ty(ty, width);
        self.result(op, ty, operands)
    }

    /// Arithmetic of f32 that a driver may not contract.
    pub fn exact(&mut self, op: Op, width: u32, operands: &[u32]) -> Id {
        let id = self.value(op, Type::F32, width, operands);
        self.decorate(id, Decoration::NoContraction, &[]);
        id
    }

    pub fn effect(&mut self, op: Op, operands: &[u32]) {
        put(&mut self.body, op, operands);
    }

    /// Begins a block.
    pub fn begin(&mut self, label: Id) {
        put(&mut self.body, Op::Label, &[label]);
        self.block = label;
    }

    pub fn branch(&mut self, label: Id) {
        self.effect(Op::Branch, &[label]);
    }

    /// Invocations of the workgroup wait for each other, and see what the others wrote to shared memory.
    pub fn barrier(&mut self) {
        let workgroup = self.word(Scope::Workgroup as u32);
        let semantics = MemorySemantics::ACQUIRE_RELEASE | MemorySemantics::WORKGROUP_MEMORY;
        let semantics = self.word(semantics.bits());
        self.effect(Op::ControlBarrier, &[workgroup, workgroup, semantics]);
    }

    /// A loop that runs `body` for `first`, `first + step`, … below `limit`; `step` is not 0. What follows goes behind the loop.
    pub fn strided(&mut self, first: Id, step: Id, limit: Id, body: impl FnOnce(&mut Self, Id)) {
        let [header, inside, next, merge, following] = [(); 5].map(|()| self.id());
        let before = self.block;
        self.branch(header);
        self.begin(header);
        let word = self.ty(Type::U32, 1);
        let at = self.result(Op::Phi, word, &[first, before, following, next]);
        let more = self.value(Op::ULessThan, Type::Bool, 1, &[at, limit]);
        self.effect(Op::LoopMerge, &[merge, next, 0]);
        self.effect(Op::BranchConditional, &[more, inside, merge]);
        self.begin(inside);
        body(self, at);
        self.branch(next);
        self.begin(next);
        // The sum may be more than a word counts.
        let left = self.value(Op::ISub, Type::U32, 1, &[limit, at]);
        let reaches = self.value(Op::ULessThan, Type::Bool, 1, &[step, left]);
        let sum = self.value(Op::IAdd, Type::U32, 1, &[at, step]);
        self.result_as(following, Op::Select, word, &[reaches, sum, limit]);
        self.branch(header);
        self.begin(merge);
    }

    /// Runs one of two bodies.
    pub fn either(
        &mut self,
        condition: Id,
        yes: impl FnOnce(&mut Self),
        no: impl FnOnce(&mut Self),
    ) {
        let [then, otherwise, merge] = [(); 3].map(|()| self.id());
        self.effect(Op::SelectionMerge, &[merge, 0]);
        self.effect(Op::BranchConditional, &[condition, then, otherwise]);
        self.begin(then);
        yes(self);
        self.branch(merge);
        self.begin(otherwise);
        no(self);
        self.branch(merge);
        self.begin(merge);
    }

    /// Runs a body where a condition holds. Without a block for where it does not: SwiftShader's search of a loop's blocks takes
    /// twice as long for each branch inside whose two sides are as long as each other, minutes for four reductions of 128.
    pub fn when(&mut self, condition: Id, body: impl FnOnce(&mut Self)) {
        let [then, merge] = [(); 2].map(|()| self.id());
        self.effect(Op::SelectionMerge, &[merge, 0]);
        self.effect(Op::BranchConditional, &[condition, then, merge]);
        self.begin(then);
        body(self);
        self.branch(merge);
        self.begin(merge);
    }

    /// The module, with the body so far as its `main`.
    pub fn finish(mut self, lanes: u32, controls: FloatControls) -> Vec<u32> {
        let void = self.global(Op::TypeVoid, None, &[]);
        let function_type = self.global(Op::TypeFunction, None, &[void]);
        let main = self.id();
        let mut out = vec![0x0723_0203, VERSION, 0, self.next, 0];
        put(&mut out, Op::Capability, &[Capability::Shader as u32]);
        let modes = controls.modes();
        for &(capability, _) in &modes {
            put(&mut out, Op::Capability, &[capability as u32]);
        }
        if !modes.is_empty() {
            put(&mut out, Op::Extension, &text("SPV_KHR_float_controls"));
        }
        let mut import = vec![self.glsl];
        import.extend(text("GLSL.std.450"));
        put(&mut out, Op::ExtInstImport, &import);
        let model = [AddressingModel::Logical as u32, MemoryModel::GLSL450 as u32];
        put(&mut out, Op::MemoryModel, &model);
        let mut entry = vec![ExecutionModel::GLCompute as u32, main];
        entry.extend(text("main"));
        entry.extend(&self.interface);
        put(&mut out, Op::EntryPoint, &entry);
        let size = [main, ExecutionMode::LocalSize as u32, lanes, 1, 1];
        put(&mut out, Op::ExecutionMode, &size);
        for (_, mode) in modes {
            put(&mut out, Op::ExecutionMode, &[main, mode as u32, 32]);
        }
        out.append(&mut self.decorations);
        out.append(&mut self.globals);
        let head = [void, main, FunctionControl::NONE.bits(), function_type];
        put(&mut out, Op::Function, &head);
        out.append(&mut self.body);
        put(&mut out, Op::FunctionEnd, &[]);
        out
    }
}

//! Which memory a module's pointers may point to, and so which buffers its accesses touch.
//!
//! A flow-insensitive, field-insensitive points-to analysis by inclusion (L. O. Andersen, "Program Analysis and
//! Specialization for the C Programming Language", 1994) over the functions that `main` can reach. The set of every id
//! is one 64-bit word, so a set grows at most 64 times and the fixpoint takes time linear in the module. Whatever the
//! analysis does not know, it assumes the worst.

mod reach;
mod solve;

#[cfg(test)]
pub(crate) use solve::JOINS;

use super::layout::{Kind, Layouts};
use super::module::{ExtendedSet, Inst, Module, Variable, malformed};
use super::{MAX_BINDINGS, ReflectError, storage_class};
use reach::Reach;
use rspirv::spirv::{GlslStd450Op, Op, StorageClass};
use std::collections::HashMap;

/// What a pointer may point to: bits 0 to 31 are the storage buffer bindings, then the bits below.
type Set = u64;
/// Memory behind a device address.
const ADDRESS: Set = 1 << 32;
/// A value of unknown origin.
const UNKNOWN: Set = 1 << 33;
/// First bit for the shader's own variables. The first one stands for all whose type holds no pointer, the second for
/// those that got no bit of their own.
const LOCAL: u32 = 34;
const LOCAL_PLAIN: u32 = LOCAL;
const LOCAL_SHARED: u32 = LOCAL + 1;
const LOCALS: Set = !0 << LOCAL;
const BINDINGS: Set = (1 << 32) - 1;

/// Nodes of the flow graph with fixed numbers; those of ids follow.
const UNDEFINED: u32 = 0;
/// Values that left the analysis: what they point to counts as read and written.
const ESCAPED: u32 = 1;
/// Operands of instructions whose memory accesses are not modelled. All of them escape, and a device address among them
/// counts as used.
const TOUCHED: u32 = 2;
/// What the variable of bit `LOCAL + i` contains.
const CONTENTS: u32 = 3;
const FIRST_ID: u32 = CONTENTS + 64 - LOCAL;

/// The result of the analysis.
pub(super) struct Access {
    /// Bindings that `main` names, accessed or not.
    pub used: u32,
    pub reads: u32,
    pub writes: u32,
    pub address_reads: bool,
    pub address_writes: bool,
    pub push_bytes: u32,
    pub push_block_bytes: u32,
    /// Indices of the variables that `main` uses, in order of declaration.
    pub variables: Vec<usize>,
}

pub(super) fn analyse(module: &Module, layouts: &Layouts) -> Result<Access, ReflectError> {
    let reach = Reach::find(module)?;
    let mut access = Access {
        used: 0,
        reads: 0,
        writes: 0,
        address_reads: false,
        address_writes: false,
        push_bytes: 0,
        push_block_bytes: 0,
        variables: reach.variables,
    };
    let mut graph = Graph::new(module, layouts);
    let mut push = HashMap::new();
    let mut next_local = LOCAL_SHARED + 1;
    for variable in access.variables.iter().map(|&i| &module.variables[i]) {
        let set = match storage_class(variable.class) {
            Some(StorageClass::StorageBuffer | StorageClass::Uniform) => {
                let bit = 1 << binding(module, layouts, variable)?;
                access.used |= bit;
                Set::from(bit)
            }
            Some(StorageClass::PushConstant) => {
                let data = layouts.data_type(variable);
                let size = data.and_then(|ty| layouts.access_end(module, ty, &[]));
                let size = size.and_then(|size| u32::try_from(size).ok());
                let size = size.ok_or(ReflectError::PushConstants {
                    offset: variable.at,
                    id: variable.id,
                })?;
                access.push_block_bytes = access.push_block_bytes.max(size);
                push.insert(variable.id, (data, size));
                1 << LOCAL_PLAIN
            }
            Some(
                StorageClass::Function
                | StorageClass::Private
                | StorageClass::Workgroup
                | StorageClass::Input,
            ) => {
                let plain = layouts
                    .data_type(variable)
                    .is_some_and(|ty| !layouts.holds_pointer(ty));
                match next_local {
                    _ if plain => 1 << LOCAL_PLAIN,
                    64 => 1 << LOCAL_SHARED,
                    bit => {
                        next_local += 1;
                        1 << bit
                    }
                }
            }
            _ => return Err(resource(layouts, variable)),
        };
        graph.variable(variable, set);
    }
    for &at in &module.globals {
        graph.global(&module.inst(at)?)?;
    }
    for &function in &reach.functions {
        let function = &module.functions[function];
        let mut at = function.from;
        while at < function.to {
            let inst = module.inst(at)?;
            at += inst.words.len();
            graph.instruction(&inst, function.id)?;
            access.push_bytes = access.push_bytes.max(graph.push_end(&inst, &push)?);
        }
    }
    graph.solve();
    graph.collect(&mut access);
    Ok(access)
}

/// The binding of a used storage buffer variable, after checking that it is one.
fn binding(module: &Module, layouts: &Layouts, variable: &Variable) -> Result<u32, ReflectError> {
    let (offset, id) = (variable.at, variable.id);
    let data = layouts.data_type(variable);
    let kind = data.and_then(|ty| layouts.get(ty)).map(|ty| &ty.kind);
    if !matches!(kind, Some(Kind::Struct { .. })) {
        return Err(resource(layouts, variable));
    }
    let block = data
        .and_then(|ty| module.decorations.get(&ty))
        .copied()
        .unwrap_or_default();
    if storage_class(variable.class) == Some(StorageClass::Uniform) && !block.buffer_block {
        return Err(ReflectError::Resource {
            offset,
            id,
            kind: "a uniform buffer".into(),
        });
    }
    let decorations = module.decorations.get(&id).copied().unwrap_or_default();
    let missing = |decoration| ReflectError::Undecorated {
        offset,
        id,
        decoration,
    };
    let set = decorations.set.ok_or_else(|| missing("DescriptorSet"))?;
    let binding = decorations.binding.ok_or_else(|| missing("Binding"))?;
    if set != 0 {
        return Err(ReflectError::DescriptorSet { offset, id, set });
    }
    if binding >= MAX_BINDINGS {
        return Err(ReflectError::Binding {
            offset,
            id,
            binding,
        });
    }
    Ok(binding)
}

/// The error for a variable that our pipelines cannot provide.
fn resource(layouts: &Layouts, variable: &Variable) -> ReflectError {
    let data = layouts
        .data_type(variable)
        .and_then(|ty| layouts.get(ty))
        .map(|ty| &ty.kind);
    let kind = match (storage_class(variable.class), data) {
        (Some(StorageClass::StorageBuffer | StorageClass::Uniform), Some(Kind::Array { .. })) => {
            "an array of buffers".to_owned()
        }
        (Some(StorageClass::StorageBuffer | StorageClass::Uniform), _) => {
            "a buffer without a block".to_owned()
        }
        (Some(class), Some(Kind::Other(name))) => format!("a {class:?} resource ({name})"),
        (Some(class), _) => format!("a variable of storage class {class:?}"),
        (None, _) => format!("a variable of unknown storage class {}", variable.class),
    };
    ReflectError::Resource {
        offset: variable.at,
        id: variable.id,
        kind,
    }
}

/// Whether the instruction is debug information or similar, which touches no memory.
fn non_semantic(module: &Module, inst: &Inst) -> bool {
    matches!(inst.op(), Some(Op::ExtInst | Op::ExtInstWithForwardRefsKHR))
        && inst.words.get(3).and_then(|set| module.sets.get(set)) == Some(&ExtendedSet::NonSemantic)
}

/// A node's result type, as far as it matters to the flow.
#[derive(Clone, Copy)]
struct Node {
    /// Whether values may carry pointers: only then does anything flow in.
    carries: bool,
    /// Raw storage class, for values of pointer type.
    class: Option<u32>,
}

impl Node {
    fn is_address(self) -> bool {
        self.class.and_then(storage_class) == Some(StorageClass::PhysicalStorageBuffer)
    }
}

/// Flow between ids: `edges` copy sets, `loads` and `stores` go through what a pointer points to.
struct Graph<'m, 'a> {
    module: &'m Module<'a>,
    layouts: &'m Layouts<'a>,
    nodes: Vec<Node>,
    node_of: HashMap<u32, u32>,
    sets: Vec<Set>,
    edges: Vec<(u32, u32)>,
    /// (pointer, result)
    loads: Vec<(u32, u32)>,
    /// (pointer, value)
    stores: Vec<(u32, u32)>,
    /// (pointer, reads, writes)
    accesses: Vec<(u32, bool, bool)>,
    /// The node through which values reach all parameters of a function that is called back.
    callbacks: HashMap<usize, u32>,
    ids: Vec<u32>,
}

impl<'m, 'a> Graph<'m, 'a> {
    fn new(module: &'m Module<'a>, layouts: &'m Layouts<'a>) -> Self {
        let inner = Node {
            carries: true,
            class: None,
        };
        let mut nodes = vec![inner; FIRST_ID as usize];
        let mut node_of = HashMap::with_capacity(module.results.len());
        for &(id, ty) in &module.results {
            node_of.insert(id, nodes.len() as u32);
            nodes.push(Node {
                carries: ty.is_some_and(|ty| layouts.holds_pointer(ty)),
                class: ty.and_then(|ty| layouts.pointer_class(ty)),
            });
        }
        let mut sets = vec![0; nodes.len()];
        sets[UNDEFINED as usize] = UNKNOWN;
        Self {
            module,
            layouts,
            nodes,
            node_of,
            sets,
            edges: vec![(TOUCHED, ESCAPED)],
            // Whoever has an escaped pointer may read and overwrite what it points to.
            loads: vec![(ESCAPED, ESCAPED)],
            stores: vec![(ESCAPED, UNDEFINED)],
            accesses: Vec::new(),
            callbacks: HashMap::new(),
            ids: Vec::new(),
        }
    }

    /// The node of an id; an id without a known definition is of unknown origin.
    fn node(&self, id: u32) -> u32 {
        self.node_of.get(&id).copied().unwrap_or(UNDEFINED)
    }

    fn edge(&mut self, from: u32, to: u32) {
        if self.nodes[from as usize].carries && self.nodes[to as usize].carries {
            self.edges.push((from, to));
        }
    }

    fn variable(&mut self, variable: &Variable, set: Set) {
        let node = self.node(variable.id);
        self.sets[node as usize] |= set;
        if let Some(initializer) = variable.initializer {
            self.stores.push((node, self.node(initializer)));
        }
    }

    /// Constants may contain pointers to variables; an unknown declaration may do anything with them.
    fn global(&mut self, inst: &Inst) -> Result<(), ReflectError> {
        match inst.op() {
            Some(
                Op::ConstantComposite
                | Op::SpecConstantComposite
                | Op::ConstantCompositeReplicateEXT
                | Op::SpecConstantCompositeReplicateEXT
                | Op::SpecConstantOp,
            ) => self.copy(inst),
            Some(_) if !matches!(inst.op(), Some(Op::ExtInst | Op::ExtInstWithForwardRefsKHR)) => {
                Ok(())
            }
            _ if non_semantic(self.module, inst) => Ok(()),
            _ => self.other(inst),
        }
    }

    fn instruction(&mut self, inst: &Inst, function: u32) -> Result<(), ReflectError> {
        let Some(op) = inst.op() else {
            return self.other(inst);
        };
        match op {
            Op::Load => {
                self.access(inst, 3, true, false)?;
                let (pointer, value) = (self.node(inst.word(3)?), self.node(inst.word(2)?));
                self.loads.push((pointer, value));
                self.address(value);
            }
            Op::Store => {
                self.access(inst, 1, false, true)?;
                self.stores
                    .push((self.node(inst.word(1)?), self.node(inst.word(2)?)));
            }
            Op::CopyMemory | Op::CopyMemorySized => {
                self.access(inst, 1, false, true)?;
                self.access(inst, 2, true, false)?;
                let value = self.new_node();
                self.stores.push((self.node(inst.word(1)?), value));
                self.loads.push((self.node(inst.word(2)?), value));
            }
            Op::AtomicLoad => self.access(inst, 3, true, false)?,
            Op::AtomicStore | Op::AtomicFlagClear => self.access(inst, 1, false, true)?,
            Op::AtomicExchange
            | Op::AtomicCompareExchange
            | Op::AtomicCompareExchangeWeak
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
            | Op::AtomicFlagTestAndSet
            | Op::AtomicFMinEXT
            | Op::AtomicFMaxEXT
            | Op::AtomicFAddEXT => self.access(inst, 3, true, true)?,
            Op::CooperativeMatrixLoadKHR
            | Op::CooperativeMatrixLoadNV
            | Op::CooperativeVectorLoadNV => {
                self.access(inst, 3, true, false)?;
            }
            Op::CooperativeMatrixLoadTensorNV => {
                self.access(inst, 3, true, false)?;
                // A decode function gets the address of the element that it decodes.
                self.call_back(inst)?;
            }
            Op::CooperativeMatrixStoreKHR
            | Op::CooperativeMatrixStoreNV
            | Op::CooperativeMatrixStoreTensorNV
            | Op::CooperativeVectorStoreNV => self.access(inst, 1, false, true)?,
            Op::CooperativeVectorMatrixMulNV => self.access(inst, 5, true, false)?,
            Op::CooperativeVectorMatrixMulAddNV => {
                self.access(inst, 5, true, false)?;
                self.access(inst, 8, true, false)?;
            }
            Op::CooperativeVectorOuterProductAccumulateNV
            | Op::CooperativeVectorReduceSumAccumulateNV => {
                self.access(inst, 1, true, true)?;
            }
            Op::AccessChain
            | Op::InBoundsAccessChain
            | Op::PtrAccessChain
            | Op::InBoundsPtrAccessChain
            | Op::UntypedAccessChainKHR
            | Op::UntypedInBoundsAccessChainKHR
            | Op::UntypedPtrAccessChainKHR
            | Op::UntypedInBoundsPtrAccessChainKHR
            | Op::RawAccessChainNV
            | Op::CopyObject
            | Op::Phi
            | Op::Select => self.copy(inst)?,
            Op::CopyLogical
            | Op::CompositeConstruct
            | Op::CompositeConstructReplicateEXT
            | Op::CompositeInsert
            | Op::CompositeExtract
            | Op::Bitcast
            | Op::ConvertUToPtr
            | Op::ConvertPtrToU => {
                self.copy(inst)?;
                let result = self.node(inst.word(2)?);
                self.address(result);
                if !self.nodes[result as usize].carries
                    && matches!(op, Op::Bitcast | Op::ConvertPtrToU)
                {
                    // A pointer becomes a number; that alone accesses nothing through a device address.
                    let value = self.node(inst.word(3)?);
                    self.edge(value, ESCAPED);
                }
            }
            Op::FunctionCall => self.call(inst)?,
            Op::ReturnValue => {
                let (from, to) = (self.node(inst.word(1)?), self.node(function));
                self.edge(from, to);
            }
            Op::ExtInst if self.module.sets.get(&inst.word(3)?) == Some(&ExtendedSet::Glsl) => {
                match GlslStd450Op::from_u32(inst.word(4)?) {
                    Some(GlslStd450Op::Modf | GlslStd450Op::Frexp) => {
                        self.access(inst, 6, false, true)?
                    }
                    _ => self.other(inst)?,
                }
            }
            Op::ExtInst | Op::ExtInstWithForwardRefsKHR if non_semantic(self.module, inst) => {}
            // None of these accesses what its pointers point to.
            Op::Function
            | Op::FunctionParameter
            | Op::Variable
            | Op::UntypedVariableKHR
            | Op::Undef
            | Op::ArrayLength
            | Op::UntypedArrayLengthKHR
            | Op::PtrEqual
            | Op::PtrNotEqual
            | Op::PtrDiff => {}
            _ => self.other(inst)?,
        }
        Ok(())
    }

    fn new_node(&mut self) -> u32 {
        self.nodes.push(Node {
            carries: true,
            class: None,
        });
        self.sets.push(0);
        self.nodes.len() as u32 - 1
    }

    /// The operand at word `index` is a pointer through which memory is read or written.
    fn access(
        &mut self,
        inst: &Inst,
        index: usize,
        reads: bool,
        writes: bool,
    ) -> Result<(), ReflectError> {
        self.accesses
            .push((self.node(inst.word(index)?), reads, writes));
        Ok(())
    }

    /// A value of new origin: if it is a device address, it may be any address.
    fn address(&mut self, node: u32) {
        if self.nodes[node as usize].is_address() {
            self.sets[node as usize] |= ADDRESS;
        }
    }

    /// The result may be an operand, contain it, or point into it.
    fn copy(&mut self, inst: &Inst) -> Result<(), ReflectError> {
        let result = self.node(inst.word(2)?);
        self.operands(inst, |graph, value| graph.edge(value, result))
    }

    fn operands(
        &mut self,
        inst: &Inst,
        mut each: impl FnMut(&mut Self, u32),
    ) -> Result<(), ReflectError> {
        let mut ids = std::mem::take(&mut self.ids);
        let result = inst.operand_ids(self.module.bound, &mut ids);
        for &id in &ids {
            if !self.module.function_of.contains_key(&id) {
                each(self, self.node(id));
            }
        }
        self.ids = ids;
        result
    }

    /// An instruction that is not modelled: it may access all memory that it gets a pointer to, call the functions it
    /// names with any of its operands, and return a pointer of unknown origin.
    fn other(&mut self, inst: &Inst) -> Result<(), ReflectError> {
        self.operands(inst, |graph, value| graph.edge(value, TOUCHED))?;
        self.call_back(inst)?;
        if let (Some(_), Some(id)) = inst.result(self.module.bound)? {
            let node = self.node(id);
            self.address(node);
            let known = self.nodes[node as usize];
            if known.carries && !known.is_address() {
                self.sets[node as usize] |= UNKNOWN;
            }
        }
        Ok(())
    }

    fn call(&mut self, inst: &Inst) -> Result<(), ReflectError> {
        let (result, callee) = (inst.word(2)?, inst.word(3)?);
        let arguments = &inst.words[4..];
        let Some(&function) = self.module.function_of.get(&callee) else {
            return Err(malformed(
                inst.at,
                format!("OpFunctionCall of %{callee}, which is not a function"),
            ));
        };
        let module = self.module;
        let parameters = &module.functions[function].parameters;
        if parameters.len() != arguments.len() {
            let (has, needs) = (arguments.len(), parameters.len());
            let what = format!(
                "OpFunctionCall passes {has} arguments to %{callee}, which has {needs} parameters"
            );
            return Err(malformed(inst.at, what));
        }
        for (&argument, &parameter) in arguments.iter().zip(parameters) {
            let (from, to) = (self.node(argument), self.node(parameter));
            self.edge(from, to);
        }
        let (from, to) = (self.node(callee), self.node(result));
        self.edge(from, to);
        Ok(())
    }

    /// Functions among the operands of an instruction other than a call (per-element, reduction and decode functions):
    /// every operand may reach every parameter.
    fn call_back(&mut self, inst: &Inst) -> Result<(), ReflectError> {
        let module = self.module;
        let mut ids = std::mem::take(&mut self.ids);
        let result = inst.operand_ids(module.bound, &mut ids);
        ids.retain(|id| module.function_of.contains_key(id));
        if !ids.is_empty() {
            // One node for the operands and one for each function's parameters, so the edges are their sum, not their
            // product.
            let operands = self.new_node();
            for id in &ids {
                let sink = self.parameters(*id);
                self.edge(operands, sink);
            }
            self.operands(inst, |graph, value| graph.edge(value, operands))?;
        }
        self.ids = ids;
        result
    }

    /// The node whose values reach all parameters of the function `id`, which is called back. What the function returns
    /// goes to its caller.
    fn parameters(&mut self, id: u32) -> u32 {
        let module = self.module;
        let function = module.function_of[&id];
        if let Some(&sink) = self.callbacks.get(&function) {
            return sink;
        }
        let sink = self.new_node();
        self.callbacks.insert(function, sink);
        for &parameter in &module.functions[function].parameters {
            let to = self.node(parameter);
            self.edge(sink, to);
        }
        let returned = self.node(id);
        self.edge(returned, TOUCHED);
        sink
    }

    /// End, in bytes, of what the instruction touches of a push constant block.
    fn push_end(
        &mut self,
        inst: &Inst,
        blocks: &HashMap<u32, (Option<u32>, u32)>,
    ) -> Result<u32, ReflectError> {
        if blocks.is_empty() || non_semantic(self.module, inst) {
            return Ok(0);
        }
        if matches!(inst.op(), Some(Op::AccessChain | Op::InBoundsAccessChain))
            && let Some(&(Some(ty), size)) = blocks.get(&inst.word(3)?)
        {
            let end = self.layouts.access_end(self.module, ty, &inst.words[4..]);
            return Ok(end
                .and_then(|end| u32::try_from(end).ok())
                .map_or(size, |end| end.min(size)));
        }
        let mut ids = std::mem::take(&mut self.ids);
        let result = inst.operand_ids(self.module.bound, &mut ids);
        let end = ids
            .iter()
            .filter_map(|id| blocks.get(id))
            .map(|&(_, size)| size)
            .max();
        self.ids = ids;
        result.map(|()| end.unwrap_or(0))
    }

    /// Derives the accesses from the solved sets.
    fn collect(&self, access: &mut Access) {
        let mut note = |set: Set, reads: bool, writes: bool| {
            let bindings = (set & BINDINGS) as u32;
            access.reads |= if reads { bindings } else { 0 };
            access.writes |= if writes { bindings } else { 0 };
            access.address_reads |= reads && set & ADDRESS != 0;
            access.address_writes |= writes && set & ADDRESS != 0;
        };
        let anything = ADDRESS | Set::from(access.used);
        for &(pointer, reads, writes) in &self.accesses {
            let set = self.sets[pointer as usize];
            // A pointer into which nothing known flows (null or undefined, say) may be any of its kind.
            let lost = match self.nodes[pointer as usize].class.map(storage_class) {
                _ if set & UNKNOWN != 0 => anything,
                Some(Some(StorageClass::StorageBuffer | StorageClass::Uniform))
                    if set & BINDINGS == 0 =>
                {
                    anything
                }
                Some(Some(StorageClass::PhysicalStorageBuffer))
                    if set & (ADDRESS | BINDINGS) == 0 =>
                {
                    ADDRESS
                }
                None | Some(None) if set == 0 => anything,
                _ => 0,
            };
            note(set | lost, reads, writes);
        }
        note(self.sets[ESCAPED as usize] & BINDINGS, true, true);
        note(self.sets[TOUCHED as usize], true, true);
    }
}

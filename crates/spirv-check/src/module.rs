//! The words of a module as instructions, and the declarations that reflection needs.

use super::ReflectError;
use rspirv::grammar::{INSTRUCTION_TABLE, Instruction, OperandKind, OperandQuantifier};
use rspirv::spirv::{BuiltIn, Decoration, ExecutionMode, ExecutionModel, MemoryAccess, Op};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The grammar of the known instructions, by opcode.
static GRAMMAR: LazyLock<Vec<Option<&'static Instruction<'static>>>> = LazyLock::new(|| {
    let mut table = Vec::new();
    for instruction in INSTRUCTION_TABLE.iter() {
        let code = instruction.opcode as usize;
        if table.len() <= code {
            table.resize(code + 1, None);
        }
        table[code] = Some(instruction);
    }
    table
});

const HEADER_WORDS: usize = 5;
/// Ids that any module may declare: tools leave gaps where they remove instructions.
const SPARSE_IDS: usize = 1 << 16;
const MAGIC: u32 = 0x0723_0203;

/// One instruction in place.
#[derive(Clone, Copy)]
pub(super) struct Inst<'a> {
    /// Offset of its first word in the module.
    pub at: usize,
    /// All of its words; never empty.
    pub words: &'a [u32],
    /// Its grammar; `None` for an opcode that the tables do not know.
    grammar: Option<&'static Instruction<'static>>,
}

impl<'a> Inst<'a> {
    /// The instruction at word `at`, which must be below `words.len()`.
    fn read(words: &'a [u32], at: usize) -> Result<Self, ReflectError> {
        let first = words[at];
        let (length, code) = ((first >> 16) as usize, (first & 0xffff) as usize);
        let grammar = GRAMMAR.get(code).copied().flatten();
        let left = words.len() - at;
        if length == 0 || length > left {
            let name = name(grammar, first);
            return Err(match length {
                0 => malformed(at, format!("{name} has a length of 0 words")),
                _ => ReflectError::Truncated {
                    offset: at,
                    name,
                    length,
                    left,
                },
            });
        }
        Ok(Self {
            at,
            words: &words[at..at + length],
            grammar,
        })
    }

    /// An instruction that is not part of the module itself; errors name the word `at`.
    pub fn detached(words: &'a [u32], at: usize) -> Result<Self, ReflectError> {
        Ok(Self {
            at,
            ..Self::read(words, 0)?
        })
    }

    /// The opcode, if known.
    pub fn op(&self) -> Option<Op> {
        self.grammar.map(|g| g.opcode)
    }

    pub fn name(&self) -> String {
        name(self.grammar, self.words[0])
    }

    /// Operand word `index` (the first word after the opcode is 1).
    pub fn word(&self, index: usize) -> Result<u32, ReflectError> {
        self.words
            .get(index)
            .copied()
            .ok_or_else(|| self.too_short())
    }

    fn too_short(&self) -> ReflectError {
        ReflectError::TooShort {
            offset: self.at,
            name: self.name(),
            length: self.words.len(),
        }
    }

    /// Result type and result id; none for an unknown instruction.
    pub fn result(&self, bound: u32) -> Result<(Option<u32>, Option<u32>), ReflectError> {
        let kind = |i: usize| self.grammar.and_then(|g| g.operands.get(i)).map(|o| o.kind);
        let at = |i: usize| self.check_id(self.word(i)?, bound);
        Ok(match (kind(0), kind(1)) {
            (Some(OperandKind::IdResultType), Some(OperandKind::IdResult)) => {
                (Some(at(1)?), Some(at(2)?))
            }
            (Some(OperandKind::IdResult), _) => (None, Some(at(1)?)),
            _ => (None, None),
        })
    }

    fn check_id(&self, id: u32, bound: u32) -> Result<u32, ReflectError> {
        if id == 0 || id >= bound {
            return Err(ReflectError::IdOutOfBound {
                offset: self.at,
                name: self.name(),
                id,
                bound,
            });
        }
        Ok(id)
    }

    /// Collects into `out` every operand that is or may be an id, except the result and its type. All words of an
    /// unknown instruction may be ids, and so may the words after an operand whose shape is not known here.
    pub fn operand_ids(&self, bound: u32, out: &mut Vec<u32>) -> Result<(), ReflectError> {
        use OperandKind as K;
        out.clear();
        let Some(grammar) = self.grammar else {
            out.extend_from_slice(&self.words[1..]);
            return Ok(());
        };
        let mut at = 1;
        for operand in grammar.operands {
            loop {
                let Some(&word) = self.words.get(at) else {
                    return match operand.quantifier {
                        OperandQuantifier::One => Err(self.too_short()),
                        OperandQuantifier::ZeroOrOne | OperandQuantifier::ZeroOrMore => Ok(()),
                    };
                };
                at += 1;
                match operand.kind {
                    K::IdResultType | K::IdResult => {}
                    K::IdRef | K::IdScope | K::IdMemorySemantics => {
                        out.push(self.check_id(word, bound)?)
                    }
                    K::PairIdRefIdRef => {
                        out.push(self.check_id(word, bound)?);
                        out.push(self.check_id(self.word(at)?, bound)?);
                        at += 1;
                    }
                    K::LiteralInteger
                    | K::LiteralExtInstInteger
                    | K::LiteralSpecConstantOpInteger
                    | K::StorageClass
                    | K::FunctionControl
                    | K::SelectionControl
                    | K::GroupOperation
                    | K::CooperativeMatrixOperands
                    | K::CooperativeMatrixReduce
                    | K::PackedVectorFormat => {}
                    K::MemoryAccess => at = self.memory_access(word, at, out),
                    // Literals and block labels up to the end.
                    K::LoopControl | K::PairLiteralIntegerIdRef => return Ok(()),
                    _ => {
                        // A mask with operands (TensorAddressingOperands, ImageOperands, …), or a kind newer than this
                        // code.
                        out.extend_from_slice(&self.words[at - 1..]);
                        return Ok(());
                    }
                }
                if operand.quantifier != OperandQuantifier::ZeroOrMore {
                    break;
                }
            }
        }
        out.extend_from_slice(&self.words[at..]);
        Ok(())
    }

    /// Skips the operands of the memory access mask `mask`, which start at word `at`.
    fn memory_access(&self, mask: u32, mut at: usize, out: &mut Vec<u32>) -> usize {
        let mask = MemoryAccess::from_bits_retain(mask);
        let plain =
            MemoryAccess::VOLATILE | MemoryAccess::NONTEMPORAL | MemoryAccess::NON_PRIVATE_POINTER;
        let scopes = MemoryAccess::MAKE_POINTER_AVAILABLE | MemoryAccess::MAKE_POINTER_VISIBLE;
        if !(plain | scopes | MemoryAccess::ALIGNED).contains(mask) {
            out.extend_from_slice(&self.words[at..]);
            return self.words.len();
        }
        at += usize::from(mask.contains(MemoryAccess::ALIGNED));
        for _ in 0..(mask & scopes).bits().count_ones() {
            out.extend(self.words.get(at));
            at += 1;
        }
        at.min(self.words.len())
    }
}

fn name(grammar: Option<&'static Instruction<'static>>, first: u32) -> String {
    grammar.map_or_else(
        || format!("unknown instruction {}", first & 0xffff),
        |g| format!("Op{}", g.opname),
    )
}

pub(super) fn malformed(offset: usize, what: impl Into<String>) -> ReflectError {
    ReflectError::Malformed {
        offset,
        what: what.into(),
    }
}

/// The decorations of one id that matter here.
#[derive(Clone, Copy, Default)]
pub(super) struct Decorations {
    pub set: Option<u32>,
    pub binding: Option<u32>,
    pub spec_id: Option<u32>,
    pub array_stride: Option<u32>,
    pub buffer_block: bool,
    pub aliased: bool,
    /// `BuiltIn WorkgroupSize`.
    pub workgroup_size: bool,
}

impl Decorations {
    fn add(&mut self, other: Self) {
        self.set = other.set.or(self.set);
        self.binding = other.binding.or(self.binding);
        self.spec_id = other.spec_id.or(self.spec_id);
        self.array_stride = other.array_stride.or(self.array_stride);
        self.buffer_block |= other.buffer_block;
        self.aliased |= other.aliased;
        self.workgroup_size |= other.workgroup_size;
    }
}

/// Where a structure member is.
#[derive(Clone, Copy, Default)]
pub(super) struct MemberLayout {
    pub offset: Option<u32>,
    pub matrix_stride: Option<u32>,
    pub row_major: bool,
}

/// `OpExecutionMode` or `OpExecutionModeId` with three operands.
pub(super) struct Mode {
    pub function: u32,
    pub mode: u32,
    pub operands: [u32; 3],
}

/// `OpVariable` or `OpUntypedVariableKHR`, of the module or of a function.
pub(super) struct Variable {
    pub at: usize,
    pub id: u32,
    /// Its pointer type.
    pub ty: u32,
    /// Raw storage class.
    pub class: u32,
    /// Data type of an untyped variable.
    pub data: Option<u32>,
    pub initializer: Option<u32>,
}

/// A function definition: words `from..to` of the module, `OpFunction` and `OpFunctionEnd` included.
pub(super) struct Function {
    pub id: u32,
    pub from: usize,
    pub to: usize,
    pub parameters: Vec<u32>,
    pub has_body: bool,
}

/// What an extended instruction set does with pointers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExtendedSet {
    /// Debug information and the like: touches no memory.
    NonSemantic,
    /// GLSL.std.450.
    Glsl,
}

/// The declarations of a module, ids checked against its bound.
pub(super) struct Module<'a> {
    words: &'a [u32],
    pub bound: u32,
    pub capabilities: Vec<u32>,
    pub extensions: Vec<String>,
    /// Known extended instruction sets by id.
    pub sets: HashMap<u32, ExtendedSet>,
    /// The function of the entry point `main`.
    pub main: u32,
    pub execution_modes: Vec<Mode>,
    pub decorations: HashMap<u32, Decorations>,
    pub members: HashMap<(u32, u32), MemberLayout>,
    /// Result ids, in order of definition, with their result types.
    pub results: Vec<(u32, Option<u32>)>,
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
    pub function_of: HashMap<u32, usize>,
    /// Offsets of the instructions outside functions that declare types, constants and anything unknown.
    pub globals: Vec<usize>,
    pub cooperative_matrix: bool,
}

impl<'a> Module<'a> {
    /// Reads the whole module once.
    pub fn parse(words: &'a [u32]) -> Result<Self, ReflectError> {
        match words.first() {
            Some(&MAGIC) if words.len() >= HEADER_WORDS => {}
            Some(&found) if found == MAGIC.swap_bytes() => return Err(ReflectError::ByteSwapped),
            Some(&found) if found != MAGIC => return Err(ReflectError::Magic { found }),
            _ => return Err(ReflectError::Header { words: words.len() }),
        }
        // Drivers allocate by the bound: 2^28 ids took one of them 27 s and 10.6 GB.
        if words[3] as usize > words.len().max(SPARSE_IDS) {
            return Err(ReflectError::Bound {
                bound: words[3],
                words: words.len(),
            });
        }
        let mut module = Self {
            words,
            bound: words[3],
            capabilities: Vec::new(),
            extensions: Vec::new(),
            sets: HashMap::new(),
            main: 0,
            execution_modes: Vec::new(),
            decorations: HashMap::new(),
            members: HashMap::new(),
            results: Vec::new(),
            variables: Vec::new(),
            functions: Vec::new(),
            function_of: HashMap::new(),
            globals: Vec::new(),
            cooperative_matrix: false,
        };
        let mut open: Option<Function> = None;
        let mut entry_points = Vec::new();
        let mut groups = Vec::new();
        let mut at = HEADER_WORDS;
        while at < words.len() {
            let inst = Inst::read(words, at)?;
            at += inst.words.len();
            let (ty, result) = inst.result(module.bound)?;
            if let Some(id) = result {
                module.results.push((id, ty));
            }
            match &mut open {
                Some(function) => match inst.op() {
                    Some(Op::FunctionEnd) => {
                        function.to = at;
                        module.functions.extend(open.take());
                    }
                    Some(Op::Function) => {
                        return Err(malformed(inst.at, "OpFunction inside a function"));
                    }
                    Some(Op::FunctionParameter) => function.parameters.push(inst.word(2)?),
                    Some(Op::Label) => function.has_body = true,
                    Some(Op::Variable | Op::UntypedVariableKHR) => module.variable(&inst)?,
                    _ => {}
                },
                None if inst.op() == Some(Op::Function) => {
                    let id = inst.word(2)?;
                    module.function_of.insert(id, module.functions.len());
                    open = Some(Function {
                        id,
                        from: inst.at,
                        to: at,
                        parameters: Vec::new(),
                        has_body: false,
                    });
                }
                None => module.declaration(&inst, &mut entry_points, &mut groups)?,
            }
        }
        if let Some(function) = open {
            return Err(malformed(
                function.from,
                format!("function %{} has no OpFunctionEnd", function.id),
            ));
        }
        module.check_unique()?;
        module.apply_groups(&groups)?;
        module.choose_main(&entry_points)?;
        Ok(module)
    }

    /// The instruction at a word offset that [`Module::parse`] has passed.
    pub fn inst(&self, at: usize) -> Result<Inst<'a>, ReflectError> {
        Inst::read(self.words, at)
    }

    fn declaration(
        &mut self,
        inst: &Inst<'a>,
        entry_points: &mut Vec<(u32, u32, String)>,
        groups: &mut Vec<usize>,
    ) -> Result<(), ReflectError> {
        match inst.op() {
            Some(Op::Capability) => self.capabilities.push(inst.word(1)?),
            Some(Op::Extension) => self.extensions.push(string(inst, 1)?),
            Some(Op::ExtInstImport) => {
                let name = string(inst, 2)?;
                if name.starts_with("NonSemantic.")
                    || name == "OpenCL.DebugInfo.100"
                    || name == "DebugInfo"
                {
                    self.sets.insert(inst.word(1)?, ExtendedSet::NonSemantic);
                } else if name == "GLSL.std.450" {
                    self.sets.insert(inst.word(1)?, ExtendedSet::Glsl);
                }
            }
            Some(Op::EntryPoint) => {
                entry_points.push((inst.word(1)?, inst.word(2)?, string(inst, 3)?))
            }
            Some(Op::ExecutionMode | Op::ExecutionModeId) => {
                let mode = inst.word(2)?;
                if mode == ExecutionMode::LocalSize as u32
                    || mode == ExecutionMode::LocalSizeId as u32
                {
                    let operands = [inst.word(3)?, inst.word(4)?, inst.word(5)?];
                    self.execution_modes.push(Mode {
                        function: inst.word(1)?,
                        mode,
                        operands,
                    });
                }
            }
            Some(Op::Decorate) => self.decorate(inst)?,
            Some(Op::MemberDecorate) => {
                let (id, member, what) = (inst.word(1)?, inst.word(2)?, inst.word(3)?);
                let layout = self.members.entry((id, member)).or_default();
                match Decoration::from_u32(what) {
                    Some(Decoration::Offset) => layout.offset = Some(inst.word(4)?),
                    Some(Decoration::MatrixStride) => layout.matrix_stride = Some(inst.word(4)?),
                    Some(Decoration::RowMajor) => layout.row_major = true,
                    _ => {}
                }
            }
            Some(Op::GroupDecorate | Op::GroupMemberDecorate) => groups.push(inst.at),
            Some(Op::Variable | Op::UntypedVariableKHR) => self.variable(inst)?,
            Some(
                Op::Source
                | Op::SourceContinued
                | Op::SourceExtension
                | Op::String
                | Op::Name
                | Op::MemberName
                | Op::ModuleProcessed
                | Op::Line
                | Op::NoLine
                | Op::Nop
                | Op::MemoryModel
                | Op::DecorationGroup
                | Op::DecorateId
                | Op::DecorateString
                | Op::MemberDecorateString,
            ) => {}
            op => {
                self.cooperative_matrix |= matches!(
                    op,
                    Some(Op::TypeCooperativeMatrixKHR | Op::TypeCooperativeMatrixNV)
                );
                self.globals.push(inst.at);
            }
        }
        Ok(())
    }

    fn decorate(&mut self, inst: &Inst<'a>) -> Result<(), ReflectError> {
        let decorations = self.decorations.entry(inst.word(1)?).or_default();
        match Decoration::from_u32(inst.word(2)?) {
            Some(Decoration::DescriptorSet) => decorations.set = Some(inst.word(3)?),
            Some(Decoration::Binding) => decorations.binding = Some(inst.word(3)?),
            Some(Decoration::SpecId) => decorations.spec_id = Some(inst.word(3)?),
            Some(Decoration::ArrayStride) => decorations.array_stride = Some(inst.word(3)?),
            Some(Decoration::BufferBlock) => decorations.buffer_block = true,
            Some(Decoration::Aliased) => decorations.aliased = true,
            Some(Decoration::BuiltIn) if inst.word(3)? == BuiltIn::WorkgroupSize as u32 => {
                decorations.workgroup_size = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn variable(&mut self, inst: &Inst<'a>) -> Result<(), ReflectError> {
        let untyped = inst.op() == Some(Op::UntypedVariableKHR);
        self.variables.push(Variable {
            at: inst.at,
            ty: inst.word(1)?,
            id: inst.word(2)?,
            class: inst.word(3)?,
            data: if untyped {
                inst.words.get(4).copied()
            } else {
                None
            },
            initializer: inst.words.get(if untyped { 5 } else { 4 }).copied(),
        });
        Ok(())
    }

    fn check_unique(&self) -> Result<(), ReflectError> {
        let mut ids: Vec<u32> = self.results.iter().map(|r| r.0).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(malformed(
                HEADER_WORDS,
                format!("id %{} is defined twice", pair[0]),
            )),
            None => Ok(()),
        }
    }

    fn apply_groups(&mut self, groups: &[usize]) -> Result<(), ReflectError> {
        for &at in groups {
            let inst = self.inst(at)?;
            let group = self
                .decorations
                .get(&inst.word(1)?)
                .copied()
                .unwrap_or_default();
            if inst.op() == Some(Op::GroupDecorate) {
                for &target in &inst.words[2..] {
                    self.decorations.entry(target).or_default().add(group);
                }
            }
            // Offsets through OpGroupMemberDecorate are not followed: such a structure has no known size, which is an
            // error if a size is needed.
        }
        Ok(())
    }

    fn choose_main(&mut self, entry_points: &[(u32, u32, String)]) -> Result<(), ReflectError> {
        let compute = ExecutionModel::GLCompute as u32;
        let main = entry_points
            .iter()
            .find(|(model, _, name)| *model == compute && name == "main");
        let Some(&(_, main, _)) = main else {
            let found: Vec<String> = entry_points
                .iter()
                .take(8)
                .map(|(model, _, name)| match ExecutionModel::from_u32(*model) {
                    Some(model) => format!("{model:?} {name:?}"),
                    None => format!("execution model {model} {name:?}"),
                })
                .collect();
            let found = if found.is_empty() {
                "none".to_owned()
            } else {
                found.join(", ")
            };
            return Err(ReflectError::NoEntryPoint { found });
        };
        if !self.function_of.contains_key(&main) {
            return Err(malformed(
                HEADER_WORDS,
                format!("entry point \"main\" names %{main}, which is not a function"),
            ));
        }
        self.main = main;
        Ok(())
    }
}

/// The literal string at word `from` of an instruction. Bytes that are not UTF-8 are replaced.
pub(super) fn string(inst: &Inst<'_>, from: usize) -> Result<String, ReflectError> {
    let mut bytes = Vec::new();
    for word in inst.words.get(from..).unwrap_or_default() {
        for byte in word.to_le_bytes() {
            if byte == 0 {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
            bytes.push(byte);
        }
    }
    Err(malformed(
        inst.at,
        format!("{} has a string without its end", inst.name()),
    ))
}

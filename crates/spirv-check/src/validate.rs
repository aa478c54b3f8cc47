//! Checks that a module obeys the rules that a driver relies on, for safe mode: a module that does not may crash the
//! driver, or worse.
//!
//! This is a list of what is allowed, not of what is refused: an instruction, decoration or capability without a rule
//! here is an error. Allowed is what compilers emit for compute shaders over storage buffers. Device addresses,
//! pointers in variables, cooperative matrices, images and unstructured control flow are not. Every rule is one of the
//! SPIR-V specification or stricter, which the tests compare with `spirv-val`. Names and other debug information are
//! not checked: [`secure`] removes them.
//!
//! ```text
//! [`declarations`] and [`interface`] (layout, variables)
//! → [`flow`] (structured control flow, dominance)
//! → [`typing`], [`memory`], [`subgroup`] and [`extended`] (operands of each instruction)
//! → [`secure`] (indices in bounds, variables zeroed).
//! ```

mod declarations;
mod extended;
mod flow;
mod interface;
mod memory;
mod secure;
mod subgroup;
#[cfg(test)]
mod tests;
mod typing;

use super::ReflectError;
use super::layout::Layouts;
use super::module::{ExtendedSet, Inst, Module, malformed};
pub use declarations::CAPABILITIES;
use flow::Function;
use rspirv::spirv::Op;
use std::collections::HashMap;

type Result<T> = std::result::Result<T, ReflectError>;

/// What a device has enabled.
#[derive(Clone, Debug, Default)]
pub struct Support {
    /// Largest SPIR-V version, as in a module's header.
    pub version: u32,
    /// SPIR-V capabilities that its features allow.
    pub capabilities: Vec<u32>,
    /// Bytes of workgroup memory.
    pub shared_bytes: u64,
}

/// Checks a module whose specialization constant `i` is word `i`, and returns the module for the driver: every index
/// into an array of known length is in bounds, the shader's variables start as zeros, and debug information is gone.
///
/// # Errors
/// [`ReflectError`] for the first rule that the module breaks.
pub fn secure(words: &[u32], specialization: &[u32], support: &Support) -> Result<Vec<u32>> {
    let module = Module::parse(words)?;
    let layouts = Layouts::compute(&module, specialization)?;
    let mut checker = Checker::new(words, &module, &layouts);
    checker.declarations(support)?;
    let functions = module
        .functions
        .iter()
        .map(|f| Function::read(&checker, f))
        .collect::<Result<Vec<_>>>()?;
    for function in &functions {
        checker.instructions(function)?;
    }
    checker.calls(&functions)?;
    checker.interface(&functions)?;
    secure::rewrite(&checker, &functions)
}

/// What an id stands for.
#[derive(Clone, Copy, Debug)]
enum Def<'a> {
    /// Nothing, or debug information.
    None,
    Type(Type<'a>),
    /// `fixed`: the same under every specialization.
    Constant {
        ty: u32,
        fixed: bool,
    },
    /// A variable; its type is a pointer.
    Variable {
        ty: u32,
        class: u32,
    },
    Parameter {
        ty: u32,
    },
    Value {
        ty: u32,
    },
    Label,
    Function {
        ty: u32,
    },
    /// GLSL.std.450.
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Type<'a> {
    Void,
    Bool,
    Int { width: u32, signed: bool },
    Float { width: u32 },
    Vector { of: u32, count: u32 },
    Matrix { column: u32, columns: u32 },
    Array { of: u32, length: u64 },
    Runtime { of: u32 },
    Struct(&'a [u32]),
    Pointer { class: u32, to: u32 },
    Function { result: u32, parameters: &'a [u32] },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Bool,
    Int,
    Float,
}

/// A scalar (`count` 1) or a vector of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    base: Base,
    width: u32,
    count: u32,
}

/// Storage classes that are allowed.
mod class {
    pub const INPUT: u32 = 1;
    pub const UNIFORM: u32 = 2;
    pub const WORKGROUP: u32 = 4;
    pub const PRIVATE: u32 = 6;
    pub const FUNCTION: u32 = 7;
    pub const PUSH_CONSTANT: u32 = 9;
    pub const STORAGE_BUFFER: u32 = 12;
    pub const ALL: [u32; 7] = [
        INPUT,
        UNIFORM,
        WORKGROUP,
        PRIVATE,
        FUNCTION,
        PUSH_CONSTANT,
        STORAGE_BUFFER,
    ];
}

/// Scopes that are allowed in barriers and over subgroups.
mod scope {
    pub const WORKGROUP: u64 = 2;
    pub const SUBGROUP: u64 = 3;
}

struct Checker<'m, 'a> {
    words: &'a [u32],
    module: &'m Module<'a>,
    layouts: &'m Layouts<'a>,
    /// By id.
    defs: Vec<Def<'a>>,
    /// By target: decoration number and operands.
    decorations: HashMap<u32, Vec<&'a [u32]>>,
    /// By structure and member.
    members: HashMap<(u32, u32), Vec<&'a [u32]>>,
    version: u32,
    /// The instruction that declared each constant and variable.
    made: HashMap<u32, Op>,
    /// Variables that the entry point lists.
    listed: Vec<u32>,
}

impl<'m, 'a> Checker<'m, 'a> {
    fn new(words: &'a [u32], module: &'m Module<'a>, layouts: &'m Layouts<'a>) -> Self {
        Self {
            words,
            module,
            layouts,
            defs: vec![Def::None; module.bound as usize],
            decorations: HashMap::new(),
            members: HashMap::new(),
            version: words[1],
            made: HashMap::new(),
            listed: Vec::new(),
        }
    }

    fn def(&self, id: u32) -> Def<'a> {
        self.defs.get(id as usize).copied().unwrap_or(Def::None)
    }

    fn type_of(&self, ty: u32) -> Option<Type<'a>> {
        match self.def(ty) {
            Def::Type(ty) => Some(ty),
            _ => None,
        }
    }

    /// The type of an id that is a value: a constant, variable, parameter or result.
    fn value(&self, inst: &Inst, id: u32) -> Result<u32> {
        match self.def(id) {
            Def::Constant { ty, .. }
            | Def::Variable { ty, .. }
            | Def::Parameter { ty }
            | Def::Value { ty } => Ok(ty),
            _ => Err(wrong(inst, format!("uses %{id}, which is not a value"))),
        }
    }

    /// The bits of an integer constant that no specialization can change.
    fn fixed(&self, id: u32) -> Option<u64> {
        match self.def(id) {
            Def::Constant { fixed: true, .. } => self.layouts.scalar(id),
            _ => None,
        }
    }

    fn shape(&self, ty: u32) -> Option<Shape> {
        let scalar = |base, width| {
            Some(Shape {
                base,
                width,
                count: 1,
            })
        };
        match self.type_of(ty)? {
            Type::Bool => scalar(Base::Bool, 1),
            Type::Int { width, .. } => scalar(Base::Int, width),
            Type::Float { width } => scalar(Base::Float, width),
            Type::Vector { of, count } => Some(Shape {
                count,
                ..self.shape(of)?
            }),
            _ => None,
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.module.capabilities.contains(&capability)
    }

    fn decorated(&self, id: u32, decoration: u32) -> Option<&'a [u32]> {
        let list = self.decorations.get(&id)?;
        list.iter().copied().find(|d| d[0] == decoration)
    }

    fn member(&self, ty: u32, member: u32, decoration: u32) -> Option<&'a [u32]> {
        let list = self.members.get(&(ty, member))?;
        list.iter().copied().find(|d| d[0] == decoration)
    }

    /// Whether the instruction is only for debuggers.
    fn is_debug(&self, inst: &Inst) -> bool {
        match inst.op() {
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
                | Op::DecorateString
                | Op::MemberDecorateString,
            ) => true,
            Some(Op::ExtInstImport) => self.is_debug_set(inst.words.get(1)),
            Some(Op::ExtInst) => self.is_debug_set(inst.words.get(3)),
            _ => false,
        }
    }

    fn is_debug_set(&self, set: Option<&u32>) -> bool {
        set.and_then(|set| self.module.sets.get(set)) == Some(&ExtendedSet::NonSemantic)
    }
}

fn wrong(inst: &Inst, what: impl std::fmt::Display) -> ReflectError {
    malformed(inst.at, format!("{} {what} (safe mode)", inst.name()))
}

/// Fails with `what` unless `holds`; `what` says what the instruction does.
fn ensure(inst: &Inst, holds: bool, what: &str) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(wrong(inst, what))
    }
}

/// Fails unless the instruction has `count` words.
fn length(inst: &Inst, count: usize) -> Result<()> {
    ensure(
        inst,
        inst.words.len() == count,
        "has more or fewer words than its operands",
    )
}

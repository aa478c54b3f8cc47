//! Rewrites a checked module for the driver.
//!
//! The device bounds accesses that leave a buffer, but not those to the shader's own memory, where an index that is too
//! large reaches other variables or other programs' registers. So an index into an array, vector or matrix of known
//! length that is known only at run time becomes `index <= last ? index : last`. Variables without an initial value get
//! zeros: workgroup memory would otherwise show what the shader before left there. Dead blocks and debug information
//! are removed.

use super::{Checker, Def, Function, Inst, Result, Type, class};
use rspirv::spirv::Op;
use std::collections::HashMap;

/// Added constants and types, identified by their contents.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
enum Added {
    Bool,
    /// An integer constant: type and value.
    Constant(u32, u64),
    Null(u32),
}

struct Rewriter<'c, 'm, 'a> {
    checker: &'c Checker<'m, 'a>,
    next: u32,
    added: HashMap<Added, u32>,
    /// Added words, before the first function.
    globals: Vec<u32>,
}

pub(super) fn rewrite(checker: &Checker<'_, '_>, functions: &[Function<'_>]) -> Result<Vec<u32>> {
    let mut rewriter = Rewriter {
        checker,
        next: checker.module.bound,
        added: HashMap::new(),
        globals: Vec::new(),
    };
    let mut code = Vec::new();
    for function in functions {
        rewriter.function(&mut code, function)?;
    }
    let mut words = checker.words[..5].to_vec();
    let mut at = 5;
    // Definitions in dead blocks and debug information are gone, so their decorations go too.
    let mut variables = Vec::new();
    while at < checker.words.len() {
        let inst = checker.module.inst(at)?;
        if inst.op() == Some(Op::Function) {
            break;
        }
        at += inst.words.len();
        if checker.is_debug(&inst) || rewriter.decorates_the_dead(&inst, functions) {
            continue;
        }
        match inst.op() {
            // After the constants that initialize them.
            Some(Op::Variable) => variables.extend(rewriter.variable(&inst)),
            Some(Op::Undef) => put(&mut words, Op::ConstantNull, &inst.words[1..]),
            _ => words.extend_from_slice(inst.words),
        }
    }
    words.append(&mut rewriter.globals);
    words.append(&mut variables);
    words.append(&mut code);
    words[3] = rewriter.next;
    Ok(words)
}

fn put(words: &mut Vec<u32>, op: Op, operands: &[u32]) {
    words.push((operands.len() as u32 + 1) << 16 | op as u32);
    words.extend_from_slice(operands);
}

impl<'a> Rewriter<'_, '_, 'a> {
    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn decorates_the_dead(&self, inst: &Inst, functions: &[Function]) -> bool {
        let target = match inst.op() {
            Some(Op::Decorate) => inst.words[1],
            _ => return false,
        };
        matches!(
            self.checker.def(target),
            Def::Value { .. }
                | Def::Label
                | Def::Variable {
                    class: class::FUNCTION,
                    ..
                }
        ) && !functions.iter().any(|f| f.is_live(target))
    }

    /// The id of a type or constant, which is added if the module lacks it.
    fn add(&mut self, what: Added) -> u32 {
        if let Some(&id) = self.added.get(&what) {
            return id;
        }
        let checker = self.checker;
        let bool = (1..checker.module.bound).find(|&id| checker.type_of(id) == Some(Type::Bool));
        let id = match (what, bool) {
            (Added::Bool, Some(id)) => id,
            _ => {
                let id = self.id();
                match what {
                    Added::Bool => put(&mut self.globals, Op::TypeBool, &[id]),
                    Added::Null(ty) => put(&mut self.globals, Op::ConstantNull, &[ty, id]),
                    Added::Constant(ty, value) => {
                        let wide = checker.shape(ty).is_some_and(|s| s.width == 64);
                        let all = [ty, id, value as u32, (value >> 32) as u32];
                        put(
                            &mut self.globals,
                            Op::Constant,
                            &all[..if wide { 4 } else { 3 }],
                        );
                    }
                }
                id
            }
        };
        self.added.insert(what, id);
        id
    }

    /// A variable with an initial value.
    fn variable(&mut self, inst: &Inst) -> Vec<u32> {
        let w = inst.words;
        let mut words = w.to_vec();
        let starts = matches!(w[3], class::PRIVATE | class::FUNCTION | class::WORKGROUP);
        if let (true, 4, Some(Type::Pointer { to, .. })) =
            (starts, w.len(), self.checker.type_of(w[1]))
        {
            words.push(self.add(Added::Null(to)));
            words[0] += 1 << 16;
        }
        words
    }

    fn function(&mut self, code: &mut Vec<u32>, function: &Function<'a>) -> Result<()> {
        for inst in &function.head {
            code.extend_from_slice(inst.words);
        }
        for block in &function.blocks {
            put(code, Op::Label, &[block.label]);
            for inst in &block.instructions {
                self.instruction(code, function, inst)?;
            }
        }
        put(code, Op::FunctionEnd, &[]);
        Ok(())
    }

    fn instruction(
        &mut self,
        code: &mut Vec<u32>,
        function: &Function<'a>,
        inst: &Inst<'a>,
    ) -> Result<()> {
        let w = inst.words;
        match inst.op() {
            Some(Op::Variable) => code.extend(self.variable(inst)),
            // A null is as undefined as any other value.
            Some(Op::Undef) => {
                let null = self.add(Added::Null(w[1]));
                put(code, Op::CopyObject, &[w[1], w[2], null]);
            }
            Some(Op::Phi) => {
                let mut words = w[1..3].to_vec();
                for pair in w[3..].chunks(2) {
                    if !function.dead.contains(&pair[1]) {
                        words.extend_from_slice(pair);
                    }
                }
                put(code, Op::Phi, &words);
            }
            Some(Op::AccessChain | Op::InBoundsAccessChain) => {
                let mut words = w[1..4].to_vec();
                let (class, mut ty) = self.checker.pointer(inst, w[3])?;
                for &index in &w[4..] {
                    let (length, part) = match self.checker.type_of(ty) {
                        Some(Type::Vector { of, count }) => (Some(u64::from(count)), of),
                        Some(Type::Matrix { column, columns }) => {
                            (Some(u64::from(columns)), column)
                        }
                        Some(Type::Array { of, length }) => (Some(length), of),
                        Some(Type::Runtime { of }) => (None, of),
                        Some(Type::Struct(members)) => {
                            let member = self
                                .checker
                                .fixed(index)
                                .and_then(|i| members.get(i as usize));
                            (None, member.copied().unwrap_or(ty))
                        }
                        _ => (None, ty),
                    };
                    ty = part;
                    let bounded = length.filter(|_| self.checker.fixed(index).is_none());
                    // The device bounds accesses to buffers.
                    let buffer = matches!(class, class::STORAGE_BUFFER | class::UNIFORM);
                    words.push(match bounded.filter(|_| !buffer) {
                        Some(length) => self.within(code, inst, index, length)?,
                        None => index,
                    });
                }
                put(code, Op::AccessChain, &words);
            }
            Some(op @ (Op::VectorExtractDynamic | Op::VectorInsertDynamic)) => {
                let mut words = w[1..].to_vec();
                let vector = self.checker.value(inst, w[3])?;
                let last = words.len() - 1;
                if let (Some(shape), None) =
                    (self.checker.shape(vector), self.checker.fixed(words[last]))
                {
                    words[last] = self.within(code, inst, words[last], u64::from(shape.count))?;
                }
                put(code, op, &words);
            }
            _ => code.extend_from_slice(w),
        }
        Ok(())
    }

    /// `index`, or the last element if it is out of bounds, signed or not.
    fn within(&mut self, code: &mut Vec<u32>, inst: &Inst, index: u32, length: u64) -> Result<u32> {
        let ty = self.checker.value(inst, index)?;
        let width = self.checker.shape(ty).map_or(32, |s| s.width);
        let signed = matches!(
            self.checker.type_of(ty),
            Some(Type::Int { signed: true, .. })
        );
        let largest = u64::MAX >> (64 - width + u32::from(signed));
        if !signed && length > largest {
            return Ok(index);
        }
        let bool = self.add(Added::Bool);
        let last = self.add(Added::Constant(ty, (length - 1).min(largest)));
        let (inside, bounded) = (self.id(), self.id());
        put(code, Op::ULessThanEqual, &[bool, inside, index, last]);
        put(code, Op::Select, &[ty, bounded, inside, index, last]);
        Ok(bounded)
    }
}

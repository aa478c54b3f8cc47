//! Functions as structured control flow: blocks, dominance, and calls.
//!
//! A function is walked the way a compiler that knows only `if`, `switch` and loops would write it out again. Each
//! block comes once. A branch goes to the next block, into a construct that its block opens, or out of a construct to a
//! place that such a compiler could name. Blocks that the walk does not reach are dead and left out.

use super::super::module;
use super::{Checker, Def, Inst, Result, Type, ensure, length, wrong};
use rspirv::spirv::Op;
use std::collections::{HashMap, HashSet};

/// Largest depth of nested constructs.
const MAX_NESTING: u32 = 128;
/// Largest number of instructions after inlining all calls, as drivers do.
const MAX_INLINED: u64 = 1 << 20;

pub(super) struct Block<'a> {
    pub label: u32,
    /// Without the label.
    pub instructions: Vec<Inst<'a>>,
    merge: Option<Merge>,
    /// Labels that the last instruction names, in order, without repetition.
    targets: Vec<u32>,
}

#[derive(Clone, Copy)]
enum Merge {
    Selection { merge: u32 },
    Loop { merge: u32, next: u32 },
}

pub(super) struct Function<'a> {
    pub id: u32,
    pub head: Vec<Inst<'a>>,
    /// Live blocks in the order of the words; the first is the entry.
    pub blocks: Vec<Block<'a>>,
    /// Labels of blocks that the walk did not reach.
    pub dead: HashSet<u32>,
    /// Live blocks by label.
    pub index: HashMap<u32, usize>,
    /// Live blocks that branch to each.
    pub predecessors: Vec<Vec<usize>>,
    /// When a depth-first walk of the dominator tree enters and leaves each block.
    dominated: Vec<(u32, u32)>,
    /// Block and position of each result; parameters are before the first block.
    places: HashMap<u32, (usize, usize)>,
}

/// Where a branch may leave to.
#[derive(Clone, Copy, Default)]
struct Exits {
    /// Merge block of the innermost selection.
    selection: Option<u32>,
    /// Merge block of the innermost switch inside the innermost loop.
    switch: Option<u32>,
    /// Where a case may fall through to.
    case: Option<u32>,
    default: Option<u32>,
    /// Merge block and continue target of the innermost loop.
    merge: Option<u32>,
    next: Option<u32>,
    /// Header of the loop whose continue construct this is.
    back: Option<u32>,
}

struct Walk<'b, 'a> {
    blocks: &'b [Block<'a>],
    index: &'b HashMap<u32, usize>,
    seen: Vec<bool>,
    /// Merge blocks and continue targets, each of one construct.
    claimed: HashSet<u32>,
    /// Header, and its merge block or continue target.
    constructs: Vec<(usize, usize)>,
    back_edges: u32,
    fallen: HashSet<u32>,
}

impl<'a> Function<'a> {
    pub fn read(checker: &Checker<'_, 'a>, function: &module::Function) -> Result<Self> {
        let mut head = Vec::new();
        let mut all: Vec<Block<'a>> = Vec::new();
        let mut open = false;
        let mut at = function.from;
        while at < function.to {
            let inst = checker.module.inst(at)?;
            at += inst.words.len();
            if checker.is_debug(&inst) {
                continue;
            }
            match inst.op() {
                Some(Op::Label) => {
                    length(&inst, 2)?;
                    ensure(&inst, !open, "stands in a block")?;
                    open = true;
                    all.push(Block {
                        label: inst.words[1],
                        instructions: Vec::new(),
                        merge: None,
                        targets: Vec::new(),
                    });
                }
                Some(Op::FunctionEnd) => {
                    length(&inst, 1)?;
                    ensure(&inst, !open, "stands in a block")?;
                }
                Some(Op::Function | Op::FunctionParameter) if all.is_empty() => head.push(inst),
                _ => {
                    let Some(block) = all.last_mut().filter(|_| open) else {
                        return Err(wrong(&inst, "stands in no block"));
                    };
                    open = !block.take(inst)?;
                }
            }
        }
        let first = head[0];
        ensure(&first, !all.is_empty() && !open, "has no blocks")?;
        let index: HashMap<u32, usize> =
            all.iter().enumerate().map(|(i, b)| (b.label, i)).collect();
        let entry = all[0].label;
        for block in &all {
            let last = block.last();
            let known = block
                .targets
                .iter()
                .all(|t| index.contains_key(t) && *t != entry);
            let merge = match block.merge {
                Some(Merge::Selection { merge }) => index.contains_key(&merge),
                Some(Merge::Loop { merge, next }) => {
                    index.contains_key(&merge) && index.contains_key(&next) && merge != next
                }
                None => true,
            };
            ensure(
                &last,
                known && merge,
                "goes to something that is not a block of the function",
            )?;
        }
        let mut walk = Walk {
            blocks: &all,
            index: &index,
            seen: vec![false; all.len()],
            claimed: HashSet::new(),
            constructs: Vec::new(),
            back_edges: 0,
            fallen: HashSet::new(),
        };
        walk.region(entry, Exits::default(), 0)?;
        let (seen, constructs) = (walk.seen, walk.constructs);
        let mut live = vec![usize::MAX; all.len()];
        let mut dead = HashSet::new();
        let mut blocks = Vec::new();
        for (i, block) in all.into_iter().enumerate() {
            if seen[i] {
                live[i] = blocks.len();
                blocks.push(block);
            } else {
                dead.insert(block.label);
            }
        }
        let index: HashMap<u32, usize> = blocks
            .iter()
            .enumerate()
            .map(|(i, b)| (b.label, i))
            .collect();
        let mut predecessors = vec![Vec::new(); blocks.len()];
        let successors: Vec<Vec<usize>> = blocks
            .iter()
            .map(|b| {
                b.targets
                    .iter()
                    .filter_map(|t| index.get(t).copied())
                    .collect()
            })
            .collect();
        for (i, to) in successors.iter().enumerate() {
            for &t in to {
                predecessors[t].push(i);
            }
        }
        let constructs: Vec<_> = constructs
            .iter()
            .map(|&(h, t)| (live[h], live[t]))
            .collect();
        let dominated = dominators(&blocks, &successors, &constructs)?;
        let mut places = HashMap::new();
        for inst in &head[1..] {
            places.insert(inst.word(2)?, (0, 0));
        }
        for (i, block) in blocks.iter().enumerate() {
            for (k, inst) in block.instructions.iter().enumerate() {
                if let (_, Some(id)) = inst.result(checker.module.bound)? {
                    places.insert(id, (i, k + 1));
                }
            }
        }
        Ok(Self {
            id: function.id,
            head,
            blocks,
            dead,
            index,
            predecessors,
            dominated,
            places,
        })
    }

    pub fn instructions(&self) -> impl Iterator<Item = &Inst<'a>> {
        self.blocks.iter().flat_map(|b| &b.instructions)
    }

    /// Whether a live block or the function's head defines `id`.
    pub fn is_live(&self, id: u32) -> bool {
        self.places.contains_key(&id)
    }

    /// Whether the function's definition of `id` is available at position `at` of a block.
    pub fn defines(&self, id: u32, block: usize, at: usize) -> bool {
        let Some(&(from, place)) = self.places.get(&id) else {
            return false;
        };
        if place == 0 {
            return true;
        }
        let ((enter, leave), (inner, _)) = (self.dominated[from], self.dominated[block]);
        if from == block {
            place < at
        } else {
            (enter..leave).contains(&inner)
        }
    }
}

impl<'a> Block<'a> {
    fn last(&self) -> Inst<'a> {
        self.instructions[self.instructions.len() - 1]
    }

    /// Adds an instruction; whether it is the block's last.
    fn take(&mut self, inst: Inst<'a>) -> Result<bool> {
        let w = inst.words;
        let after_merge = self.merge.is_some();
        self.instructions.push(inst);
        let mut targets = match inst.op() {
            Some(Op::SelectionMerge) => {
                length(&inst, 3)?;
                ensure(&inst, !after_merge && w[2] <= 2, "is not allowed here")?;
                self.merge = Some(Merge::Selection { merge: w[1] });
                return Ok(false);
            }
            Some(Op::LoopMerge) => {
                let words = w
                    .get(3)
                    .map_or(usize::MAX, |mask| 4 + (mask & 0x1f8).count_ones() as usize);
                length(&inst, words)?;
                ensure(
                    &inst,
                    !after_merge && w[3] <= 0x1ff && w[3] & 3 != 3,
                    "is not allowed here",
                )?;
                self.merge = Some(Merge::Loop {
                    merge: w[1],
                    next: w[2],
                });
                return Ok(false);
            }
            Some(Op::Branch) => {
                length(&inst, 2)?;
                ensure(
                    &inst,
                    !matches!(self.merge, Some(Merge::Selection { .. })),
                    "follows a selection merge",
                )?;
                vec![w[1]]
            }
            Some(Op::BranchConditional) => {
                ensure(
                    &inst,
                    matches!(w.len(), 4 | 6),
                    "has more or fewer words than its operands",
                )?;
                vec![w[2], w[3]]
            }
            Some(Op::Switch) => {
                ensure(
                    &inst,
                    w.len() >= 3
                        && w.len() % 2 == 1
                        && matches!(self.merge, Some(Merge::Selection { .. })),
                    "follows no selection merge, or has a selector that is not of 32 bits",
                )?;
                // The default comes last: a case falls through to the next one or to it.
                let mut targets: Vec<u32> = w[3..].chunks(2).map(|pair| pair[1]).collect();
                targets.push(w[2]);
                targets
            }
            Some(Op::Return | Op::Unreachable) => {
                length(&inst, 1)?;
                vec![]
            }
            Some(Op::ReturnValue) => {
                length(&inst, 2)?;
                vec![]
            }
            _ => {
                ensure(&inst, !after_merge, "follows a merge instruction")?;
                return Ok(false);
            }
        };
        let end = matches!(
            inst.op(),
            Some(Op::Return | Op::Unreachable | Op::ReturnValue)
        );
        ensure(&inst, !(end && after_merge), "follows a merge instruction")?;
        let mut once = HashSet::new();
        targets.retain(|&t| once.insert(t));
        self.targets = targets;
        Ok(true)
    }
}

impl Walk<'_, '_> {
    /// Whether a branch of `block` to `target` leaves the region.
    fn leaves(&mut self, block: &Block, target: u32, exits: &Exits) -> Result<bool> {
        let target = Some(target);
        if exits.back.is_some() {
            // The only exit of a continue construct is its last block.
            if target == exits.back {
                self.back_edges += 1;
                return Ok(true);
            }
            if target == exits.merge {
                let last = block.targets.iter().any(|&t| Some(t) == exits.back);
                ensure(&block.last(), last, "leaves a continue construct")?;
                return Ok(true);
            }
        }
        if target == exits.case || (target == exits.default && target != exits.selection) {
            let first = target.is_none_or(|t| self.fallen.insert(t));
            ensure(
                &block.last(),
                first,
                "falls through to where another case does",
            )?;
            return Ok(true);
        }
        Ok([exits.selection, exits.switch, exits.merge, exits.next].contains(&target))
    }

    fn claim(&mut self, block: usize, target: u32) -> Result<()> {
        let last = self.blocks[block].last();
        ensure(
            &last,
            self.claimed.insert(target),
            "ends two constructs in one block",
        )?;
        self.constructs.push((block, self.index[&target]));
        Ok(())
    }

    fn region(&mut self, start: u32, exits: Exits, nesting: u32) -> Result<()> {
        let mut label = start;
        loop {
            let at = self.index[&label];
            let blocks = self.blocks;
            let block = &blocks[at];
            let last = block.last();
            ensure(&last, nesting < MAX_NESTING, "is nested too deeply")?;
            ensure(
                &last,
                !std::mem::replace(&mut self.seen[at], true),
                "is in a block that is reached in an unstructured way",
            )?;
            match block.merge {
                None => {
                    let mut on = Vec::new();
                    for &target in &block.targets {
                        if !self.leaves(block, target, &exits)? {
                            on.push(target);
                        }
                    }
                    let returns = matches!(last.op(), Some(Op::Return | Op::ReturnValue));
                    ensure(
                        &last,
                        !(returns && exits.back.is_some()),
                        "leaves a continue construct",
                    )?;
                    match on.as_slice() {
                        [] => return Ok(()),
                        &[target] => label = target,
                        _ => return Err(wrong(&last, "branches without a merge block")),
                    }
                }
                Some(Merge::Selection { merge }) => {
                    self.claim(at, merge)?;
                    let inner = Exits {
                        selection: Some(merge),
                        case: None,
                        default: None,
                        ..exits
                    };
                    let switch = last.op() == Some(Op::Switch);
                    for (i, &target) in block.targets.iter().enumerate() {
                        let mut inner = inner;
                        if switch {
                            inner.switch = Some(merge);
                            let default = last.words[2];
                            inner.default = Some(default).filter(|&d| d != target && d != merge);
                            inner.case = block.targets.get(i + 1).copied().filter(|&c| c != merge);
                        }
                        let outer = Exits {
                            selection: Some(merge),
                            switch: inner.switch,
                            case: None,
                            default: None,
                            ..exits
                        };
                        if !self.leaves(block, target, &outer)? {
                            self.region(target, inner, nesting + 1)?;
                        }
                    }
                    label = merge;
                }
                Some(Merge::Loop { merge, next }) => {
                    self.claim(at, merge)?;
                    if next == label {
                        let fits = block.targets.contains(&label)
                            && block.targets.iter().all(|&t| t == label || t == merge);
                        ensure(&last, fits, "does not end a loop of one block")?;
                    } else {
                        self.claim(at, next)?;
                        let inner = Exits {
                            merge: Some(merge),
                            next: Some(next),
                            ..Exits::default()
                        };
                        let mut on = Vec::new();
                        for &target in &block.targets {
                            if !self.leaves(block, target, &inner)? {
                                on.push(target);
                            }
                        }
                        ensure(&last, on.len() <= 1, "branches without a merge block")?;
                        for target in on {
                            self.region(target, inner, nesting + 1)?;
                        }
                        let before = std::mem::replace(&mut self.back_edges, 0);
                        let continued = Exits {
                            merge: Some(merge),
                            back: Some(label),
                            ..Exits::default()
                        };
                        self.region(next, continued, nesting + 1)?;
                        let edges = std::mem::replace(&mut self.back_edges, before);
                        ensure(
                            &last,
                            edges == 1,
                            "begins a loop that does not go back once",
                        )?;
                    }
                    label = merge;
                }
            }
        }
    }
}

/// Enter and leave times of the dominator tree. A merge block or continue target without a branch to it comes after its
/// header.
fn dominators(
    blocks: &[Block],
    successors: &[Vec<usize>],
    constructs: &[(usize, usize)],
) -> Result<Vec<(u32, u32)>> {
    let mut successors = successors.to_vec();
    let mut order;
    let mut reached;
    loop {
        reached = vec![false; blocks.len()];
        order = Vec::new();
        let mut stack = vec![(0, 0)];
        reached[0] = true;
        while let Some((block, next)) = stack.pop() {
            match successors[block].get(next) {
                Some(&to) => {
                    stack.push((block, next + 1));
                    if !std::mem::replace(&mut reached[to], true) {
                        stack.push((to, 0));
                    }
                }
                None => order.push(block),
            }
        }
        match constructs.iter().find(|(h, t)| reached[*h] && !reached[*t]) {
            Some(&(header, target)) => successors[header].push(target),
            None => break,
        }
    }
    order.reverse();
    let mut number = vec![usize::MAX; blocks.len()];
    for (i, &block) in order.iter().enumerate() {
        number[block] = i;
    }
    let mut predecessors = vec![Vec::new(); blocks.len()];
    for (from, to) in successors.iter().enumerate() {
        for &t in to {
            predecessors[t].push(from);
        }
    }
    // Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
    let mut above = vec![usize::MAX; blocks.len()];
    above[0] = 0;
    let mut changed = true;
    while changed {
        changed = false;
        for &block in &order[1..] {
            let mut new = usize::MAX;
            for &p in predecessors[block]
                .iter()
                .filter(|&&p| above[p] != usize::MAX)
            {
                let (mut a, mut b) = (p, if new == usize::MAX { p } else { new });
                while a != b {
                    while number[a] > number[b] {
                        a = above[a];
                    }
                    while number[b] > number[a] {
                        b = above[b];
                    }
                }
                new = a;
            }
            if above[block] != new {
                above[block] = new;
                changed = true;
            }
        }
    }
    let mut below = vec![Vec::new(); blocks.len()];
    for &block in &order[1..] {
        let label = blocks[block].last();
        ensure(
            &label,
            above[block] < block,
            "is in a block that comes before what leads to it",
        )?;
        below[above[block]].push(block);
    }
    let mut times = vec![(0, 0); blocks.len()];
    let (mut clock, mut stack) = (0, vec![(0, 0)]);
    while let Some((block, next)) = stack.pop() {
        if next == 0 {
            times[block].0 = clock;
            clock += 1;
        }
        match below[block].get(next) {
            Some(&to) => {
                stack.push((block, next + 1));
                stack.push((to, 0));
            }
            None => times[block].1 = clock,
        }
    }
    Ok(times)
}

impl<'a> Checker<'_, 'a> {
    /// Checks that there is no recursion and no call of the entry point, and that the size after inlining is one that
    /// compilers can handle.
    pub(super) fn calls(&self, functions: &[Function<'a>]) -> Result<()> {
        let index: HashMap<u32, usize> = functions
            .iter()
            .enumerate()
            .map(|(i, f)| (f.id, i))
            .collect();
        let callees = |f: &Function<'a>| -> Vec<(Inst<'a>, usize)> {
            f.instructions()
                .filter(|i| i.op() == Some(Op::FunctionCall))
                .filter_map(|i| Some((*i, *index.get(&i.words[3])?)))
                .collect()
        };
        let mut sizes: Vec<Option<u64>> = vec![None; functions.len()];
        let mut open = vec![false; functions.len()];
        for start in 0..functions.len() {
            let mut stack = vec![(start, callees(&functions[start]), 0)];
            if sizes[start].is_some() {
                continue;
            }
            open[start] = true;
            while let Some((f, calls, next)) = stack.pop() {
                if let Some(&(inst, callee)) = calls.get(next) {
                    let main = functions[callee].id == self.module.main;
                    ensure(
                        &inst,
                        !open[callee] && !main,
                        "calls itself, directly or not, or the entry point",
                    )?;
                    stack.push((f, calls, next + 1));
                    if sizes[callee].is_none() {
                        open[callee] = true;
                        stack.push((callee, callees(&functions[callee]), 0));
                    }
                    continue;
                }
                open[f] = false;
                let own = functions[f].instructions().count() as u64;
                let size = calls.iter().fold(own, |sum, (_, c)| {
                    sum.saturating_add(sizes[*c].unwrap_or(0))
                });
                let first = functions[f].head[0];
                ensure(
                    &first,
                    size <= MAX_INLINED,
                    "is too large once its calls are inlined",
                )?;
                sizes[f] = Some(size);
            }
        }
        Ok(())
    }

    /// The function's own declaration.
    pub(super) fn signature(&self, function: &Function<'a>) -> Result<u32> {
        let first = function.head[0];
        let w = first.words;
        length(&first, 5)?;
        let Some(Type::Function { result, parameters }) = self.type_of(w[4]) else {
            return Err(wrong(&first, "has no function type"));
        };
        ensure(&first, w[1] == result && w[3] <= 15, "is not of its type")?;
        ensure(
            &first,
            parameters.len() + 1 == function.head.len(),
            "is not of its type",
        )?;
        for (inst, &ty) in function.head[1..].iter().zip(parameters) {
            length(inst, 3)?;
            ensure(inst, inst.words[1] == ty, "is not of its function's type")?;
        }
        let main = function.id == self.module.main;
        let plain = parameters.is_empty() && self.type_of(result) == Some(Type::Void);
        ensure(
            &first,
            !main || plain,
            "is an entry point with parameters or a result",
        )?;
        Ok(result)
    }

    /// Whether an id that is not a label may be used at a position of a function.
    pub(super) fn available(
        &self,
        function: &Function<'a>,
        id: u32,
        block: usize,
        at: usize,
    ) -> bool {
        match self.def(id) {
            Def::None | Def::Label => false,
            Def::Type(_) | Def::Constant { .. } | Def::Function { .. } | Def::Set => true,
            Def::Variable { class, .. } if class != super::class::FUNCTION => true,
            Def::Variable { .. } | Def::Value { .. } | Def::Parameter { .. } => {
                function.defines(id, block, at)
            }
        }
    }
}

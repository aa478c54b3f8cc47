//! The least fixpoint of the flow graph, by a worklist.

use super::{CONTENTS, ESCAPED, FIRST_ID, Graph, LOCAL, LOCALS, Node, Set, UNKNOWN};

impl Graph<'_, '_> {
    /// Grows the sets to the least fixpoint.
    pub(super) fn solve(&mut self) {
        let count = self.nodes.len();
        let edges = Rows::new(count, &self.edges);
        let loads = Rows::new(count, &self.loads);
        let stores = Rows::new(count, &self.stores);
        // For each node: the part of its set that has gone through its loads and stores; the variables that its set is
        // stored to (a bit below LOCAL means memory outside); the results that load from each variable.
        let mut through: Vec<Set> = vec![0; count];
        let mut targets: Vec<Set> = vec![0; count];
        let mut readers: Vec<Vec<u32>> = vec![Vec::new(); (64 - LOCAL) as usize];
        let mut work = Work {
            sets: &mut self.sets,
            nodes: &self.nodes,
            queued: vec![false; count],
            queue: Vec::new(),
        };
        for node in 0..count as u32 {
            if work.sets[node as usize] != 0 {
                work.push(node);
            }
        }
        while let Some(node) = work.pop() {
            let set = work.sets[node as usize];
            for &to in edges.of(node) {
                work.join(to, set);
            }
            store(&mut work, targets[node as usize], set);
            if (CONTENTS..FIRST_ID).contains(&node) {
                for &result in &readers[(node - CONTENTS) as usize] {
                    work.join(result, set);
                }
            }
            let fresh = set & !through[node as usize];
            through[node as usize] = set;
            if fresh == 0 {
                continue;
            }
            for &result in loads.of(node) {
                for local in bits(fresh & LOCALS) {
                    readers[(local - LOCAL) as usize].push(result);
                    let contents = work.sets[contents(local) as usize];
                    work.join(result, contents);
                }
                work.join(result, fresh & UNKNOWN);
            }
            for &value in stores.of(node) {
                if self.nodes[value as usize].carries {
                    targets[value as usize] |= fresh;
                    let set = work.sets[value as usize];
                    store(&mut work, fresh, set);
                }
            }
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Joins made on this thread: a measure of the fixpoint's work that tests bound instead of time.
    pub(crate) static JOINS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The sets, and the nodes whose set has grown.
struct Work<'g> {
    sets: &'g mut [Set],
    nodes: &'g [Node],
    queued: Vec<bool>,
    queue: Vec<u32>,
}

impl Work<'_> {
    fn push(&mut self, node: u32) {
        if !std::mem::replace(&mut self.queued[node as usize], true) {
            self.queue.push(node);
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let node = self.queue.pop()?;
        self.queued[node as usize] = false;
        Some(node)
    }

    fn join(&mut self, node: u32, set: Set) {
        #[cfg(test)]
        JOINS.set(JOINS.get() + 1);
        let old = self.sets[node as usize];
        if set & !old != 0 && self.nodes[node as usize].carries {
            self.sets[node as usize] = old | set;
            self.push(node);
        }
    }
}

/// Stores a value with set `value` where `pointer` points to. Outside the shader's own variables it cannot be tracked,
/// so it escapes.
fn store(work: &mut Work<'_>, pointer: Set, value: Set) {
    for local in bits(pointer & LOCALS) {
        work.join(contents(local), value);
    }
    if pointer & !LOCALS != 0 {
        work.join(ESCAPED, value);
    }
}

/// The node of what the variable with bit `local` contains.
fn contents(local: u32) -> u32 {
    CONTENTS + local - LOCAL
}

fn bits(mut set: Set) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros());
        set &= set.wrapping_sub(1);
        bit
    })
}

/// Pairs grouped by their first part.
struct Rows {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Rows {
    fn new(count: usize, pairs: &[(u32, u32)]) -> Self {
        let mut starts = vec![0u32; count + 1];
        for &(from, _) in pairs {
            starts[from as usize + 1] += 1;
        }
        for i in 0..count {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut items = vec![0; pairs.len()];
        for &(from, to) in pairs {
            let slot = &mut next[from as usize];
            items[*slot as usize] = to;
            *slot += 1;
        }
        Self { starts, items }
    }

    fn of(&self, node: u32) -> &[u32] {
        &self.items[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}

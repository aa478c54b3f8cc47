//! What the entry point reaches.

use super::non_semantic;
use crate::ReflectError;
use crate::module::{Module, malformed};
use std::collections::HashMap;

/// What `main` reaches: functions through calls and callbacks, variables through any mention.
pub(super) struct Reach {
    pub functions: Vec<usize>,
    pub variables: Vec<usize>,
}

impl Reach {
    pub fn find(module: &Module) -> Result<Self, ReflectError> {
        let variable_of: HashMap<u32, usize> = module
            .variables
            .iter()
            .enumerate()
            .map(|(i, v)| (v.id, i))
            .collect();
        let mut new_function = vec![true; module.functions.len()];
        let mut new_variable = vec![true; module.variables.len()];
        let mut reach = Self {
            functions: Vec::new(),
            variables: Vec::new(),
        };
        let mut mention = |reach: &mut Self, ids: &[u32]| {
            for id in ids {
                if let Some(&f) = module.function_of.get(id)
                    && std::mem::take(&mut new_function[f])
                {
                    reach.functions.push(f);
                }
                if let Some(&v) = variable_of.get(id)
                    && std::mem::take(&mut new_variable[v])
                {
                    reach.variables.push(v);
                }
            }
        };
        let mut ids = Vec::new();
        for &at in &module.globals {
            let inst = module.inst(at)?;
            inst.operand_ids(module.bound, &mut ids)?;
            if !non_semantic(module, &inst) {
                mention(&mut reach, &ids);
            }
        }
        mention(&mut reach, &[module.main]);
        let (mut function, mut variable) = (0, 0);
        loop {
            if let Some(&f) = reach.functions.get(function) {
                function += 1;
                let f = &module.functions[f];
                if !f.has_body {
                    return Err(malformed(
                        f.from,
                        format!("function %{} is used but has no body", f.id),
                    ));
                }
                let mut at = f.from;
                while at < f.to {
                    let inst = module.inst(at)?;
                    at += inst.words.len();
                    inst.operand_ids(module.bound, &mut ids)?;
                    if !non_semantic(module, &inst) {
                        mention(&mut reach, &ids);
                    }
                }
            } else if let Some(&v) = reach.variables.get(variable) {
                variable += 1;
                if let Some(initializer) = module.variables[v].initializer {
                    mention(&mut reach, &[initializer]);
                }
            } else {
                break;
            }
        }
        reach.variables.sort_unstable();
        Ok(reach)
    }
}

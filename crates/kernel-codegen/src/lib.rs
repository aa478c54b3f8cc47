//! Turns a program, a few words that say what is computed for each element, into a compute shader.
//!
//! words → `program` (decoded and checked, all or nothing) → `flat`, `row` or `column` (loops, reductions by `reduce`)
//!       → `values` (loads by `access`, operations by `scalar`, stores) → `module` (SPIR-V words).
//!
//! The format, the numerics and what this is not: `docs/design/codegen.md`. Equal programs give equal modules.
#![forbid(unsafe_code)]

mod access;
mod column;
mod flat;
mod module;
mod options;
mod program;
mod reduce;
mod row;
mod scalar;
#[cfg(test)]
mod tests;
mod values;

pub use program::ProgramError;
use program::{Program, Template};

/// More words than a program can have.
pub const MAX_WORDS: usize = 1 << 16;

/// The SPIR-V of a program.
///
/// # Errors
/// [`ProgramError`] names the word that breaks the format, and how.
pub fn build(words: &[u32]) -> Result<Vec<u32>, ProgramError> {
    let program = Program::decode(words)?;
    Ok(match program.template {
        Template::Flat => flat::emit(&program),
        Template::Row => row::emit(&program),
        Template::Column => column::emit(&program),
    })
}

//! Catches panics at the edge, so that nothing unwinds into the runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result, panicked};

/// Runs `body`; a panic becomes an error.
pub fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|panic| Err(Error::Internal(panicked(&*panic))))
}

/// Runs the body of a callback and returns `otherwise` if it panics: nothing may unwind into the runtime. The panic's
/// message is on standard error already.
pub fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

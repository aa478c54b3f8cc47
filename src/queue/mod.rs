//! The queue and its clock: submission, the timeline, waits on behalf of promises, the end of the process.

pub mod completion;
pub mod exit;
pub mod interrupt;
pub mod submit;
pub mod timeline;

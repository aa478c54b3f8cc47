//! The errors that the threads speak of.

use std::fmt;

use ash::vk;
use collectives::Failure;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone)]
pub enum Error {
    DeviceLost(String),
    Internal(String),
    Aborted(String),
    OutOfMemory(&'static str),
    Batch(String),
    Group(Failure),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Group(failure)
    }
}

impl Error {
    pub fn range(argument: &str, problem: impl fmt::Display, value: impl fmt::Display) -> Self {
        Self::Internal(format!("{argument} {problem}, got {value}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeviceLost(text) => write!(f, "lost: {text}"),
            Self::OutOfMemory(what) => write!(f, "out of memory: {what}"),
            Self::Internal(text) | Self::Aborted(text) | Self::Batch(text) => f.write_str(text),
            Self::Group(failure) => write!(f, "{failure}"),
        }
    }
}

pub fn vulkan(call: &'static str) -> impl FnOnce(vk::Result) -> Error {
    move |result| match result {
        vk::Result::ERROR_DEVICE_LOST => Error::DeviceLost(call.to_owned()),
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => Error::OutOfMemory(call),
        other => Error::Internal(format!("{call}: {other:?}")),
    }
}

pub fn create(
    call: &'static str,
    _what: &'static str,
    _bytes: u64,
) -> impl FnOnce(vk::Result) -> Error {
    vulkan(call)
}

pub fn panicked(_: &(dyn std::any::Any + Send)) -> String {
    unreachable!("a panic ends this program")
}

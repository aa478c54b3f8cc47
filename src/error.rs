//! One error type for the crate, and the maps from Vulkan results to it.
//!
//! Messages name the argument and the value. The JS edge (`api`) prefixes the call's name.

use ash::vk;
use collectives::{Cause, Failure};
use thiserror::Error as ThisError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The `code` property of the JS error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    InvalidHandle,
    InvalidArgument,
    InvalidBatch,
    OutOfMemory,
    DeviceLost,
    NoDevice,
    NoLoader,
    Unsupported,
    Vulkan,
    Aborted,
    Nan,
    NoEngine,
    Rendezvous,
    CollectiveMismatch,
    PeerLost,
    CollectiveTimeout,
    Engine,
}

impl Code {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidHandle => "ERR_HELIOS_INVALID_HANDLE",
            Self::InvalidArgument => "ERR_HELIOS_INVALID_ARGUMENT",
            Self::InvalidBatch => "ERR_HELIOS_INVALID_BATCH",
            Self::OutOfMemory => "ERR_HELIOS_OUT_OF_MEMORY",
            Self::DeviceLost => "ERR_HELIOS_DEVICE_LOST",
            Self::NoDevice => "ERR_HELIOS_NO_DEVICE",
            Self::NoLoader => "ERR_HELIOS_NO_LOADER",
            Self::Unsupported => "ERR_HELIOS_UNSUPPORTED",
            Self::Vulkan => "ERR_HELIOS_VULKAN",
            Self::Aborted => "ERR_HELIOS_ABORTED",
            Self::Nan => "ERR_HELIOS_NAN",
            Self::NoEngine => "ERR_HELIOS_NO_ENGINE",
            Self::Rendezvous => "ERR_HELIOS_RENDEZVOUS",
            Self::CollectiveMismatch => "ERR_HELIOS_COLLECTIVE_MISMATCH",
            Self::PeerLost => "ERR_HELIOS_PEER_LOST",
            Self::CollectiveTimeout => "ERR_HELIOS_COLLECTIVE_TIMEOUT",
            Self::Engine => "ERR_HELIOS_ENGINE",
        }
    }
}

/// Which JS class an error becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Error,
    TypeError,
    RangeError,
}

#[derive(Debug, Clone, ThisError)]
pub enum Error {
    /// An argument of the wrong type.
    #[error("{argument} must be {expected}, got {value}")]
    Type {
        argument: String,
        expected: String,
        value: String,
    },
    /// An argument of the right type with a value that cannot be used.
    #[error("{argument} {problem}, got {value}")]
    Range {
        argument: String,
        problem: String,
        value: String,
    },
    /// A handle that is not even an integer in range.
    #[error("{argument} must be a {kind} handle (an integer from 0 to 2147483647), got {value}")]
    NoHandle {
        argument: String,
        kind: &'static str,
        value: String,
        class: Class,
    },
    /// A handle that was never issued, or whose object was destroyed.
    #[error("{argument}: no {kind} has the handle {value} (never created, or destroyed)")]
    Handle {
        argument: String,
        kind: &'static str,
        value: String,
    },
    /// A binding that the device cannot make.
    #[error("{argument}: buffer {handle}{} {fault}", .name.as_ref().map_or(String::new(), |n| format!(" ({n})")))]
    Binding {
        argument: String,
        handle: i32,
        name: Option<String>,
        fault: crate::plan::decode::RangeFault,
    },
    /// A packed list that does not decode. The message names the record and the byte offset.
    #[error("packed list: {0}")]
    Packed(#[from] crate::plan::decode::DecodeError),
    #[error("{0}")]
    Batch(String),
    #[error("SPIR-V: {0}")]
    Shader(#[from] spirv_check::ReflectError),
    /// A kernel program that breaks its format.
    #[error("program: {0}")]
    Program(#[from] kernel_codegen::ProgramError),
    #[error("{what} of {bytes} bytes: out of {space} memory{hint}")]
    OutOfMemory {
        what: &'static str,
        bytes: u64,
        space: &'static str,
        hint: String,
    },
    #[error("the device was lost ({0}); call destroy() and initDevice() to go on")]
    DeviceLost(String),
    #[error("{0}")]
    NoDevice(String),
    #[error("{0}")]
    NoLoader(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("{call} failed with {result:?}")]
    Vulkan {
        call: &'static str,
        result: vk::Result,
    },
    /// A module that the driver's assembler rejects; its log is not available.
    #[error(
        "{call} failed with {result:?}: the driver's assembler does not take the module (ptxas says why; check \
         .version and .target)"
    )]
    Assembly {
        call: &'static str,
        result: vk::Result,
    },
    #[error("no file descriptor for the memory ({0}): close some, or raise the limit (ulimit -n)")]
    Descriptors(String),
    #[error("Vulkan validation: {0}")]
    Validation(String),
    /// Something that only a bug of ours or of the driver can cause.
    #[error("internal: {0}")]
    Internal(String),
    #[error("{0}")]
    Aborted(String),
    /// A watched buffer holds a NaN.
    #[error("buffer {buffer}{}: {count} NaN, the first at element {first}", .name.as_ref().map_or(String::new(), |n| format!(" ({n})")))]
    Nan {
        buffer: i32,
        name: Option<String>,
        count: u64,
        first: u64,
    },
    /// The group of processes has failed.
    #[error("{0}")]
    Group(#[from] Failure),
}

impl Error {
    pub fn code(&self) -> Code {
        use crate::plan::decode::ErrorKind;
        match self {
            Self::Handle { .. } | Self::NoHandle { .. } => Code::InvalidHandle,
            Self::Packed(e) => match e.kind() {
                ErrorKind::InvalidHandle => Code::InvalidHandle,
                ErrorKind::InvalidArgument => Code::InvalidArgument,
            },
            Self::Type { .. }
            | Self::Range { .. }
            | Self::Binding { .. }
            | Self::Shader(_)
            | Self::Program(_) => Code::InvalidArgument,
            Self::Batch(_) => Code::InvalidBatch,
            Self::OutOfMemory { .. } => Code::OutOfMemory,
            Self::DeviceLost(_) => Code::DeviceLost,
            Self::NoDevice(_) => Code::NoDevice,
            Self::NoLoader(_) => Code::NoLoader,
            Self::Unsupported(_) => Code::Unsupported,
            Self::Vulkan { .. }
            | Self::Assembly { .. }
            | Self::Descriptors(_)
            | Self::Validation(_)
            | Self::Internal(_) => Code::Vulkan,
            Self::Aborted(_) => Code::Aborted,
            Self::Nan { .. } => Code::Nan,
            Self::Group(failure) => match failure.cause {
                Cause::NoEngine => Code::NoEngine,
                Cause::Rendezvous => Code::Rendezvous,
                Cause::Mismatch => Code::CollectiveMismatch,
                Cause::PeerLost => Code::PeerLost,
                Cause::Timeout => Code::CollectiveTimeout,
                Cause::Engine => Code::Engine,
                Cause::Aborted => Code::Aborted,
            },
        }
    }

    pub fn class(&self) -> Class {
        match self {
            Self::Type { .. } => Class::TypeError,
            Self::NoHandle { class, .. } => *class,
            Self::Range { .. }
            | Self::Binding { .. }
            | Self::Handle { .. }
            | Self::Packed(_)
            | Self::Shader(_)
            | Self::Program(_) => Class::RangeError,
            _ => Class::Error,
        }
    }

    /// The wrong argument, if one was wrong.
    pub fn argument(&self) -> Option<&str> {
        match self {
            Self::Type { argument, .. }
            | Self::Range { argument, .. }
            | Self::NoHandle { argument, .. }
            | Self::Binding { argument, .. }
            | Self::Handle { argument, .. } => Some(argument),
            Self::Packed(_) => Some("packed"),
            Self::Shader(_) => Some("spirv"),
            Self::Program(_) => Some("words"),
            Self::Nan { .. } => Some("buffer"),
            _ => None,
        }
    }

    /// Whether a failure report would help: not if an argument was wrong.
    pub fn reports(&self) -> bool {
        matches!(
            self,
            Self::DeviceLost(_) | Self::OutOfMemory { .. } | Self::Nan { .. }
        )
    }

    /// The value of that argument, as shown in the message.
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Type { value, .. }
            | Self::Range { value, .. }
            | Self::NoHandle { value, .. }
            | Self::Handle { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The rank that the error is about, if any.
    pub fn rank(&self) -> Option<u32> {
        match self {
            Self::Group(failure) => failure.rank,
            _ => None,
        }
    }

    pub fn range(
        argument: impl Into<String>,
        problem: impl Into<String>,
        value: impl ToString,
    ) -> Self {
        Self::Range {
            argument: argument.into(),
            problem: problem.into(),
            value: value.to_string(),
        }
    }

    pub fn handle(argument: impl Into<String>, kind: &'static str, value: i32) -> Self {
        Self::Handle {
            argument: argument.into(),
            kind,
            value: value.to_string(),
        }
    }
}

impl Error {
    /// Adds details to an out-of-memory error.
    pub fn with_hint(self, hint: String) -> Self {
        match self {
            Self::OutOfMemory {
                what, bytes, space, ..
            } => Self::OutOfMemory {
                what,
                bytes,
                space,
                hint,
            },
            other => other,
        }
    }
}

/// The message of a panic. A panic is always a bug of ours.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a message");
    format!("panic: {text}; this is a defect of helios-vk, please report it")
}

/// Whether something has run out or is lost, so that the same call with other arguments would not do better.
pub fn is_shortage(result: vk::Result) -> bool {
    matches!(
        result,
        vk::Result::ERROR_OUT_OF_HOST_MEMORY
            | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
            | vk::Result::ERROR_TOO_MANY_OBJECTS
            | vk::Result::ERROR_DEVICE_LOST
    )
}

/// Maps the result of an allocating Vulkan call (`vkCreate*`, `vkAllocate*`).
pub fn create(
    call: &'static str,
    what: &'static str,
    bytes: u64,
) -> impl FnOnce(vk::Result) -> Error {
    move |result| match result {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => Error::OutOfMemory {
            what,
            bytes,
            space: "device",
            hint: String::new(),
        },
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => Error::OutOfMemory {
            what,
            bytes,
            space: "host",
            hint: String::new(),
        },
        vk::Result::ERROR_DEVICE_LOST => Error::DeviceLost(call.to_owned()),
        result => Error::Vulkan { call, result },
    }
}

/// Maps the result of a Vulkan call that allocates nothing of a caller's size.
pub fn vulkan(call: &'static str) -> impl FnOnce(vk::Result) -> Error {
    move |result| match result {
        vk::Result::ERROR_DEVICE_LOST => Error::DeviceLost(call.to_owned()),
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => Error::OutOfMemory {
            what: call,
            bytes: 0,
            space: "device",
            hint: String::new(),
        },
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => Error::OutOfMemory {
            what: call,
            bytes: 0,
            space: "host",
            hint: String::new(),
        },
        result => Error::Vulkan { call, result },
    }
}

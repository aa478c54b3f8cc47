//! The errors that the completion thread speaks of.

use thiserror::Error as ThisError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, ThisError)]
pub enum Error {
    #[error("lost: {0}")]
    DeviceLost(String),
    #[error("{0}")]
    Internal(String),
    #[error("{0}")]
    Aborted(String),
}

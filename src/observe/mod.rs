//! Observes the work without changing it: GPU profiles, the black box, memory pressure.

pub mod blackbox;
pub mod pressure;
pub mod profile;

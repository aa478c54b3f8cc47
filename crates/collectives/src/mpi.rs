//! MPI without linking it: the library is found and loaded at run time, and its calls are bound by hand.
//!
//! Three binary interfaces are in use, and no header tells them apart for a program that is compiled once:
//! Open MPI (handles are addresses of its objects), MPICH (handles are 32-bit numbers), and the one that MPI-5
//! standardizes (handles are small numbers in pointers). [`flavor`] has their constants, [`world`] the calls.
//!
//! An MPI starts once in a process, is used by the thread that started it, and is never unloaded.

pub mod flavor;
pub mod library;
pub mod world;

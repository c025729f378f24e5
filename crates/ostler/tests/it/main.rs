//! The binary as its users start it.

mod bad_input;
mod session;
mod suites;
mod up;

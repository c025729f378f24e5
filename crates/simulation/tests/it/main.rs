//! Runs of the simulation.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod mistakes;
mod runs;

//! Runs of the simulation.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod extension;
mod mistakes;
mod runs;
mod schedules;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

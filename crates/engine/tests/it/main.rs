//! Tests of the engine over sockets: comparison with recordings of vLLM, and latency under load.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic reports the line of a failed test")]

mod client;
mod limits;
mod load;
mod recordings;

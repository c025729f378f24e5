//! Tests of the engine over sockets: comparison with recordings of vLLM, latency under load, and sleep mode.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic reports the line of a failed test")]

mod client;
mod limits;
mod load;
mod recordings;
mod sleep;

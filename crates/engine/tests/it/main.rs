//! Tests of the engine over sockets: comparison with recordings of vLLM, and latency under load.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod client;
mod load;
mod recordings;

//! The engine over real sockets: recordings of vLLM replayed, and time that follows load.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod client;
mod load;
mod recordings;

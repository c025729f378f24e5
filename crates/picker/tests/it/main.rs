//! The gateway in front of simulated engines, over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod api_server;
mod cluster;
mod endpoint_picker;
mod fleet;
mod picker_world;
mod proxy;
mod refusals;
mod strategies;
mod watch;

//! Tests of the requester over sockets, and of the coordinator with the API server of `embedded` and models of kubelet, requester and engine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy exempts test functions but not test helpers"
)]

mod api_requests;
mod budget;
mod concurrency;
mod controller;
mod crashes;
mod defects;
mod explanation;
mod http;
mod invariants;
mod launcher_daemon;
mod launcher_mode;
mod models;
mod problems;
mod requester_daemon;
mod traces;
mod world;

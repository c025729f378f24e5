//! The binary as its users start it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy exempts test functions only, and these are helpers of tests"
)]

mod admission;
mod bad_input;
mod catalog;
mod corpus;
mod crds;
mod deploy;
mod fields;
mod kubectl;
mod lint;
mod live;
mod plan;
mod realcluster;
mod reason_codes;
mod restart;
mod rollout;
mod routers;
mod session;
mod suites;
mod up;
mod vllm;

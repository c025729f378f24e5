//! Integration tests that run the binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy exempts only test functions, and these are helpers of tests"
)]

mod admission;
mod bad_input;
mod catalog;
mod corpus;
mod crds;
mod deploy;
mod dual_pod_services;
mod dual_pods;
mod fields;
mod full_class;
mod gateway_debug;
mod image;
mod kubectl;
mod lint;
mod lint_and_plan;
mod live;
mod logging;
#[cfg(target_os = "linux")]
mod open_files;
mod plan;
mod plan_diff;
mod realcluster;
mod reason_codes;
mod replaced_pods;
mod requester;
mod restart;
mod rollout;
mod routers;
mod runtime_pairs;
mod scaling;
mod session;
mod shared_names;
mod shutdown;
mod sleep_mode;
mod suites;
mod up;
mod vllm;

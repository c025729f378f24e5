//! Integration tests of the gateway and of the endpoint picker with simulated engines, over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed precondition should panic at its location"
)]

mod access;
mod access_log;
mod api_server;
mod backend_pools;
mod endpoint_picker;
mod envoy;
mod envoy_fixture;
mod frontends;
mod gateway_fixture;
mod http_routes;
mod inference_extension;
mod model_names;
mod picker_fixture;
mod picker_use_cases;
mod projection;
mod proxy;
mod rejections;
mod request_smuggling;
mod strategies;
mod target_models;
mod upstream_picker;
mod watch;
mod watch_fixture;

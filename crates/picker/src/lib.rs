//! Request scheduling for LLM engines: a pure core with two front ends, the native gateway and the endpoint picker.
//!
//! Native gateway: [`watch_backend_pools`] keeps a [`Datastore`] of BackendPools, use cases and Pods up to date and writes
//! their status; [`serve_gateway`] proxies OpenAI requests to the selected endpoint. Endpoint picker:
//! [`watch_inference_pool`] keeps the endpoints of one InferencePool up to date in an [`EndpointPicker`]; [`serve_grpc`]
//! answers Envoy's `ext_proc` requests with the selected endpoint.
//!
//! The core (`candidate`, `config`, `engine_metrics`, `filter`, `index`, `model_rewrite`, `policy`, `pool`, `profile`,
//! `request`, `schedule`, `score`, `use_case`) does no I/O and reads no clock; random number generators are passed in. The
//! gateway reads only `model`, `stream`, `max_tokens` and the size of the prompt from a request body, and changes only the
//! bytes of the `model` value.

#![warn(missing_docs)]

mod candidate;
pub mod code;
mod config;
mod connections;
mod endpoint_picker;
mod engine_metrics;
pub mod ext_proc;
mod filter;
mod gateway;
mod index;
mod model_rewrite;
mod policy;
mod pool;
mod profile;
mod request;
mod schedule;
mod score;
mod use_case;
mod watch;

pub use config::{ConfigError, ConfigWarning, ParsedConfig, parse_config};
pub use endpoint_picker::{
    CertificateError, EndpointPicker, ListenerRole, PoolGroup, ServingCertificate, serve_grpc, serve_metrics,
    watch_inference_pool,
};
pub use gateway::serve_gateway;
pub use policy::SchedulingPolicy;
pub use pool::{Datastore, Endpoint, EndpointLoad, Pool, PromptTokenRange, RoutingTable};
pub use use_case::{TargetModel, UseCase};
pub use watch::watch_backend_pools;

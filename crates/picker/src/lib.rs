//! Request scheduling for LLM engines: a pure core with two front ends, the native gateway and the endpoint picker.
//!
//! Native gateway: [`watch_backend_pools`] keeps a [`Datastore`] of BackendPools, use cases and Pods up to date and writes
//! their status; [`serve_gateway`] proxies OpenAI requests to the selected endpoint. Endpoint picker:
//! [`watch_inference_pool`] keeps the endpoints of one InferencePool up to date in an [`EndpointPicker`]; [`serve_grpc`]
//! answers Envoy's `ext_proc` requests with the selected endpoint.
//!
//! Layers; each uses only those before it. The core is pure: it does no I/O and reads no clock, and random number
//! generators are passed in.
//!
//! 1. Bodies: `request` finds `model`, `stream`, `max_tokens` and the prompt in a request body; `model_rewrite` changes only
//!    the bytes of a `model` value.
//! 2. State: `endpoint` (with its requests in flight), `pod`, `use_case`, `pool`, `datastore`, `engine_metrics`; `index` builds
//!    pools and status conditions from the watched objects.
//! 3. Decision: `candidate` and `scheduling_request` are its input; `filter`, `score`, `profile` and `policy` select endpoints
//!    for the endpoint picker, and `config` builds a policy; `schedule` selects one for the native gateway.
//! 4. `openai_error`: errors for clients, the same for both front ends.
//! 5. Shells: `watch` and `gateway`; `ext_proc` (messages) and `endpoint_picker`, which also scrapes engines.

#![warn(missing_docs)]

mod candidate;
pub mod code;
mod config;
mod datastore;
mod endpoint;
mod endpoint_picker;
mod engine_metrics;
pub mod ext_proc;
mod filter;
mod gateway;
mod index;
mod model_rewrite;
mod openai_error;
mod pod;
mod policy;
mod pool;
mod profile;
mod request;
mod schedule;
mod scheduling_request;
mod score;
mod use_case;
mod watch;

pub use config::{ConfigError, ConfigWarning, ParsedConfig, parse_config};
pub use datastore::Datastore;
pub use endpoint::{Endpoint, EndpointLoad, PromptTokenRange};
pub use endpoint_picker::{
    CertificateError, EndpointPicker, ListenerRole, PoolGroup, ServingCertificate, serve_grpc, serve_metrics,
    watch_inference_pool,
};
pub use gateway::serve_gateway;
pub use policy::SchedulingPolicy;
pub use pool::{Pool, RoutingTable};
pub use use_case::{TargetModel, UseCase};
pub use watch::watch_backend_pools;

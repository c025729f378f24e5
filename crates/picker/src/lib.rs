//! Request scheduling for LLM engines: one core with two frontends, the native gateway and the endpoint picker.
//!
//! A [`Scheduler`] selects an endpoint for each request from a snapshot of the pools. Native gateway:
//! [`watch_pools`] keeps the snapshot of all BackendPools, InferencePools, use cases, HTTPRoutes and Pods up to date and writes their status;
//! [`serve_gateway`] proxies OpenAI requests to the selected endpoint. Endpoint picker: [`watch_inference_pool`] keeps the
//! snapshot of one InferencePool up to date; [`serve_grpc`] answers Envoy's `ext_proc` requests with the selected endpoint.
//!
//! Layers; each uses only those before it. The first three are pure: they do no I/O and read no clock, and random number
//! generators are passed in.
//!
//! 1. Bodies: `json_scanner` finds the fields of an object; `control_fields` names those that clients must not set; `request`
//!    finds `model`, `stream`, `max_tokens` and the prompt in a request body; `model_rewrite` changes only the bytes of a
//!    `model` value; `output_tokens` reads the usage of a response.
//! 2. Decision: `endpoint`, `endpoint_state`, `concurrency_limit`, `endpoint_health`, `engine_metrics`, `served_models` and `peers`
//!    (what other replicas report) are its state, `prefix_index`, `endpoint_facts`, `candidate`, `endpoint_subset` and
//!    `scheduling_request` its input; `filter`, `score`, `profile` and `policy` select endpoints, and `config` builds a policy;
//!    `control_headers` passes the selection to engines.
//! 3. Pools: `kinds`, `use_case`, `objective`, `request_queue`, `queue_limits` and `flow_headers`, `model_names`, `pool_scheduling`,
//!    `pool_usage` (recent requests), `request_path`, `http_routes` (which pool a request is sent to) and `snapshot`; `activation`
//!    decides when their workloads are scaled from and to zero; `unserved_targets` reports targets without engines and
//!    `objective_status` measured latencies; `projection` renders InferencePools; `index` builds pools and status conditions from the
//!    watched objects, which `pod` reads.
//! 4. Core: `openai_error`, errors for clients, the same for both frontends; `access_log`, one line per request; `metrics`; `demand`
//!    records the requests to pools whose workloads are scaled; `scrape` and `endpoint_registry` keep the states of the endpoints up
//!    to date; `scheduler` admits requests, and `admission` those of callers outside of this crate; `request_trace` and `pool_details`
//!    are explanations for people.
//! 5. Access: `serving_certificate` (with `certificate_files`) and `api_keys`, from files that are reloaded.
//! 6. Shells: `watch`; `peer_connections`; the frontends `gateway`, and `ext_proc` (messages) with `endpoint_picker`; `debug` responds
//!    with explanations; `metrics_server`.
//!
//! `fuzz` states properties of what processes bytes of clients and engines.

#![warn(missing_docs)]

mod access_log;
mod activation;
mod admission;
mod api_keys;
mod candidate;
mod certificate_files;
pub mod code;
mod concurrency_limit;
mod config;
mod control_fields;
mod control_headers;
mod debug;
mod demand;
mod endpoint;
mod endpoint_facts;
mod endpoint_health;
mod endpoint_picker;
mod endpoint_registry;
mod endpoint_state;
mod endpoint_subset;
mod engine_metrics;
pub mod ext_proc;
mod filter;
mod flow_headers;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod gateway;
mod http_routes;
mod index;
mod json_scanner;
mod kinds;
mod metrics;
mod metrics_server;
mod model_names;
mod model_rewrite;
mod objective;
mod objective_status;
mod openai_error;
mod output_tokens;
mod peer_connections;
mod peers;
mod pod;
mod policy;
mod pool_details;
mod pool_scheduling;
mod pool_usage;
mod prefix_index;
mod profile;
mod projection;
mod queue_limits;
mod request;
mod request_path;
mod request_queue;
mod request_trace;
mod routing_error;
mod scheduler;
mod scheduling_request;
mod score;
mod scrape;
mod served_models;
mod serving_certificate;
mod snapshot;
mod unserved_targets;
mod use_case;
mod watch;

pub use access_log::{AccessLog, AccessLogGuard};
pub use admission::{AdmissionError, AdmittedRequest, ParsedBody};
pub use api_keys::{ApiKeyError, ApiKeys};
pub use certificate_files::CertificateFileError;
pub use config::{ConfigError, ConfigWarning, ParsedConfig, parse_config};
pub use control_fields::ControlFields;
pub use debug::{ConnectionAddresses, DEBUG_PATH, DebugPages};
pub use endpoint::{Endpoint, PromptTokenRange};
pub use endpoint_picker::{EndpointPicker, ListenerRole, MIN_PICKER_MEMORY, serve_grpc, watch_inference_pool};
pub use endpoint_state::{EndpointState, InFlight};
pub use endpoint_subset::EndpointSubset;
pub use gateway::{GatewayOptions, serve_gateway};
pub use http_routes::{CONTROLLER_NAME, ServedGateways};
pub use index::{ENDPOINTS_SHARED, MODEL_NAME_SHARED};
pub use metrics_server::serve_metrics;
pub use model_names::DEFAULT_NAMESPACE;
pub use objective::DEFAULT_OBJECTIVE_WINDOW;
pub use peer_connections::{PeerCertificate, PeerCertificateError, PeerOptions, exchange_with_peers};
pub use peers::{PEER_UPDATE_INTERVAL, PeerMessageError, ReplicaId};
pub use policy::SchedulingPolicy;
pub use pool_details::{EndpointDetails, FlowDetails, ObjectiveDetails, PoolDetails};
pub use pool_scheduling::PoolScheduling;
pub use projection::{EndpointPickerService, InvalidService};
pub use request::{DEFAULT_REQUEST_MEMORY, MIN_GATEWAY_MEMORY};
pub use request_trace::{RequestTrace, TraceCost, TraceEndpoint, TraceExclusion, TraceOutcome, TraceTarget};
pub use scheduler::Scheduler;
pub use scrape::BUSY_SCRAPE_INTERVAL;
pub use serving_certificate::{CertificateError, ServingCertificate};
pub use snapshot::{Pool, Snapshot};
pub use unserved_targets::TARGET_NOT_SERVED;
pub use use_case::{TargetModel, UseCase};
pub use watch::{PoolGroup, WatchOptions, watch_pools};

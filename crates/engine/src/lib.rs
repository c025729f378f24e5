//! A simulated vLLM engine: an OpenAI-compatible server without weights or GPU.
//!
//! Input: a [`Config`], or a container's command line parsed by [`ServerCommand::parse`], and HTTP requests.
//! Output: responses with the fields, error bodies, event order and metric names of vLLM 0.32. [`Timing`] computes latencies
//! from queue, batch size and cached prefix, so that load and shared prefixes have a measurable effect.
//!
//! Engines that share a [`RequestMemory`] hold a limited amount of requests together, however many there are. Engines that share
//! a [`NodeMemory`] compete for simulated device and host memory, and fail without it as vLLM does.
//!
//! The crate does not depend on Kubernetes. Text is generated from seed and prompt. Features that are not simulated (`n > 1`,
//! several prompts in one request, log probabilities) are rejected or `null`.
//!
//! Layers; each uses only those before it:
//!
//! 1. Parts of the model: `timing`, `batch`, `prefix_cache`, `tokenizer`, `text_generator`, `stop_strings`, `sleep`,
//!    `memory`, `metrics` (recording), `server_command`, `config`.
//! 2. Formats and bodies: `api_error`, `request`, `request_body`, `prompt`, `response`.
//! 3. The simulated engine: `simulator` (state that requests share) and `generation` (one request).
//! 4. HTTP: `metrics_page`, `http_response`, `remote_prefill` (prompts that another engine computes), `sleep_api`, `http_api`, `serve`. Only
//!    this layer opens sockets.
//!
//! vLLM does not listen until its weights are loaded, and neither does [`run`]. [`serve`] gets a listening socket; while
//! loading, it responds 503 with an empty body to every request.

#![warn(missing_docs)]

mod api_error;
mod batch;
mod config;
mod generation;
mod http_api;
mod http_response;
mod memory;
mod metrics;
mod metrics_page;
mod prefix_cache;
mod prompt;
mod remote_prefill;
mod request;
mod request_body;
mod response;
mod serve;
mod server_command;
mod simulator;
mod sleep;
mod sleep_api;
mod stop_strings;
mod text_generator;
mod timing;
mod tokenizer;

pub use config::Config;
pub use memory::{EngineMemory, NodeMemory};
pub use request_body::RequestMemory;
pub use serve::{router, run, serve};
pub use server_command::{InferenceServer, LoraModule, ServerCommand};
pub use timing::Timing;

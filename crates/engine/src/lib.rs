//! A simulated OpenAI/vLLM engine: the server side of an inference Pod without weights or GPU.
//!
//! In: a [`Config`] (or the command line of a container, read by [`launch_line`]) and HTTP requests.
//! Out: answers with the fields, error bodies, event order and metric names of vLLM 0.32, at a pace that follows
//! from queue, batch size and cached prefix ([`Timing`]), so that load and shared prefixes measurably matter.
//!
//! It knows nothing of Kubernetes, and never pretends: text is generated from seed and prompt, what is not
//! simulated (`n > 1`, several prompts in one request, log probabilities) is refused or `null`.
//!
//! Start-up: vLLM does not listen until its weights are loaded. [`run`] does the same. [`serve`] is handed a socket
//! that already listens, so while loading it answers every path with 503 and an empty body.

mod answer;
mod batch;
mod cache;
mod config;
mod content;
mod failure;
mod generation;
mod http_api;
pub mod launch_line;
mod metrics;
mod prompt;
mod request;
mod serve;
mod simulator;
mod stop;
mod timing;
mod tokens;

pub use config::Config;
pub use launch_line::LaunchLine;
pub use serve::{router, run, serve};
pub use timing::Timing;

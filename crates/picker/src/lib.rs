//! Request scheduling: a pure core, and two faces of it: the native gateway, and an endpoint picker for others' gateways.
//!
//! In: BackendPools, use cases and Pods ([`watch`]), and requests ([`gateway`]); or one InferencePool with its Pods and a
//! proxy that asks ([`endpoint_picker`]). Out: the endpoint that answers ([`schedule`], [`policy`]), the `model` bytes
//! exchanged ([`splice`]), and the status of pools and use cases.
//!
//! The core (`request`, `pool`, `member`, `reading`, `use_case`, `index`, `score`, `filter`, `profile`, `policy`, `policy_file`,
//! `splice`, `schedule`) does no I/O and reads no clock; its randomness is passed in. The gateway never interprets more of a body than `model`, `stream`, `max_tokens` and the
//! size of the prompt, and never changes more of it than the bytes of the `model` value.

pub mod code;
mod connections;
pub mod endpoint_picker;
pub mod filter;
pub mod gateway;
pub mod index;
pub mod member;
pub mod policy;
pub mod policy_file;
pub mod pool;
pub mod profile;
pub mod reading;
pub mod request;
pub mod schedule;
pub mod score;
pub mod splice;
pub mod use_case;
pub mod watch;

pub use policy::{Choice, Policy};
pub use pool::{Endpoint, Pool, PoolKey, Pools, Prompts, Routing};
pub use schedule::{Pick, Refusal, schedule};
pub use use_case::{Target, UseCase};

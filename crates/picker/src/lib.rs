//! Request scheduling: a pure core, and the native gateway around it.
//!
//! In: BackendPools, use cases and Pods ([`watch`]), and requests ([`gateway`]). Out: the endpoint that answers
//! ([`schedule`]), the `model` bytes exchanged ([`splice`]), and the status of pools and use cases.
//!
//! The core (`request`, `pool`, `use_case`, `index`, `score`, `splice`, `schedule`) does no I/O and reads no clock; its
//! randomness is passed in. The gateway never interprets more of a body than `model`, `stream`, `max_tokens` and the
//! size of the prompt, and never changes more of it than the bytes of the `model` value.

pub mod code;
pub mod gateway;
pub mod index;
pub mod pool;
pub mod request;
pub mod schedule;
pub mod score;
pub mod splice;
pub mod use_case;
pub mod watch;

pub use pool::{Endpoint, Pool, PoolKey, Pools, Routing};
pub use schedule::{Pick, Refusal, schedule};
pub use use_case::{Target, UseCase};

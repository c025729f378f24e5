//! The engine over real sockets: recordings of vLLM replayed, and time that follows load.

mod client;
mod load;
mod recordings;

//! HTTP servers whose clients cannot hold resources without limit.
//!
//! [`Connections`] accepts a limited number of connections, and [`serve_connection`] serves HTTP/1.1 and HTTP/2 on one of
//! them: it closes connections that send no request, send one too slowly, or do not read the response, and resets HTTP/2
//! streams that the client does not read. [`read_body`] and [`BodyReader`] receive request bodies within limits on their size,
//! time and memory ([`BodyMemory`]), which also limits the heads of requests. [`WriteTimeout`] fails writes to a peer that does
//! not read, also for clients. What a request does is up to the caller; the crate knows neither TLS nor routes.
//!
//! Layers: `activity` → `client_stream`, beside it `write_timeout` and `stream_timeout` → `connection`; `body_memory` → `request_body`;
//! beside them `connections`.

#![warn(missing_docs)]

mod activity;
mod body_memory;
mod client_stream;
mod connection;
mod connections;
mod request_body;
mod stream_timeout;
mod write_timeout;

pub use activity::RequestProgress;
pub use body_memory::{BodyMemory, BodyReservation, HeadMemoryExhausted, HeadReservation};
pub use client_stream::{ErrorBody, ErrorContent};
pub use connection::{ConnectionLimits, ConnectionOptions, serve_connection};
pub use connections::{Connections, Overload};
pub use request_body::{BodyBuffer, BodyError, BodyLimits, BodyReader, ReservedBody, read_body};
pub use write_timeout::WriteTimeout;

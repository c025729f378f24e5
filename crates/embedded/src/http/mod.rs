//! The API over HTTP.

use axum::Router;

use crate::server::Server;

/// The whole API, without TLS or authentication.
pub fn router(_server: Server) -> Router {
    Router::new()
}

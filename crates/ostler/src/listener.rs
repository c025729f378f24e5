//! Listeners of servers. An error of a bind names the flag that sets another address.

use std::io;
use std::net::SocketAddr;

use anyhow::Result;

use crate::report::errors::error_with_hint;

/// Listens on the address of `flag`.
pub(crate) async fn bind(address: SocketAddr, flag: &str) -> Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(address).await.map_err(|error| bind_error(address, flag, &error))
}

/// Listens on the address of `flag` with a blocking listener, which needs no async runtime.
pub(crate) fn bind_blocking(address: SocketAddr, flag: &str) -> Result<std::net::TcpListener> {
    std::net::TcpListener::bind(address).map_err(|error| bind_error(address, flag, &error))
}

fn bind_error(address: SocketAddr, flag: &str, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("another process uses this address; choose another one with {flag} 127.0.0.1:0")
        }
        _ => format!("choose another address with {flag}"),
    };
    error_with_hint(format!("cannot listen on {address}: {error}"), hint)
}

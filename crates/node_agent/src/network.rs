//! Connections to Pods.

use std::io;
use std::net::SocketAddr;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// Connects to Pods, for probes and proxies.
pub trait Network: Send + Sync {
    /// Opens a connection.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn NetworkStream>>>;
}

/// A bidirectional byte stream.
pub trait NetworkStream: AsyncRead + AsyncWrite + Send + Unpin {}

/// TCP connections of the host, where every Pod address is a loopback address.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpNetwork;

impl<T: AsyncRead + AsyncWrite + Send + Unpin> NetworkStream for T {}

// === impl TcpNetwork ===

impl Network for TcpNetwork {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn NetworkStream>>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn NetworkStream>)
        })
    }
}

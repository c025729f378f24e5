//! How probes and proxies reach a Pod.

use std::io;
use std::net::SocketAddr;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// How probes and proxies reach a Pod.
pub trait Network: Send + Sync {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;
}

/// One connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// TCP, as the machine has it; every Pod address is a loopback address.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loopback;

// === impl Loopback ===

impl Network for Loopback {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

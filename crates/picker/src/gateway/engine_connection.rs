//! One HTTP/1.1 connection to an engine. It has no task of its own: the request that uses it drives it, until the head of the
//! response has arrived and then while the body is read. A task per connection would cost two switches between threads per
//! request.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, Waker, ready},
};

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_server::WriteTimeout;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::engine_request_body::EngineRequestBody;

type Driver = http1::Connection<TokioIo<WriteTimeout<TcpStream>>, EngineRequestBody>;

/// A connection with at most one request in progress.
#[derive(Debug)]
pub(super) struct EngineConnection {
    sender: SendRequest<EngineRequestBody>,
    /// Reads and writes when it is polled; `None` once the connection is closed.
    driver: Option<Pin<Box<Driver>>>,
    /// Value of the header `Host`.
    host: HeaderValue,
    /// Whether the connection has carried a response.
    pub(super) is_reused: bool,
}

/// Why a connection did not carry a response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// The connection failed, or the engine sent no HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The engine closed the connection.
    #[error("the engine closed the connection")]
    Closed,
    /// The engine switched to another protocol without a request to do so.
    #[error("the engine responded with status {0}")]
    UnexpectedStatus(StatusCode),
}

// === impl EngineConnection ===

impl EngineConnection {
    /// Returns a connection on `stream` to an engine with this `Host`.
    ///
    /// # Errors
    /// [`ConnectionError::Http`].
    pub(super) async fn new(stream: WriteTimeout<TcpStream>, host: HeaderValue) -> Result<Self, ConnectionError> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)), host, is_reused: false })
    }

    /// Sends a request and returns the head of the response.
    ///
    /// # Errors
    /// The connection fails or is closed before the response.
    pub(super) async fn send(
        &mut self,
        mut request: Request<EngineRequestBody>,
    ) -> Result<Response<Incoming>, ConnectionError> {
        request.headers_mut().insert(header::HOST, self.host.clone());
        let mut response = pin!(self.sender.send_request(request));
        poll_fn(|context| {
            let is_closed = self.poll_driver(context).is_ready();
            match response.as_mut().poll(context) {
                Poll::Pending if is_closed => Poll::Ready(Err(ConnectionError::Closed)),
                Poll::Pending => Poll::Pending,
                Poll::Ready(response) => {
                    let response = response?;
                    let status = response.status();
                    let is_final = !status.is_informational();
                    Poll::Ready(if is_final { Ok(response) } else { Err(ConnectionError::UnexpectedStatus(status)) })
                }
            }
        })
        .await
    }

    /// Returns whether the connection is open and can carry a request.
    pub(super) fn is_idle(&mut self) -> bool {
        self.poll_driver(&mut Context::from_waker(Waker::noop())).is_pending() && self.sender.is_ready()
    }

    /// Reads and writes. Completes when the connection is closed; request and response receive the error.
    pub(super) fn poll_driver(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(driver) = &mut self.driver {
            let _ = ready!(driver.as_mut().poll(context));
            self.driver = None;
        }
        Poll::Ready(())
    }
}

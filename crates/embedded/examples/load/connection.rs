//! A minimal HTTP/1.1 connection for one request at a time. The load generator runs on the same host as the measured
//! server, so it saves CPU time: it sends each request in a single write and does not parse response bodies.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::framing::{BodyEvent, Framing, ResponseHead};
use crate::result::Result;

/// Buffer capacity that is reserved before a read, in bytes.
const READ_CAPACITY: usize = 16 * 1024;

/// A TLS connection to the server.
pub(crate) struct Connection {
    stream: TlsStream<BufReader<TcpStream>>,
    headers: Arc<str>,
    /// Bytes that have been read but not consumed.
    buffer: BytesMut,
}

/// A request.
pub(crate) struct Request {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Bytes,
}

/// A response body that is being received.
pub(crate) struct ResponseBody {
    connection: Connection,
    framing: Framing,
}

// === impl Request ===

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: "GET", path: path.into(), content_type: "", body: Bytes::new() }
    }

    pub(crate) fn post(path: impl Into<String>, body: Bytes) -> Self {
        Self { method: "POST", path: path.into(), content_type: "application/json", body }
    }

    pub(crate) fn merge_patch(path: impl Into<String>, body: Bytes) -> Self {
        Self { method: "PATCH", path: path.into(), content_type: "application/merge-patch+json", body }
    }
}

// === impl Connection ===

impl Connection {
    pub(crate) fn new(stream: TlsStream<BufReader<TcpStream>>, headers: Arc<str>) -> Self {
        Self { stream, headers, buffer: BytesMut::new() }
    }

    /// Sends a request and returns the status code and body of the response.
    pub(crate) async fn send(&mut self, request: &Request) -> Result<(u16, Bytes)> {
        let ResponseHead { code, mut framing } = self.send_request(request).await?;
        let mut body = BytesMut::new();
        while let Some(chunk) = self.next_chunk(&mut framing).await? {
            if body.is_empty() { body = chunk } else { body.extend_from_slice(&chunk) }
        }
        Ok((code, body.freeze()))
    }

    /// Sends a request and returns the response body. Returns an error unless the status code indicates success.
    pub(crate) async fn send_ok(&mut self, request: &Request) -> Result<Bytes> {
        let (code, response) = self.send(request).await?;
        if (200..300).contains(&code) {
            Ok(response)
        } else {
            Err(format!("{}: {code} {response:?}", request.path).into())
        }
    }

    /// Sends a request and returns the length of the response body in bytes.
    pub(crate) async fn measure(&mut self, request: &Request) -> Result<usize> {
        let ResponseHead { code, mut framing } = self.send_request(request).await?;
        let mut length = 0;
        while let Some(chunk) = self.next_chunk(&mut framing).await? {
            length += chunk.len();
        }
        if code == 200 { Ok(length) } else { Err(format!("{}: {code}", request.path).into()) }
    }

    /// Opens a watch. Consumes the connection, because the response body of a watch does not end.
    pub(crate) async fn open(mut self, path: &str) -> Result<ResponseBody> {
        match self.send_request(&Request::get(path)).await? {
            ResponseHead { code: 200, framing } => Ok(ResponseBody { connection: self, framing }),
            ResponseHead { code, .. } => Err(format!("{path}: {code}").into()),
        }
    }

    async fn send_request(&mut self, request: &Request) -> Result<ResponseHead> {
        let Request { method, path, content_type, body } = request;
        let mut text = format!("{method} {path} HTTP/1.1\r\n{}", self.headers);
        if !body.is_empty() {
            text.push_str(&format!("content-type: {content_type}\r\ncontent-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await?;
        loop {
            if let Some(head) = ResponseHead::parse(&mut self.buffer)? {
                return Ok(head);
            }
            self.read_more().await?;
        }
    }

    /// Returns the next chunk of a body, or `None` at the end. Cancel-safe.
    async fn next_chunk(&mut self, framing: &mut Framing) -> Result<Option<BytesMut>> {
        loop {
            match framing.next(&mut self.buffer)? {
                BodyEvent::Chunk(chunk) => return Ok(Some(chunk)),
                BodyEvent::End => return Ok(None),
                BodyEvent::NeedMore => self.read_more().await?,
            }
        }
    }

    async fn read_more(&mut self) -> Result<()> {
        self.buffer.reserve(READ_CAPACITY);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err("the connection was closed".into()),
            _ => Ok(()),
        }
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Returns the next chunk, or `None` at the end. Cancel-safe.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<BytesMut>> {
        self.connection.next_chunk(&mut self.framing).await
    }
}

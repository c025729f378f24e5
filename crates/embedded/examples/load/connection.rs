//! One connection to a server: HTTP/1.1 by hand, one request at a time. The generator shares the machine with what it
//! measures, so a request is one write, and of an answer only its length is understood.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::Result;
use crate::framing::{Framing, Head, Step};

/// How much room is made for what is read next.
const ROOM: usize = 16 * 1024;

pub(crate) struct Connection {
    stream: TlsStream<BufReader<TcpStream>>,
    headers: Arc<str>,
    /// Read, and not yet used.
    read: BytesMut,
}

pub(crate) struct Request {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Bytes,
}

/// A body that is still coming.
pub(crate) struct Body {
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
        Self { stream, headers, read: BytesMut::new() }
    }

    /// The code of the answer, and its body.
    pub(crate) async fn send(&mut self, request: &Request) -> Result<(u16, Bytes)> {
        let Head { code, mut framing } = self.ask(request).await?;
        let mut body = BytesMut::new();
        while let Some(piece) = self.piece(&mut framing).await? {
            if body.is_empty() { body = piece } else { body.extend_from_slice(&piece) }
        }
        Ok((code, body.freeze()))
    }

    /// As [`Self::send`], for what must succeed.
    pub(crate) async fn done(&mut self, request: &Request) -> Result<Bytes> {
        let (code, answer) = self.send(request).await?;
        if (200..300).contains(&code) { Ok(answer) } else { Err(format!("{}: {code} {answer:?}", request.path).into()) }
    }

    /// The length of the answer, which is not kept.
    pub(crate) async fn measure(&mut self, request: &Request) -> Result<usize> {
        let Head { code, mut framing } = self.ask(request).await?;
        let mut length = 0;
        while let Some(piece) = self.piece(&mut framing).await? {
            length += piece.len();
        }
        if code == 200 { Ok(length) } else { Err(format!("{}: {code}", request.path).into()) }
    }

    /// A body that does not end: a watch. The connection is used up.
    pub(crate) async fn open(mut self, path: &str) -> Result<Body> {
        match self.ask(&Request::get(path)).await? {
            Head { code: 200, framing } => Ok(Body { connection: self, framing }),
            Head { code, .. } => Err(format!("{path}: {code}").into()),
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Head> {
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
            if let Some(head) = Head::take(&mut self.read)? {
                return Ok(head);
            }
            self.more().await?;
        }
    }

    /// The next piece of a body; `None` at its end. Cancel-safe.
    async fn piece(&mut self, framing: &mut Framing) -> Result<Option<BytesMut>> {
        loop {
            match framing.next(&mut self.read)? {
                Step::Piece(piece) => return Ok(Some(piece)),
                Step::End => return Ok(None),
                Step::More => self.more().await?,
            }
        }
    }

    async fn more(&mut self) -> Result<()> {
        self.read.reserve(ROOM);
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err("the connection was closed".into()),
            _ => Ok(()),
        }
    }
}

// === impl Body ===

impl Body {
    /// The next piece; `None` at the end. Cancel-safe.
    pub(crate) async fn piece(&mut self) -> Result<Option<BytesMut>> {
        self.connection.piece(&mut self.framing).await
    }
}

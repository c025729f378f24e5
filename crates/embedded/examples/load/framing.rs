//! Framing of HTTP/1.1 responses by `Content-Length` or chunked transfer coding (RFC 9112).

use bytes::{Buf, BytesMut};
use memchr::memmem;

use crate::result::Result;

/// Status code and framing of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) code: u16,
    pub(crate) framing: Framing,
}

/// The state of a body that is being received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `Content-Length`: the number of bytes of the body that remain.
    Length(usize),
    /// Chunked: the line with the size of the next chunk follows.
    ChunkSize,
    /// Chunked: the number of bytes of the current chunk that remain.
    Chunk(usize),
    /// Chunked: the CRLF after a chunk follows.
    ChunkEnd,
    /// Chunked: the final CRLF after the last chunk follows.
    FinalCrlf,
}

/// The result of parsing the available bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyEvent {
    Chunk(BytesMut),
    NeedMore,
    End,
}

// === impl ResponseHead ===

impl ResponseHead {
    /// Parses the head and removes it from the front of `bytes`. Returns `None` while the head is incomplete.
    pub(crate) fn parse(bytes: &mut BytesMut) -> Result<Option<Self>> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
        let head = bytes.split_to(end + 4);
        let mut lines = std::str::from_utf8(&head)?.split("\r\n");
        let code = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no status line")?.parse()?;
        let mut framing = Framing::Length(0);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                framing = Framing::Length(value.trim().parse()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                framing = Framing::ChunkSize;
            }
        }
        Ok(Some(Self { code, framing }))
    }
}

// === impl Framing ===

impl Framing {
    /// Removes the next chunk of the body from the front of `bytes` and returns it.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> Result<BodyEvent> {
        loop {
            match *self {
                Self::Length(0) => return Ok(BodyEvent::End),
                Self::Length(remaining) | Self::Chunk(remaining) => {
                    let chunk = bytes.split_to(remaining.min(bytes.len()));
                    let remaining = remaining - chunk.len();
                    *self = match self {
                        Self::Length(_) => Self::Length(remaining),
                        _ if remaining == 0 => Self::ChunkEnd,
                        _ => Self::Chunk(remaining),
                    };
                    return Ok(if chunk.is_empty() { BodyEvent::NeedMore } else { BodyEvent::Chunk(chunk) });
                }
                Self::ChunkSize => {
                    let Some(end) = memmem::find(bytes, b"\r\n") else { return Ok(BodyEvent::NeedMore) };
                    let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end])?, 16)?;
                    bytes.advance(end + 2);
                    *self = if length == 0 { Self::FinalCrlf } else { Self::Chunk(length) };
                }
                Self::ChunkEnd | Self::FinalCrlf => {
                    if bytes.len() < 2 {
                        return Ok(BodyEvent::NeedMore);
                    }
                    bytes.advance(2);
                    *self = if *self == Self::FinalCrlf { Self::Length(0) } else { Self::ChunkSize };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_body(text: &str, read_size: usize) -> (u16, String, usize) {
        let (mut buffer, mut head, mut content) = (BytesMut::new(), None, String::new());
        for bytes in text.as_bytes().chunks(read_size) {
            buffer.extend_from_slice(bytes);
            if head.is_none() {
                head = ResponseHead::parse(&mut buffer).unwrap();
            }
            let Some(ResponseHead { framing, .. }) = &mut head else { continue };
            while let BodyEvent::Chunk(chunk) = framing.next(&mut buffer).unwrap() {
                content.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        }
        let head = head.unwrap();
        assert_eq!(head.framing, Framing::Length(0), "the body is complete");
        (head.code, content, buffer.len())
    }

    #[test]
    fn parses_bodies_for_all_read_sizes() {
        let fixed_length_response = "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nabcde";
        let chunked_response =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
        for read_size in 1..80 {
            assert_eq!(parse_body(fixed_length_response, read_size), (201, "abcde".to_owned(), 0));
            assert_eq!(parse_body(chunked_response, read_size), (200, "abc0123456789".to_owned(), 0));
        }
        assert_eq!(parse_body("HTTP/1.1 204 No Content\r\n\r\n", 100), (204, String::new(), 0));
    }
}

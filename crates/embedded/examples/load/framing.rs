//! Where an HTTP/1.1 answer ends (RFC 9112): by its length, or chunk by chunk.

use bytes::{Buf, BytesMut};
use memchr::memmem;

use crate::Result;

/// The first lines of an answer, as far as they matter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) code: u16,
    pub(crate) framing: Framing,
}

/// What of a body is still to come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes, then the end.
    Length(usize),
    /// A line with the length of a chunk.
    ChunkLength,
    /// The rest of a chunk.
    Chunk(usize),
    /// The end of a chunk's line.
    ChunkEnd,
    /// The empty line at the end.
    LastLine,
}

/// What the bytes that are there give.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Piece(BytesMut),
    More,
    End,
}

// === impl Head ===

impl Head {
    /// Takes it from the front of `bytes` when it is there.
    pub(crate) fn take(bytes: &mut BytesMut) -> Result<Option<Self>> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
        let head = bytes.split_to(end + 4);
        let mut lines = std::str::from_utf8(&head)?.split("\r\n");
        let code = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no status line")?.parse()?;
        let mut framing = Framing::Length(0);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                framing = Framing::Length(value.trim().parse()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                framing = Framing::ChunkLength;
            }
        }
        Ok(Some(Self { code, framing }))
    }
}

// === impl Framing ===

impl Framing {
    /// Takes the next piece of the body from the front of `bytes`.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> Result<Step> {
        loop {
            match *self {
                Self::Length(0) => return Ok(Step::End),
                Self::Length(left) | Self::Chunk(left) => {
                    let piece = bytes.split_to(left.min(bytes.len()));
                    let left = left - piece.len();
                    *self = match self {
                        Self::Length(_) => Self::Length(left),
                        _ if left == 0 => Self::ChunkEnd,
                        _ => Self::Chunk(left),
                    };
                    return Ok(if piece.is_empty() { Step::More } else { Step::Piece(piece) });
                }
                Self::ChunkLength => {
                    let Some(end) = memmem::find(bytes, b"\r\n") else { return Ok(Step::More) };
                    let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end])?, 16)?;
                    bytes.advance(end + 2);
                    *self = if length == 0 { Self::LastLine } else { Self::Chunk(length) };
                }
                Self::ChunkEnd | Self::LastLine => {
                    if bytes.len() < 2 {
                        return Ok(Step::More);
                    }
                    bytes.advance(2);
                    *self = if *self == Self::LastLine { Self::Length(0) } else { Self::ChunkLength };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str, at_once: usize) -> (u16, String, usize) {
        let (mut read, mut head, mut whole) = (BytesMut::new(), None, String::new());
        for some in text.as_bytes().chunks(at_once) {
            read.extend_from_slice(some);
            if head.is_none() {
                head = Head::take(&mut read).unwrap();
            }
            let Some(Head { framing, .. }) = &mut head else { continue };
            while let Step::Piece(piece) = framing.next(&mut read).unwrap() {
                whole.push_str(std::str::from_utf8(&piece).unwrap());
            }
        }
        let head = head.unwrap();
        assert_eq!(head.framing, Framing::Length(0), "the end was seen");
        (head.code, whole, read.len())
    }

    #[test]
    fn bodies_end_where_they_end_however_they_arrive() {
        let sized = "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nabcde";
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
        for at_once in 1..80 {
            assert_eq!(body(sized, at_once), (201, "abcde".to_owned(), 0));
            assert_eq!(body(chunked, at_once), (200, "abc0123456789".to_owned(), 0));
        }
        assert_eq!(body("HTTP/1.1 204 No Content\r\n\r\n", 100), (204, String::new(), 0));
    }
}

//! Reading a watch without parsing it: the revision of each line, and when it came.

use bytes::BytesMut;
use memchr::{memchr, memmem};

use crate::Result;
use crate::connection::Body;

const KEY: &[u8] = b"\"resourceVersion\":\"";

/// The revision of an object, found as text; its data hold no such key.
pub(crate) fn revision(object: &[u8]) -> Result<u64> {
    let at = memmem::find(object, KEY).ok_or_else(|| format!("no revision in {}", String::from_utf8_lossy(object)))?;
    let digits = &object[at + KEY.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    Ok(std::str::from_utf8(&digits[..end])?.parse()?)
}

/// The lines of a watch.
pub(crate) struct Lines {
    body: Body,
    rest: BytesMut,
    /// Up to here `rest` has no newline.
    searched: usize,
}

// === impl Lines ===

impl Lines {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, rest: BytesMut::new(), searched: 0 }
    }

    /// The next line, or `None` at the end of the stream. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<BytesMut>> {
        loop {
            if let Some(at) = memchr(b'\n', &self.rest[self.searched..]) {
                let line = self.rest.split_to(self.searched + at + 1);
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.rest.len();
            match self.body.piece().await? {
                Some(piece) if self.rest.is_empty() => self.rest = piece,
                Some(piece) => self.rest.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

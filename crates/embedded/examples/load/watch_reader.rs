//! Reads the events of a watch. To save CPU time, it extracts only the revision of each event and does not parse the
//! JSON.

use bytes::BytesMut;
use memchr::{memchr, memmem};

use crate::connection::ResponseBody;
use crate::result::Result;

const REVISION_KEY: &[u8] = b"\"resourceVersion\":\"";

/// Finds the revision of an object by a text search for the key `resourceVersion`, which must not occur earlier in the
/// object.
pub(crate) fn revision(object: &[u8]) -> Result<u64> {
    let position = memmem::find(object, REVISION_KEY)
        .ok_or_else(|| format!("no revision in {}", String::from_utf8_lossy(object)))?;
    let digits = &object[position + REVISION_KEY.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    Ok(std::str::from_utf8(&digits[..end])?.parse()?)
}

/// The lines of a watch response, one per event.
pub(crate) struct WatchLines {
    body: ResponseBody,
    buffer: BytesMut,
    /// `buffer` has no newline before this position.
    search_start: usize,
}

// === impl WatchLines ===

impl WatchLines {
    pub(crate) fn new(body: ResponseBody) -> Self {
        Self { body, buffer: BytesMut::new(), search_start: 0 }
    }

    /// Returns the next line, or `None` at the end of the stream. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<BytesMut>> {
        loop {
            if let Some(position) = memchr(b'\n', &self.buffer[self.search_start..]) {
                let line = self.buffer.split_to(self.search_start + position + 1);
                self.search_start = 0;
                return Ok(Some(line));
            }
            self.search_start = self.buffer.len();
            match self.body.next_chunk().await? {
                Some(chunk) if self.buffer.is_empty() => self.buffer = chunk,
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

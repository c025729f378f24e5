//! Reading a watch without parsing it: the revision of each line, and when it came.

use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::Result;

const KEY: &[u8] = b"\"resourceVersion\":\"";

/// The revision of an object, found as text; its data hold no such key.
pub(crate) fn revision(object: &[u8]) -> Result<u64> {
    let at = find(object, KEY).ok_or_else(|| format!("no revision in {}", String::from_utf8_lossy(object)))?;
    let digits = &object[at + KEY.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    Ok(std::str::from_utf8(&digits[..end])?.parse()?)
}

pub(crate) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| *byte == first) {
        if text[from + at..].starts_with(what) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// The lines of a watch.
pub(crate) struct Lines {
    body: Incoming,
    rest: BytesMut,
    /// Up to here `rest` has no newline.
    searched: usize,
}

// === impl Lines ===

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, rest: BytesMut::new(), searched: 0 }
    }

    /// The next line, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<BytesMut>> {
        loop {
            if let Some(at) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(self.searched + at + 1);
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.rest.len();
            match self.body.frame().await.transpose()? {
                Some(frame) => self.rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref())),
                None => return Ok(None),
            }
        }
    }
}

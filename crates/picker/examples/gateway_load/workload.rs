//! Chat completions of a given size. The first half of each prompt is one of a few documents, the second half is unique.

use fastrand::Rng;

use crate::engines::MODEL;

/// Number of documents that requests share.
const DOCUMENTS: usize = 16;

/// Length of a line of text in bytes, including the escaped line break.
const LINE_BYTES: usize = 64;

/// Number of lines of the text from which unique prompts are taken.
const UNIQUE_LINES: usize = 65_536;

/// Texts of which requests consist, the same in each run.
pub(crate) struct Workload {
    documents: Vec<Vec<u8>>,
    unique: Vec<u8>,
    body_bytes: usize,
}

// === impl Workload ===

impl Workload {
    /// Returns requests with bodies of about `body_bytes`.
    pub(crate) fn new(body_bytes: usize) -> Self {
        let mut rng = Rng::with_seed(7);
        let half = body_bytes.saturating_sub(Self::request(&[], &[], 0).len()) / 2;
        let lines = half.div_ceil(LINE_BYTES);
        let documents = (0..DOCUMENTS).map(|_| {
            let mut document = text(lines, &mut rng);
            document.truncate(half / LINE_BYTES * LINE_BYTES);
            document
        });
        Self { documents: documents.collect(), unique: text(UNIQUE_LINES, &mut rng), body_bytes }
    }

    /// Returns a body.
    pub(crate) fn body(&self, rng: &mut Rng) -> Vec<u8> {
        let document = rng.choice(&self.documents).map_or(&[] as &[u8], Vec::as_slice);
        let rest = self.body_bytes.saturating_sub(Self::request(document, &[], 0).len()) / LINE_BYTES * LINE_BYTES;
        let start = rng.usize(..=(self.unique.len().saturating_sub(rest)) / LINE_BYTES) * LINE_BYTES;
        Self::request(document, &self.unique[start..][..rest], rng.u64(..))
    }

    fn request(document: &[u8], question: &[u8], number: u64) -> Vec<u8> {
        let head = format!(r#"{{"model":"{MODEL}","max_tokens":16,"messages":[{{"role":"system","content":""#);
        let middle = format!(r#""}},{{"role":"user","content":"{number:016x} "#);
        [head.as_bytes(), document, middle.as_bytes(), question, br#""}]}"#].concat()
    }
}

/// Returns lines of words, each with an escaped line break, as in the JSON text of a document.
fn text(lines: usize, rng: &mut Rng) -> Vec<u8> {
    let mut text = Vec::with_capacity(lines * LINE_BYTES);
    for _ in 0..lines {
        text.extend((0..LINE_BYTES - 2).map(|_| if rng.u8(..6) == 0 { b' ' } else { rng.lowercase() as u8 }));
        text.extend_from_slice(br"\n");
    }
    text
}

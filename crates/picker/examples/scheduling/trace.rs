//! Requests of a trace: bodies as clients send them, and the tokens that engines compute for them.

use std::{fmt::Write, ops::Range, time::Duration};

use fastrand::Rng;

use crate::kv_cache::BLOCK_TOKENS;

/// Requests to a group of engines.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) requests: Vec<Request>,
    /// Times and positions of the requests that do not follow another one, in order.
    pub(crate) arrivals: Vec<(Duration, usize)>,
}

/// One streamed chat completion.
#[derive(Debug)]
pub(crate) struct Request {
    /// LoRA adapter; otherwise the base model.
    pub(crate) adapter: Option<usize>,
    pub(crate) body: String,
    /// Byte range of the messages in the body.
    pub(crate) messages: Range<usize>,
    /// Hashes of the complete blocks of prompt and output. Each covers the blocks before it and the adapter.
    pub(crate) block_hashes: Vec<u64>,
    pub(crate) prompt_tokens: usize,
    pub(crate) output_tokens: usize,
    /// Position of the request that the client sends some time after this one ends.
    pub(crate) next: Option<(usize, Duration)>,
}

/// A text that is the same wherever it occurs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text {
    seed: u64,
    tokens: usize,
    /// Bytes per token: about 3 for code and most languages, 4 to 5 for English.
    token_bytes: usize,
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    System,
    User,
    Assistant,
}

// === impl Trace ===

impl Trace {
    pub(crate) fn new() -> Self {
        Self { requests: Vec::new(), arrivals: Vec::new() }
    }

    /// Adds a request that arrives at `time`.
    pub(crate) fn push(&mut self, time: Duration, request: Request) {
        self.arrivals.push((time, self.requests.len()));
        self.requests.push(request);
    }

    /// Adds a request that the client of the last one sends `pause` after its end.
    pub(crate) fn push_next(&mut self, pause: Duration, request: Request) {
        let position = self.requests.len();
        if let Some(last) = self.requests.last_mut() {
            last.next = Some((position, pause));
        }
        self.requests.push(request);
    }
}

// === impl Request ===

impl Request {
    /// Returns a request with these messages, which the engine answers with `output`. `limit` is its `max_tokens`, if any.
    pub(crate) fn new(adapter: Option<usize>, messages: &[(Role, Text)], output: Text, limit: Option<usize>) -> Self {
        let model = adapter.map_or_else(|| "base".to_owned(), adapter_name);
        let mut body = format!(r#"{{"model":"{model}","stream":true,"#);
        if let Some(limit) = limit {
            write!(body, r#""max_tokens":{limit},"#).ok();
        }
        body.push_str(r#""messages":"#);
        let start = body.len();
        for (index, (role, text)) in messages.iter().enumerate() {
            let separator = if index == 0 { '[' } else { ',' };
            write!(body, r#"{separator}{{"role":"{}","content":""#, role.name()).ok();
            text.append_to(&mut body);
            body.push_str(r#""}"#);
        }
        body.push(']');
        let messages_span = start..body.len();
        body.push('}');
        let texts = || messages.iter().map(|(_, text)| *text);
        Self {
            adapter,
            body,
            messages: messages_span,
            block_hashes: block_hashes(adapter, texts().chain([output])),
            prompt_tokens: texts().map(|text| text.tokens).sum(),
            output_tokens: output.tokens,
            next: None,
        }
    }

    /// Returns the messages as JSON.
    pub(crate) fn prompt(&self) -> &str {
        self.body.get(self.messages.clone()).unwrap_or_default()
    }

    /// Returns the model name.
    pub(crate) fn model(&self) -> String {
        self.adapter.map_or_else(|| "base".to_owned(), adapter_name)
    }
}

fn block_hashes(adapter: Option<usize>, texts: impl Iterator<Item = Text>) -> Vec<u64> {
    let (mut hashes, mut hash, mut count) = (Vec::new(), mix(adapter.map_or(0, |adapter| adapter as u64 + 1)), 0);
    for text in texts {
        for token in 0..text.tokens as u64 {
            hash = mix(hash ^ mix(text.seed ^ token));
            count += 1;
            if count % BLOCK_TOKENS == 0 {
                hashes.push(hash);
            }
        }
    }
    hashes
}

/// Returns the model name of an adapter.
pub(crate) fn adapter_name(adapter: usize) -> String {
    format!("adapter-{adapter}")
}

/// Mixes the bits of a number (splitmix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

// === impl Text ===

impl Text {
    /// Returns a new text.
    pub(crate) fn new(tokens: usize, rng: &mut Rng) -> Self {
        Self { seed: rng.u64(..), tokens: tokens.max(1), token_bytes: rng.usize(3..=5) }
    }

    fn append_to(self, body: &mut String) {
        let mut rng = Rng::with_seed(self.seed);
        for _ in 0..self.tokens {
            let mut bits = rng.u32(..);
            for _ in 1..self.token_bytes {
                body.push(char::from(b'a' + (bits % 26) as u8));
                bits /= 26;
            }
            body.push(' ');
        }
    }
}

// === impl Role ===

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

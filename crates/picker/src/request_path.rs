//! Paths of requests, normalized before anything is compared with them.

use std::borrow::Cow;

/// Paths of vLLM outside of `/v1/` that clients may use: they change nothing in the engine. Their bodies contain a model name, and engines
/// compute no prompt for them.
pub(crate) const TOKENIZER_PATHS: [&str; 2] = ["/tokenize", "/detokenize"];

/// Returns the normalized form of a path (RFC 3986 §6.2.2), with one slash instead of several. Returns `None` for `..`: a proxy
/// in front of the gateway may have authorized the path before it was resolved.
pub(crate) fn normalize(path: &str) -> Option<Cow<'_, str>> {
    let is_normal = |segment: &str| !matches!(segment, "" | "." | "..");
    if !path.contains('%') && path.strip_prefix('/').is_some_and(|path| path.split('/').all(is_normal)) {
        return Some(Cow::Borrowed(path));
    }
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let decoded = decode(path, is_unreserved)?;
    let segments = || decoded.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
    if segments().any(|segment| segment == "..") {
        return None;
    }
    let normalized: String = segments().flat_map(|segment| ["/", segment]).collect();
    Some(Cow::Owned(if normalized.is_empty() { "/".to_owned() } else { normalized }))
}

/// Decodes percent-encoded bytes for which `is_decoded` is true, once. Returns `None` if the result is not UTF-8 or an encoding
/// is invalid.
pub(crate) fn decode(text: &str, is_decoded: impl Fn(u8) -> bool) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal)?;
        if is_decoded(byte) {
            decoded.push(byte);
            rest = tail;
        } else {
            decoded.push(b'%');
        }
    }
    String::from_utf8(decoded).ok()
}

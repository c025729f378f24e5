//! Truncation of names, values and messages in findings.

/// Truncates a name or value for use in a message.
pub(super) fn abbreviate(text: &str) -> String {
    truncate(text, 63)
}

/// Truncates text to `max_length` characters and marks the truncation with `…`.
pub(super) fn truncate(text: &str, max_length: usize) -> String {
    match text.char_indices().nth(max_length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

//! Stop strings. Text that may be the beginning of a stop string is buffered.

/// Searches generated text for the stop strings of a request.
pub(crate) struct StopStrings {
    strings: Vec<String>,
    pending: String,
    max_length: usize,
}

/// Result of checking the text of one token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StopCheck {
    /// Text to send, possibly empty.
    Text(String),
    /// The text before a stop string, and the stop string.
    Stopped {
        /// Text to send, possibly empty.
        text: String,
        /// The string that ends generation.
        stop_string: String,
    },
}

// === impl StopStrings ===

impl StopStrings {
    /// Returns a search for `strings`; empty strings are ignored.
    pub(crate) fn new(strings: Vec<String>) -> Self {
        let strings: Vec<String> = strings.into_iter().filter(|text| !text.is_empty()).collect();
        let max_length = strings.iter().map(String::len).max().unwrap_or(0);
        Self { strings, pending: String::new(), max_length }
    }

    /// Appends the text of a token and returns the text that can be sent.
    pub(crate) fn push(&mut self, token: &str) -> StopCheck {
        self.pending.push_str(token);
        if let Some((index, stop_string)) = self.first_match() {
            let text = self.pending[..index].to_owned();
            return StopCheck::Stopped { text, stop_string };
        }
        let buffered = self.max_length.saturating_sub(1).min(self.pending.len());
        let mut end = self.pending.len() - buffered;
        while !self.pending.is_char_boundary(end) {
            end -= 1;
        }
        StopCheck::Text(self.pending.drain(..end).collect())
    }

    /// Removes and returns the buffered text, for when generation finishes without a stop string.
    pub(crate) fn take_pending(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }

    fn first_match(&self) -> Option<(usize, String)> {
        let matches = self.strings.iter().filter_map(|stop| Some((self.pending.find(stop)?, stop)));
        matches.min_by_key(|(index, _)| *index).map(|(index, stop)| (index, stop.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_stop_string_across_two_tokens() {
        let mut stop = StopStrings::new(vec!["o w".to_owned()]);
        let mut sent = String::new();
        for token in ["Hello", " world"] {
            match stop.push(token) {
                StopCheck::Text(text) => sent.push_str(&text),
                StopCheck::Stopped { text, stop_string } => {
                    sent.push_str(&text);
                    assert_eq!((sent.as_str(), stop_string.as_str()), ("Hell", "o w"));
                    return;
                }
            }
        }
        panic!("not stopped: {sent}");
    }

    #[test]
    fn buffers_nothing_without_stop_strings() {
        let mut stop = StopStrings::new(Vec::new());
        assert_eq!(stop.push("größe"), StopCheck::Text("größe".to_owned()));
        assert_eq!(stop.take_pending(), "");
    }

    #[test]
    fn returns_buffered_text_at_the_end() {
        let mut stop = StopStrings::new(vec!["ööö".to_owned()]);
        assert_eq!(stop.push("aöb"), StopCheck::Text(String::new()));
        assert_eq!(stop.take_pending(), "aöb");
    }
}

//! Stop strings: text is held back while it might be the beginning of one.

/// Watches generated text for the request's stop strings.
pub(crate) struct StopStrings {
    strings: Vec<String>,
    held: String,
    longest: usize,
}

/// What became of one token's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Text that may be sent; it can be empty.
    Text(String),
    /// The last text, and the stop string found behind it.
    Stopped { text: String, by: String },
}

impl StopStrings {
    pub(crate) fn new(strings: Vec<String>) -> Self {
        let strings: Vec<String> = strings.into_iter().filter(|text| !text.is_empty()).collect();
        let longest = strings.iter().map(String::len).max().unwrap_or(0);
        Self { strings, held: String::new(), longest }
    }

    pub(crate) fn push(&mut self, piece: &str) -> Watched {
        self.held.push_str(piece);
        if let Some((at, by)) = self.earliest() {
            let text = self.held[..at].to_owned();
            return Watched::Stopped { text, by };
        }
        let keep = self.longest.saturating_sub(1).min(self.held.len());
        let mut cut = self.held.len() - keep;
        while !self.held.is_char_boundary(cut) {
            cut -= 1;
        }
        Watched::Text(self.held.drain(..cut).collect())
    }

    /// What is still held back when generation ends for another reason.
    pub(crate) fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    fn earliest(&self) -> Option<(usize, String)> {
        let found = self.strings.iter().filter_map(|stop| Some((self.held.find(stop)?, stop)));
        found.min_by_key(|(at, _)| *at).map(|(at, stop)| (at, stop.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_string_over_two_tokens_is_found_and_not_sent() {
        let mut stop = StopStrings::new(vec!["o w".to_owned()]);
        let mut sent = String::new();
        for piece in ["Hello", " world"] {
            match stop.push(piece) {
                Watched::Text(text) => sent.push_str(&text),
                Watched::Stopped { text, by } => {
                    sent.push_str(&text);
                    assert_eq!((sent.as_str(), by.as_str()), ("Hell", "o w"));
                    return;
                }
            }
        }
        panic!("not stopped: {sent}");
    }

    #[test]
    fn without_stop_strings_nothing_is_held() {
        let mut stop = StopStrings::new(Vec::new());
        assert_eq!(stop.push("größe"), Watched::Text("größe".to_owned()));
        assert_eq!(stop.rest(), "");
    }

    #[test]
    fn held_text_is_returned_at_the_end() {
        let mut stop = StopStrings::new(vec!["ööö".to_owned()]);
        assert_eq!(stop.push("aöb"), Watched::Text(String::new()));
        assert_eq!(stop.rest(), "aöb");
    }
}

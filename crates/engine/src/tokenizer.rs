//! A simplified tokenizer. A word with its leading space is one token; long words are split; punctuation marks are
//! separate tokens.

use xxhash_rust::xxh64::xxh64;

/// Maximum number of characters of a word in one token; longer words are split.
const MAX_TOKEN_CHARS: usize = 8;

/// Returns the token ids of `text`. Equal tokens have equal ids.
pub(crate) fn encode(text: &str) -> Vec<u32> {
    split(text).map(token_id).collect()
}

/// Returns the id of a token.
pub(crate) fn token_id(token: &str) -> u32 {
    xxh64(token.as_bytes(), 0) as u32
}

fn split(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = token_end(text)?;
        let (token, rest) = text.split_at(end);
        text = rest;
        Some(token)
    })
}

fn token_end(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    let word = if first == ' ' { &text[1..] } else { text };
    let space = text.len() - word.len();
    let letters: usize =
        word.chars().take(MAX_TOKEN_CHARS).take_while(|letter| letter.is_alphanumeric()).map(char::len_utf8).sum();
    Some(if letters == 0 { first.len_utf8() } else { space + letters })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("", &[])]
    #[case("Hello", &["Hello"])]
    #[case("The quick brown fox", &["The", " quick", " brown", " fox"])]
    #[case("a, b.", &["a", ",", " b", "."])]
    #[case("  x", &[" ", " x"])]
    #[case("internationalisation", &["internat", "ionalisa", "tion"])]
    #[case("größe: 5 €", &["größe", ":", " 5", " ", "€"])]
    fn splits_text_into_tokens(#[case] text: &str, #[case] expect: &[&str]) {
        assert_eq!(split(text).collect::<Vec<_>>(), expect);
    }
}

//! A stand-in tokenizer: a word with the space before it is one token, long words are several, marks stand alone.

use xxhash_rust::xxh64::xxh64;

/// Longest word part that is one token, in characters.
const LONGEST: usize = 8;

/// The token ids of `text`; equal pieces get equal ids.
pub(crate) fn encode(text: &str) -> Vec<u32> {
    pieces(text).map(id).collect()
}

/// The id of one piece.
pub(crate) fn id(piece: &str) -> u32 {
    xxh64(piece.as_bytes(), 0) as u32
}

fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = piece_end(text)?;
        let (piece, rest) = text.split_at(end);
        text = rest;
        Some(piece)
    })
}

fn piece_end(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    let word = if first == ' ' { &text[1..] } else { text };
    let skipped = text.len() - word.len();
    let letters: usize =
        word.chars().take(LONGEST).take_while(|letter| letter.is_alphanumeric()).map(char::len_utf8).sum();
    Some(if letters == 0 { first.len_utf8() } else { skipped + letters })
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
    fn text_falls_into_pieces(#[case] text: &str, #[case] expect: &[&str]) {
        assert_eq!(pieces(text).collect::<Vec<_>>(), expect);
    }
}

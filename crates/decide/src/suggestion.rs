//! Suggestions for unknown names.

use std::cmp::Reverse;

use crate::naming::model_size;

/// Returns the known name nearest to `name`: at most a third of its letters differ, also without several common words, or one contains
/// the other. A name that
/// starts with all words of `name` is preferred, then one that contains its words or is contained in them, as with a prefix or
/// a suffix, then one with the same model size, then one with more words in common and less difference between the others; equal names
/// are ordered alphabetically.
#[must_use]
pub fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let size = model_size(name);
    let name: Vec<char> = name.to_lowercase().chars().take(MAX_LENGTH).collect();
    let similar = known.into_iter().filter_map(|known| {
        let letters: Vec<char> = known.to_lowercase().chars().take(MAX_LENGTH).collect();
        let is_substring =
            name.len() > 3 && (contains(&letters, &name) || letters.len() > 3 && contains(&name, &letters));
        let (common, distance) = common_words(&letters, &name);
        let differs_little = |distance: usize| distance * 3 <= name.len();
        let is_similar =
            is_substring || differs_little(edit_distance(&name, &letters)) || common > 1 && differs_little(distance);
        let has_affix = contains_words(&letters, &name) || contains_words(&name, &letters);
        let has_other_size = size.zip(model_size(known)).is_some_and(|(size, other)| size != other);
        is_similar.then_some((
            !starts_with_words(&letters, &name),
            !has_affix,
            has_other_size,
            Reverse(common),
            distance,
            known,
        ))
    });
    similar.min().map(|(.., known)| known)
}

/// Whether `name` starts with all words of `prefix`.
fn starts_with_words(name: &[char], prefix: &[char]) -> bool {
    let rest = name.strip_prefix(prefix).filter(|_| prefix.len() > 3);
    rest.is_some_and(|rest| rest.first().is_none_or(|letter| !letter.is_alphanumeric()))
}

/// Whether `name` contains all words of `part`, next to each other.
fn contains_words(name: &[char], part: &[char]) -> bool {
    let is_boundary = |letter: Option<&char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    part.len() > 3
        && name.windows(part.len()).enumerate().any(|(start, window)| {
            let before = start.checked_sub(1).and_then(|index| name.get(index));
            window == part && is_boundary(before) && is_boundary(name.get(start + part.len()))
        })
}

/// Returns the largest number of words next to each other that both names contain, and the edit distance of the other words.
fn common_words(a: &[char], b: &[char]) -> (usize, usize) {
    let words = |name: &[char]| -> Vec<String> {
        name.split(|letter| !letter.is_alphanumeric()).map(|word| word.iter().collect()).collect()
    };
    let (a, b) = (words(a), words(b));
    let common_from = |start_a: usize, start_b: usize| {
        a.iter().skip(start_a).zip(b.iter().skip(start_b)).take_while(|(a, b)| a == b).count()
    };
    let starts = (0..a.len()).flat_map(|start_a| (0..b.len()).map(move |start_b| (start_a, start_b)));
    let (common, Reverse((start_a, start_b))) =
        starts.map(|(a, b)| (common_from(a, b), Reverse((a, b)))).max().unwrap_or_default();
    let others = |words: &[String], start: usize| -> Vec<char> {
        let others = words.iter().enumerate().filter(|(index, _)| !(start..start + common).contains(index));
        others.flat_map(|(_, word)| word.chars()).collect()
    };
    (common, edit_distance(&others(&a, start_a), &others(&b, start_b)))
}

/// Maximum length of Kubernetes names; longer input is truncated to bound the cost.
const MAX_LENGTH: usize = 253;

fn contains(name: &[char], substring: &[char]) -> bool {
    name.windows(substring.len().max(1)).any(|window| window == substring)
}

/// Returns the Levenshtein distance.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b) {
            let substitution_cost = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = substitution_cost.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("nvidia-h100-80g", Some("nvidia-h100-80gb"))]
    #[case("nvidia-l40", Some("nvidia-l40s"))]
    #[case("nvidia-h100", Some("nvidia-h100-80gb"))]
    #[case("h100", Some("nvidia-h100-80gb"))]
    #[case("NVIDIA-L40S", Some("nvidia-l40s"))]
    #[case("tpu", None)]
    fn suggests_similar_names(#[case] name: &str, #[case] expected: Option<&str>) {
        assert_eq!(nearest_name(name, ["nvidia-a10", "nvidia-a100-40gb", "nvidia-h100-80gb", "nvidia-l40s"]), expected);
    }

    #[rstest]
    #[case::suffix("llama-3-1-70b-instruct-rt", Some("llama-3-1-70b-instruct"))]
    #[case::prefix("srt-llama-3-1-8b-instruct", Some("llama-3-1-8b-instruct"))]
    #[case::both("team-llama-3-1-8b-instruct-production", Some("llama-3-1-8b-instruct"))]
    #[case::missing_suffix("llama-3-1-70b", Some("llama-3-1-70b-instruct"))]
    #[case::missing_prefix("mistral-7b-rt", Some("srt-mistral-7b-rt"))]
    #[case::prefix_for_suffix("mixtral-8x7b-instruct-rt", Some("srt-mixtral-8x7b-instruct"))]
    #[case::other_suffix("deepseek-v3-rt", Some("srt-deepseek-v3"))]
    #[case::size("my-qwen3-8b-fp8-rt", Some("srt-qwen3-8b"))]
    #[case::part_of_a_word("llama-3-1-70b-instructive", Some("llama-3-1-70b-instruct-v2"))]
    fn suggests_names_with_a_prefix_or_suffix(#[case] name: &str, #[case] expected: Option<&str>) {
        let known = [
            "llama-3-1-70b-instruct",
            "llama-3-1-70b-instruct-v2",
            "llama-3-1-8b-instruct",
            "mistral-7b-instruct-rt",
            "srt-mistral-7b-rt",
            "srt-mixtral-8x7b-instruct",
            "srt-mixtral-8x7b-instruct-pd",
            "srt-deepseek-v3",
            "srt-deepseek-v3-pd",
            "srt-qwen3-8b",
            "srt-qwen3-80b-fp8-rt",
        ];
        assert_eq!(nearest_name(name, known), expected);
    }

    #[rstest]
    #[case("", "abc", 3)]
    #[case("kitten", "sitting", 3)]
    #[case("abc", "abc", 0)]
    fn computes_edit_distance(#[case] a: &str, #[case] b: &str, #[case] expected: usize) {
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(edit_distance(&letters(a), &letters(b)), expected);
        assert_eq!(edit_distance(&letters(b), &letters(a)), expected);
    }
}

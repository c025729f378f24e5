//! Suggestions for misspelled names.

/// Returns the candidate with the smallest edit distance to `name`, if it is small relative to the length of `name`. Ties
/// are resolved by name.
pub fn nearest_name<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.to_lowercase().chars().take(MAX_LENGTH).collect();
    let max_distance = (name.len() / 3).clamp(1, 4);
    candidates
        .map(|candidate| (distance(&name, candidate), candidate))
        .filter(|(distance, _)| *distance <= max_distance)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Names are compared up to this length, which bounds the cost for very long input.
const MAX_LENGTH: usize = 64;

/// Returns the case-insensitive edit distance: insertions, deletions, substitutions and transpositions of adjacent
/// characters.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().take(MAX_LENGTH).collect();
    // Computes the optimal string alignment distance, which needs only three rows of the matrix.
    let mut previous_row: Vec<usize> = vec![0; b.len() + 1];
    let mut last_row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substituted = last_row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substituted.min(last_row[j] + 1).min(row[j - 1] + 1);
            let is_transposition = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if is_transposition {
                row[j] = row[j].min(previous_row[j - 2] + 1);
            }
        }
        previous_row = std::mem::replace(&mut last_row, row);
    }
    last_row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("egnine", Some("engine"))]
    #[case("modle", Some("model"))]
    #[case("acceleratorSelecter", Some("acceleratorSelector"))]
    #[case("Runtime", Some("runtime"))]
    #[case("replicas", None)]
    #[case("", None)]
    fn suggests_similar_names(#[case] name: &str, #[case] expect: Option<&str>) {
        let known = ["acceleratorSelector", "engine", "model", "router", "runtime"];
        assert_eq!(nearest_name(name, known.into_iter()), expect);
    }
}

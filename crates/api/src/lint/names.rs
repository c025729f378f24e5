//! The known name nearest to a misspelt one.

/// The candidate with the smallest edit distance, if that is small against the name's length; ties by name.
pub(super) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).clamp(1, 4);
    candidates
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace) between two names, letters of either case being the same.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("egnine", Some("engine"))]
    #[case("acceleratorSelecter", Some("acceleratorSelector"))]
    #[case("Runtime", Some("runtime"))]
    #[case("replicas", None)]
    fn spellings(#[case] name: &str, #[case] expect: Option<&str>) {
        let known = ["acceleratorSelector", "engine", "model", "router", "runtime"];
        assert_eq!(nearest(name, known.into_iter()), expect);
    }
}

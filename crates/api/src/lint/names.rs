//! The known name nearest to a misspelt one.

/// The candidate with the smallest edit distance, if that is small against the name's length; ties by name.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.to_lowercase().chars().take(LONGEST).collect();
    let allowed = (name.len() / 3).clamp(1, 4);
    candidates
        .map(|candidate| (distance(&name, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// No name of ours is longer; what follows is cut, so that a field of a megabyte costs nothing.
const LONGEST: usize = 64;

/// Edits (insert, delete, replace, swap two neighbours) between two names, letters of either case being the same.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().take(LONGEST).collect();
    // Damerau's distance with each letter touched once: three rows of the table suffice.
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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
    fn spellings(#[case] name: &str, #[case] expect: Option<&str>) {
        let known = ["acceleratorSelector", "engine", "model", "router", "runtime"];
        assert_eq!(nearest(name, known.into_iter()), expect);
    }
}

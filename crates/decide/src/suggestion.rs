//! What somebody may have meant by a name that nobody has.

/// The known name closest to `wanted`, if it is close enough to be a slip: at most a third of its letters differ, or one is
/// a part of the other. A name that goes on where `wanted` ends comes first: it is the same, said in full. Equally close
/// ones in order of their names.
#[must_use]
pub fn nearest_name<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.to_lowercase().chars().take(LONGEST).collect();
    let close = known.into_iter().filter_map(|name| {
        let letters: Vec<char> = name.to_lowercase().chars().take(LONGEST).collect();
        let distance = distance(&wanted, &letters);
        let part =
            wanted.len() > 3 && (contains(&letters, &wanted) || letters.len() > 3 && contains(&wanted, &letters));
        (distance * 3 <= wanted.len() || part).then_some((!goes_on(&wanted, &letters), distance, name))
    });
    close.min().map(|(.., name)| name)
}

/// Whether `wanted` is the first words of `name`.
fn goes_on(wanted: &[char], name: &[char]) -> bool {
    let rest = name.strip_prefix(wanted).filter(|_| wanted.len() > 3);
    rest.is_some_and(|rest| rest.first().is_none_or(|letter| !letter.is_alphanumeric()))
}

/// Kubernetes names are no longer; anything beyond is cut before it costs time.
const LONGEST: usize = 253;

fn contains(whole: &[char], part: &[char]) -> bool {
    whole.windows(part.len().max(1)).any(|window| window == part)
}

/// Letters to insert, delete or replace.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
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
    fn a_slip_is_understood(#[case] wanted: &str, #[case] expect: Option<&str>) {
        assert_eq!(nearest_name(wanted, ["nvidia-a10", "nvidia-a100-40gb", "nvidia-h100-80gb", "nvidia-l40s"]), expect);
    }

    #[rstest]
    #[case("", "abc", 3)]
    #[case("kitten", "sitting", 3)]
    #[case("abc", "abc", 0)]
    fn distances(#[case] a: &str, #[case] b: &str, #[case] expect: usize) {
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(distance(&letters(a), &letters(b)), expect);
        assert_eq!(distance(&letters(b), &letters(a)), expect);
    }
}

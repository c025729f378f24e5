//! Names of the controller and of providers, and values of label `dual`.

use apimachinery::fnv1a_32;

/// Field manager of the controller's writes.
pub(crate) const FIELD_MANAGER: &str = "ostler-actuation";

/// Maximum length of a label value. Names of providers fit, so that label `dual` of their requester has the whole name.
const MAX_LABEL: usize = 63;
const INFIX: &str = "-dual-";
const SUFFIX_LENGTH: usize = 5;
/// Characters of the suffix: as in generated names of Kubernetes, without vowels and similar characters.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns the name of the provider that is created for a requester. It depends on the UID, so that a provider that is created
/// twice for the same requester is rejected.
pub(crate) fn provider_name(requester: &str, uid: &str) -> String {
    let longest = MAX_LABEL - INFIX.len() - SUFFIX_LENGTH;
    let name: String = requester.chars().take(longest).collect();
    format!("{}{INFIX}{}", name.trim_end_matches(['-', '.']), suffix(uid))
}

/// Returns a Pod name as a label value: longer names are truncated and end with a hash.
pub(crate) fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL {
        return name.to_owned();
    }
    let start: String = name.chars().take(MAX_LABEL - SUFFIX_LENGTH - 1).collect();
    format!("{}-{}", start.trim_end_matches(['-', '.']), suffix(name))
}

fn suffix(text: &str) -> String {
    let mut hash = fnv1a_32(text.as_bytes());
    let length = u32::try_from(ALPHABET.len()).unwrap_or(u32::MAX);
    let mut next = || {
        let digit = usize::try_from(hash % length).unwrap_or_default();
        hash /= length;
        ALPHABET.get(digit).copied().map_or('x', char::from)
    };
    (0..SUFFIX_LENGTH).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    // spec: DP-27
    #[rstest]
    #[case::short("example-request", "example-request-dual-")]
    #[case::long(&"r".repeat(80), &format!("{}-dual-", "r".repeat(52)))]
    #[case::no_trailing_dash(&format!("{}-x", "r".repeat(51)), &format!("{}-dual-", "r".repeat(51)))]
    fn provider_names_fit_into_a_label(#[case] requester: &str, #[case] prefix: &str) {
        let name = provider_name(requester, "5f0c");
        assert_eq!(name, format!("{prefix}{}", suffix("5f0c")));
        assert!(name.len() <= MAX_LABEL);
        assert_ne!(name, provider_name(requester, "5f0d"), "depends on the UID");
    }

    #[test]
    fn long_names_end_with_a_hash() {
        let [first, second] = ["a", "b"].map(|end| label_value(&format!("{}{end}", "x".repeat(70))));
        assert!(first.len() <= MAX_LABEL && first != second);
        assert_eq!(label_value("short"), "short");
    }
}

//! Order of API versions.

/// Returns the priority of an API version: stable over beta over alpha, then higher numbers
/// (`k8s.io/apimachinery/pkg/version`).
pub(crate) fn version_priority(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse() else { return (0, 0, 0) };
    let stage = &rest[digits..];
    if stage.is_empty() {
        return (3, major, 0);
    }
    let (rank, minor) = match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
        (Some(minor), _) => (2, minor),
        (_, Some(minor)) => (1, minor),
        _ => return (0, 0, 0),
    };
    (rank, major, minor.parse().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_versions_by_stability() {
        let mut versions = vec!["v1alpha1", "v1beta1", "v2", "v1", "v1beta2", "foo"];
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }
}

//! Parser of arguments with the name of a namespace.

/// Checks that the name of a namespace is a DNS label. The API server lists no objects of an invalid one, without an error.
pub(super) fn parse_namespace(name: &str) -> Result<String, String> {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let has_valid_ends = |name: &str| {
        name.bytes()
            .next()
            .zip(name.bytes().last())
            .is_some_and(|(first, last)| is_alphanumeric(first) && is_alphanumeric(last))
    };
    match name.len() <= 63 && has_valid_ends(name) && name.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-') {
        true => Ok(name.to_owned()),
        false => Err("expected lowercase letters, digits and `-`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("team-a", true)]
    #[case("0", true)]
    #[case("", false)]
    #[case("Team", false)]
    #[case("team_a", false)]
    #[case("-team", false)]
    #[case("a,b", false)]
    fn namespaces_are_dns_labels(#[case] name: &str, #[case] expect: bool) {
        assert_eq!(parse_namespace(name).is_ok(), expect);
    }
}

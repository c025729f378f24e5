//! Which names objects, labels and annotations may have, in the words of kube-apiserver.

use crate::resources::Resource;

pub(crate) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
pub(crate) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
pub(crate) const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
pub(crate) const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
pub(crate) const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Why an object of this kind may not have this name.
pub(super) fn bad_name(resource: &Resource, name: &str) -> Option<String> {
    if resource.group == "rbac.authorization.k8s.io" {
        return ["/", "%"].iter().find(|bad| name.contains(**bad)).map(|bad| format!("may not contain '{bad}'"));
    }
    let (longest, rule, well_formed) = match resource.storage.as_str() {
        "namespaces" => (63, LABEL, is_label(name)),
        "services" => (63, LABEL_1035, is_label_1035(name)),
        _ => (253, SUBDOMAIN, name.split('.').all(is_label)),
    };
    if name.len() > longest {
        return Some(format!("must be no more than {longest} characters"));
    }
    (!well_formed).then(|| rule.to_owned())
}

/// Whether it is a label of a domain, as long as it may be.
pub(crate) fn is_label(part: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(inner) && part.ends_with(inner) && part.chars().all(|c| inner(c) || c == '-')
}

/// The same, beginning with a letter.
pub(crate) fn is_label_1035(part: &str) -> bool {
    is_label(part) && !part.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether it may be the last part of a key of labels.
pub(super) fn is_qualified(part: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    part.len() <= 63
        && part.starts_with(end)
        && part.ends_with(end)
        && part.chars().all(|c| end(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::resources::Registry;

    #[rstest]
    #[case::plain("pods", "web-0", true)]
    #[case::dotted("pods", "web.0", true)]
    #[case::upper("pods", "Web", false)]
    #[case::edge("pods", "-web", false)]
    #[case::dotted_namespace("namespaces", "a.b", false)]
    #[case::digit_service("services", "0web", false)]
    #[case::role("clusterroles.rbac.authorization.k8s.io", "system:admin", true)]
    fn names_follow_the_rules_of_their_kind(#[case] resource: &str, #[case] name: &str, #[case] good: bool) {
        let resource = Registry::builtin().by_name(resource).unwrap();
        assert_eq!(bad_name(&resource, name).is_none(), good);
    }
}

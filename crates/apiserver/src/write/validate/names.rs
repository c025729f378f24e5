//! Validation of names and keys, with the messages of kube-apiserver.

use crate::resources::Resource;

/// Message for a name that is not a subdomain (RFC 1123).
pub(crate) const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// Message for a name that is not a label (RFC 1123).
pub(crate) const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// Message for a name that is not a label (RFC 1035).
pub(crate) const LABEL_1035_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
/// Message for the name part of an invalid qualified name.
pub(crate) const QUALIFIED_NAME_MESSAGE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
/// Message for an invalid label value.
pub(crate) const LABEL_VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Message for a name with dots where they are not allowed.
pub(crate) const NO_DOTS_MESSAGE: &str = "must not contain dots";

/// Returns why `name` is invalid for an object of `resource`, or `None` if it is valid.
pub(super) fn name_error(resource: &Resource, name: &str) -> Option<String> {
    if resource.group == "rbac.authorization.k8s.io" {
        return ["/", "%"]
            .iter()
            .find(|sequence| name.contains(**sequence))
            .map(|sequence| format!("may not contain '{sequence}'"));
    }
    let hints = match resource.storage.as_str() {
        "namespaces" | "services" => label_hints(name),
        _ => subdomain_hints(name),
    };
    hints.into_iter().next()
}

/// Returns why `name` is not a valid DNS label, as required for container names. The list is empty if it is valid.
pub(crate) fn label_hints(name: &str) -> Vec<String> {
    let mut hints = Vec::new();
    if name.len() > 63 {
        hints.push("must be no more than 63 characters".to_owned());
    }
    if name.contains('.') && name.split('.').all(is_label) {
        hints.push(NO_DOTS_MESSAGE.to_owned());
    } else if !is_label(name) {
        hints.push(LABEL_MESSAGE.to_owned());
    }
    hints
}

/// Returns why `name` is not a valid DNS subdomain, as required for most object names. The list is empty if it is
/// valid.
pub(crate) fn subdomain_hints(name: &str) -> Vec<String> {
    let mut hints = Vec::new();
    if name.len() > 253 {
        hints.push("must be no more than 253 characters".to_owned());
    }
    if !name.split('.').all(is_label) {
        hints.push(SUBDOMAIN_MESSAGE.to_owned());
    }
    hints
}

/// Returns why `key` is not a valid label or annotation key. The list is empty if it is valid.
pub(crate) fn label_key_hints(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            let message = QUALIFIED_NAME_MESSAGE.replacen("name part", "a valid label key", 1);
            return vec![format!(
                "{message} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut hints: Vec<String> = match prefix {
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => subdomain_hints(prefix).iter().map(|hint| format!("prefix part {hint}")).collect(),
        None => Vec::new(),
    };
    if name.is_empty() {
        hints.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        hints.push("name part must be no more than 63 characters".to_owned());
    }
    if !has_qualified_name_format(name) {
        hints.push(QUALIFIED_NAME_MESSAGE.to_owned());
    }
    hints
}

/// Returns why `name` is not a valid container port name. The list is empty if it is valid.
pub(crate) fn port_name_hints(name: &str) -> Vec<String> {
    let mut hints = Vec::new();
    if name.len() > 15 {
        hints.push("must be no more than 15 characters");
    }
    if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        hints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.contains(|c: char| c.is_ascii_lowercase()) {
        hints.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        hints.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        hints.push("must not begin or end with a hyphen");
    }
    hints.into_iter().map(str::to_owned).collect()
}

/// Returns why `key` is not a valid key of a ConfigMap or Secret. The list is empty if it is valid.
pub(crate) fn config_key_hints(key: &str) -> Vec<String> {
    const CONFIG_KEY_MESSAGE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let mut hints = Vec::new();
    if key.len() > 253 {
        hints.push("must be no more than 253 characters".to_owned());
    }
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        hints.push(CONFIG_KEY_MESSAGE.to_owned());
    }
    match key {
        "." => hints.push("must not be '.'".to_owned()),
        ".." => hints.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => hints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    hints
}

/// Reports whether `value` is a valid label value.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_qualified_name_part(value)
}

/// Reports whether `label` has the format of a DNS label (RFC 1123), without checking the length.
pub(crate) fn is_label(label: &str) -> bool {
    let is_lower_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.starts_with(is_lower_alphanumeric)
        && label.ends_with(is_lower_alphanumeric)
        && label.chars().all(|c| is_lower_alphanumeric(c) || c == '-')
}

/// Reports whether `label` has the format of a DNS label that starts with a letter (RFC 1035).
pub(crate) fn is_label_1035(label: &str) -> bool {
    is_label(label) && !label.starts_with(|c: char| c.is_ascii_digit())
}

/// Reports whether `part` is valid as the part of a qualified name after the optional prefix.
pub(super) fn is_qualified_name_part(part: &str) -> bool {
    part.len() <= 63 && has_qualified_name_format(part)
}

fn has_qualified_name_format(part: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
    part.starts_with(is_alphanumeric)
        && part.ends_with(is_alphanumeric)
        && part.chars().all(|c| is_alphanumeric(c) || matches!(c, '-' | '_' | '.'))
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
    #[case::digit_service("services", "0web", true)]
    #[case::role("clusterroles.rbac.authorization.k8s.io", "system:admin", true)]
    fn validates_names_by_resource(#[case] resource: &str, #[case] name: &str, #[case] is_valid: bool) {
        let resource = Registry::builtin().by_name(resource).unwrap();
        assert_eq!(name_error(&resource, name).is_none(), is_valid);
    }
}

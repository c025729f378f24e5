//! Filters that select Pods by their labels.

use std::collections::BTreeMap;

/// Labels of a Pod.
pub(crate) type Labels = BTreeMap<String, String>;

/// llm-d label for the role of a Pod.
const ROLE_LABEL: &str = "llm-d.ai/role";

/// `fusioninfer.io` label for the component of a Pod.
const COMPONENT_LABEL: &str = "fusioninfer.io/component-type";

/// A filter of candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    /// The label has one of the values.
    Label {
        /// Name of the label.
        label: String,
        /// Accepted values.
        values: Vec<String>,
        /// Whether Pods without the label match.
        allow_missing: bool,
    },
    /// The Pod matches all requirements of a label selector.
    Selector(Vec<Requirement>),
    /// The Pod has the role.
    Role(Role),
}

/// Requirement of a label selector. An entry of `matchLabels` is represented as `In` with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// Name of the label.
    pub(crate) key: String,
    /// Relation of the label to the values.
    pub(crate) operator: Operator,
    /// Values to compare with.
    pub(crate) values: Vec<String>,
}

/// Operators of Kubernetes label selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub(crate) enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has another value.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// Role of a Pod in disaggregated serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Encodes images and other media.
    Encode,
    /// Computes prompts.
    Prefill,
    /// Generates tokens.
    Decode,
}

// === impl Filter ===

impl Filter {
    /// Returns whether a Pod with these labels matches.
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        match self {
            Filter::Label { label, values, allow_missing } => {
                labels.get(label).map_or(*allow_missing, |value| values.contains(value))
            }
            Filter::Selector(requirements) => requirements.iter().all(|requirement| requirement.matches(labels)),
            Filter::Role(role) => role.matches(labels),
        }
    }
}

// === impl Requirement ===

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => is_listed,
            // As in Kubernetes, a Pod without the label matches.
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

// === impl Role ===

impl Role {
    /// Returns whether a Pod has this role. A Pod without a role processes whole requests, as a decoder does.
    fn matches(self, labels: &Labels) -> bool {
        match role(labels) {
            None => self == Role::Decode,
            Some("both") => self != Role::Encode,
            Some(roles) => roles.split('-').any(|role| role == self.name()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Role::Encode => "encode",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        }
    }
}

fn role(labels: &Labels) -> Option<&str> {
    let component = || match labels.get(COMPONENT_LABEL)?.as_str() {
        "prefiller" => Some("prefill"),
        "decoder" => Some("decode"),
        _ => None,
    };
    labels.get(ROLE_LABEL).map(String::as_str).or_else(component)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::no_labels(&[], [false, false, true])]
    #[case::prefill(&[(ROLE_LABEL, "prefill")], [false, true, false])]
    #[case::decode(&[(ROLE_LABEL, "decode")], [false, false, true])]
    #[case::both(&[(ROLE_LABEL, "both")], [false, true, true])]
    #[case::encode_and_prefill(&[(ROLE_LABEL, "encode-prefill")], [true, true, false])]
    #[case::all(&[(ROLE_LABEL, "encode-prefill-decode")], [true, true, true])]
    #[case::prefiller(&[(COMPONENT_LABEL, "prefiller")], [false, true, false])]
    #[case::decoder(&[(COMPONENT_LABEL, "decoder")], [false, false, true])]
    #[case::worker(&[(COMPONENT_LABEL, "worker")], [false, false, true])]
    #[case::role_label_wins(&[(COMPONENT_LABEL, "decoder"), (ROLE_LABEL, "prefill")], [false, true, false])]
    fn matches_roles(#[case] labels: &[(&str, &str)], #[case] expect: [bool; 3]) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let matches = [Role::Encode, Role::Prefill, Role::Decode].map(|role| Filter::Role(role).matches(&labels));
        assert_eq!(matches, expect);
    }

    #[rstest]
    #[case(Operator::In, &["a", "b"], [true, false, false])]
    #[case(Operator::NotIn, &["a"], [false, true, true])]
    #[case(Operator::Exists, &[], [true, true, false])]
    #[case(Operator::DoesNotExist, &[], [false, false, true])]
    fn matches_label_selectors(#[case] operator: Operator, #[case] values: &[&str], #[case] expect: [bool; 3]) {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let filter = Filter::Selector(vec![Requirement { key: "k".to_owned(), operator, values }]);
        let labels = |value: &str| Labels::from([("k".to_owned(), value.to_owned())]);
        assert_eq!([labels("a"), labels("z"), Labels::new()].map(|labels| filter.matches(&labels)), expect);
    }
}

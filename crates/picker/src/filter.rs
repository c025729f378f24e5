//! Which Pods may be chosen, by their labels.

use std::collections::BTreeMap;

/// Labels of a Pod.
pub type Labels = BTreeMap<String, String>;

/// llm-d's label of what a Pod does.
const ROLE: &str = "llm-d.ai/role";

/// The label of Pods that a `fusioninfer.io` service made.
const COMPONENT: &str = "fusioninfer.io/component-type";

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// One label has one of the values.
    Label {
        label: String,
        values: Vec<String>,
        /// Whether Pods without the label pass.
        without: bool,
    },
    /// All requirements of a label selector hold.
    Selector(Vec<Requirement>),
    /// The Pod takes part in a stage of the work.
    Stage(Stage),
}

/// `matchLabels` is `In` with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

/// As Kubernetes' label selectors know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Encode,
    Prefill,
    Decode,
}

impl Filter {
    /// Whether a Pod with these labels may be chosen.
    pub fn passes(&self, labels: &Labels) -> bool {
        match self {
            Filter::Label { label, values, without } => {
                labels.get(label).map_or(*without, |value| values.contains(value))
            }
            Filter::Selector(requirements) => requirements.iter().all(|requirement| requirement.holds(labels)),
            Filter::Stage(stage) => stage.is_of(labels),
        }
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => listed,
            // As for Kubernetes, a Pod without the label is none of the values.
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl Stage {
    /// A Pod whose role nobody states can do a whole request, which is a decoder's part.
    fn is_of(self, labels: &Labels) -> bool {
        match role(labels) {
            None => self == Stage::Decode,
            Some("both") => self != Stage::Encode,
            Some(role) => role.split('-').any(|part| part == self.name()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Stage::Encode => "encode",
            Stage::Prefill => "prefill",
            Stage::Decode => "decode",
        }
    }
}

fn role(labels: &Labels) -> Option<&str> {
    let component = || match labels.get(COMPONENT)?.as_str() {
        "prefiller" => Some("prefill"),
        "decoder" => Some("decode"),
        _ => None,
    };
    labels.get(ROLE).map(String::as_str).or_else(component)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::nothing(&[], [false, false, true])]
    #[case::prefill(&[(ROLE, "prefill")], [false, true, false])]
    #[case::decode(&[(ROLE, "decode")], [false, false, true])]
    #[case::both(&[(ROLE, "both")], [false, true, true])]
    #[case::two(&[(ROLE, "encode-prefill")], [true, true, false])]
    #[case::three(&[(ROLE, "encode-prefill-decode")], [true, true, true])]
    #[case::prefiller(&[(COMPONENT, "prefiller")], [false, true, false])]
    #[case::decoder(&[(COMPONENT, "decoder")], [false, false, true])]
    #[case::worker(&[(COMPONENT, "worker")], [false, false, true])]
    #[case::the_role_counts(&[(COMPONENT, "decoder"), (ROLE, "prefill")], [false, true, false])]
    fn stages(#[case] labels: &[(&str, &str)], #[case] expect: [bool; 3]) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let passes = [Stage::Encode, Stage::Prefill, Stage::Decode].map(|stage| Filter::Stage(stage).passes(&labels));
        assert_eq!(passes, expect);
    }

    #[rstest]
    #[case(Operator::In, &["a", "b"], [true, false, false])]
    #[case(Operator::NotIn, &["a"], [false, true, true])]
    #[case(Operator::Exists, &[], [true, true, false])]
    #[case(Operator::DoesNotExist, &[], [false, false, true])]
    fn selectors(#[case] operator: Operator, #[case] values: &[&str], #[case] expect: [bool; 3]) {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let filter = Filter::Selector(vec![Requirement { key: "k".to_owned(), operator, values }]);
        let with = |value: &str| Labels::from([("k".to_owned(), value.to_owned())]);
        assert_eq!([with("a"), with("z"), Labels::new()].map(|labels| filter.passes(&labels)), expect);
    }
}

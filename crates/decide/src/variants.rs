//! Variants: replica sets of one component on different classes, by request size (seed 000, Story 6). Small prompts run on
//! the cheaper class, large ones on the faster; the gateway routes each request by its prompt size.

use serde::{Deserialize, Serialize};

use crate::demand::Model;
use crate::preference::{ClassPreference, Comparison, ComparisonOperator, PreferenceCondition};

/// A replica set of a component for a range of request sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// The class.
    pub accelerator_class: String,
    /// Accelerators per node of a replica.
    pub accelerators_per_node: u32,
    /// Nodes per replica.
    #[serde(default = "default_nodes", skip_serializing_if = "is_one_node")]
    pub nodes: u32,
    /// Initial number of replicas.
    pub replicas: u32,
    /// Prompt sizes that the variant serves.
    pub request_tokens: TokenRange,
}

/// A range of prompt sizes in tokens with inclusive bounds; an unset bound is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRange {
    /// Minimum number of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// Maximum number of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

// === impl TokenRange ===

impl TokenRange {
    /// Whether the range contains a prompt of `tokens` tokens.
    #[must_use]
    pub fn contains(&self, tokens: u64) -> bool {
        self.min.is_none_or(|min| tokens >= min) && self.max.is_none_or(|max| tokens <= max)
    }

    /// Returns the range for which `comparison` holds; `None` if it is empty.
    pub(crate) fn from_comparison(comparison: Comparison) -> Option<Self> {
        let Comparison { operator, value } = comparison;
        let (min, max) = match operator {
            ComparisonOperator::Less => (None, Some(value.checked_sub(1)?)),
            ComparisonOperator::LessOrEqual => (None, Some(value)),
            ComparisonOperator::Equal => (Some(value), Some(value)),
            ComparisonOperator::GreaterOrEqual => (Some(value), None),
            ComparisonOperator::Greater => (Some(value.checked_add(1)?), None),
        };
        Some(Self { min, max })
    }

    /// Returns the smallest range that contains both ranges.
    fn hull(self, other: Self) -> Self {
        let minimum = |a: Option<u64>, b: Option<u64>| Some(a?.min(b?));
        let maximum = |a: Option<u64>, b: Option<u64>| Some(a?.max(b?));
        Self { min: minimum(self.min, other.min), max: maximum(self.max, other.max) }
    }
}

fn default_nodes() -> u32 {
    1
}

fn is_one_node(nodes: &u32) -> bool {
    *nodes == 1
}

/// Returns the request sizes for which the runtime prefers `class`: those of the `requestSize` conditions, any size if
/// an entry has no such condition, and `None` if no entry applies to the model.
pub(crate) fn request_tokens(
    preferences: &[ClassPreference],
    class: &str,
    model: Option<&Model>,
) -> Option<TokenRange> {
    let entries = preferences.iter().filter(|entry| entry.class == class);
    entries.filter_map(|entry| condition_range(&entry.conditions, model)).reduce(TokenRange::hull)
}

/// Returns the request sizes of ORed conditions. Conditions on the model only determine whether the entry applies.
fn condition_range(conditions: &[PreferenceCondition], model: Option<&Model>) -> Option<TokenRange> {
    if conditions.is_empty() {
        return Some(TokenRange::default());
    }
    let holding_conditions = || conditions.iter().filter(|condition| condition.holds_for(model));
    let ranges = holding_conditions().filter_map(|condition| TokenRange::from_comparison(condition.request_size?));
    let any_size =
        || conditions.iter().all(|condition| condition.request_size.is_none()) && holding_conditions().next().is_some();
    ranges.reduce(TokenRange::hull).or_else(|| any_size().then(TokenRange::default))
}

/// Returns the indices of the ranked classes that become variants, with their ranges; empty unless the selected class is
/// one of them.
pub(crate) fn variant_ranges(
    ranges: impl Iterator<Item = Option<TokenRange>>,
    selected: usize,
) -> Vec<(usize, TokenRange)> {
    let variants = differing_ranges(ranges);
    let has_selected = variants.iter().any(|(index, _)| *index == selected);
    if has_selected { variants } else { Vec::new() }
}

/// Returns the indices of the classes that are preferred for particular request sizes, with their ranges; empty unless
/// the ranges differ.
pub(crate) fn differing_ranges(ranges: impl Iterator<Item = Option<TokenRange>>) -> Vec<(usize, TokenRange)> {
    let ranges: Vec<(usize, TokenRange)> =
        ranges.enumerate().filter_map(|(index, range)| Some((index, range?))).collect();
    let has_different_ranges = ranges.iter().any(|(_, range)| ranges.first().is_some_and(|(_, first)| first != range));
    if has_different_ranges { ranges } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(ComparisonOperator::Less, 2048, None, Some(2047))]
    #[case(ComparisonOperator::LessOrEqual, 2048, None, Some(2048))]
    #[case(ComparisonOperator::Greater, 4096, Some(4097), None)]
    #[case(ComparisonOperator::GreaterOrEqual, 4096, Some(4096), None)]
    #[case(ComparisonOperator::Equal, 7, Some(7), Some(7))]
    fn converts_comparison_to_range(
        #[case] operator: ComparisonOperator,
        #[case] value: u64,
        #[case] min: Option<u64>,
        #[case] max: Option<u64>,
    ) {
        let range = TokenRange::from_comparison(Comparison { operator, value }).unwrap();
        assert_eq!(range, TokenRange { min, max });
        for tokens in [0, 6, 7, 8, 2047, 2048, 2049, 4095, 4096, 4097] {
            assert_eq!(range.contains(tokens), Comparison { operator, value }.holds(tokens), "{tokens}");
        }
    }

    #[test]
    fn range_less_than_zero_is_empty() {
        assert_eq!(TokenRange::from_comparison(Comparison { operator: ComparisonOperator::Less, value: 0 }), None);
    }
}

//! One service over several classes by the size of requests (seed 000, Story 6): small prompts on the cheaper class, large
//! ones on the faster. Each variant is a replica set of its own; the gateway routes by prompt size within the ranges.

use serde::{Deserialize, Serialize};

use crate::demand::Model;
use crate::preference::{ClassPreference, Comparison, ComparisonOperator, PreferenceCondition};

/// One replica set of a component, for requests of some sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    pub accelerator_class: String,
    pub accelerators_per_node: u32,
    #[serde(default = "single", skip_serializing_if = "is_single")]
    pub nodes: u32,
    pub replicas: u32,
    pub request_tokens: TokenRange,
}

fn single() -> u32 {
    1
}

fn is_single(nodes: &u32) -> bool {
    *nodes == 1
}

/// Prompt tokens, both bounds inclusive; an absent bound is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

impl TokenRange {
    #[must_use]
    pub fn contains(&self, tokens: u64) -> bool {
        self.min.is_none_or(|min| tokens >= min) && self.max.is_none_or(|max| tokens <= max)
    }

    /// The sizes for which `comparison` holds; `None` if there are none.
    #[must_use]
    pub fn from_comparison(comparison: Comparison) -> Option<Self> {
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

    /// The smallest range that holds both.
    fn hull(self, other: Self) -> Self {
        let least = |a: Option<u64>, b: Option<u64>| Some(a?.min(b?));
        let most = |a: Option<u64>, b: Option<u64>| Some(a?.max(b?));
        Self { min: least(self.min, other.min), max: most(self.max, other.max) }
    }
}

/// Request sizes that the runtime would send to `class`: what the `requestSize` conditions of its entries say, any size for
/// an entry without one, `None` where no entry applies to the model.
#[must_use]
pub fn request_tokens(preferences: &[ClassPreference], class: &str, model: Option<&Model>) -> Option<TokenRange> {
    let entries = preferences.iter().filter(|entry| entry.class == class);
    entries.filter_map(|entry| sizes(&entry.conditions, model)).reduce(TokenRange::hull)
}

/// Items are ORed. One that speaks of the model only says whether the entry applies, not which requests it is for.
fn sizes(conditions: &[PreferenceCondition], model: Option<&Model>) -> Option<TokenRange> {
    if conditions.is_empty() {
        return Some(TokenRange::default());
    }
    let holding = || conditions.iter().filter(|condition| condition.holds_for(model));
    let stated =
        holding().filter_map(|condition| TokenRange::from_comparison(condition.request_size?)).reduce(TokenRange::hull);
    let any_size = || conditions.iter().all(|condition| condition.request_size.is_none()) && holding().next().is_some();
    stated.or_else(|| any_size().then(TokenRange::default))
}

/// Places of the ranked classes with these sizes that become variants, best first; none unless the class in use is one of
/// them.
#[must_use]
pub fn variant_ranges(sizes: impl Iterator<Item = Option<TokenRange>>, in_use: usize) -> Vec<(usize, TokenRange)> {
    let places = differing_ranges(sizes);
    let used = places.iter().any(|(place, _)| *place == in_use);
    if used { places } else { Vec::new() }
}

/// Places of the classes that are preferred for requests of some size; none unless the sizes differ.
pub(crate) fn differing_ranges(sizes: impl Iterator<Item = Option<TokenRange>>) -> Vec<(usize, TokenRange)> {
    let places: Vec<(usize, TokenRange)> = sizes.enumerate().filter_map(|(place, size)| Some((place, size?))).collect();
    let differ = places.iter().any(|(_, range)| places.first().is_some_and(|(_, first)| first != range));
    if differ { places } else { Vec::new() }
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
    fn bounds(
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
    fn nothing_is_less_than_zero() {
        assert_eq!(TokenRange::from_comparison(Comparison { operator: ComparisonOperator::Less, value: 0 }), None);
    }
}

//! What a runtime says of the classes that it likes, and for which models and requests.

use crate::demand::Model;

/// One entry of a runtime's `preferenceOrder`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassPreference {
    pub class: String,
    /// 0–100.
    pub score: i32,
    /// ORed; empty means always.
    pub conditions: Vec<PreferenceCondition>,
}

/// All comparisons of one list item hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreferenceCondition {
    /// Against the model's parameter count.
    pub model_size: Option<Comparison>,
    /// Against the prompt's tokens: known per request only, so it never decides here.
    pub request_size: Option<Comparison>,
}

/// `<30B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub operator: ComparisonOperator,
    pub value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonOperator {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl Comparison {
    #[must_use]
    pub fn holds(self, value: u64) -> bool {
        let order = value.cmp(&self.value);
        match self.operator {
            ComparisonOperator::Less => order.is_lt(),
            ComparisonOperator::LessOrEqual => order.is_le(),
            ComparisonOperator::Equal => order.is_eq(),
            ComparisonOperator::GreaterOrEqual => order.is_ge(),
            ComparisonOperator::Greater => order.is_gt(),
        }
    }
}

/// A runtime's liking for `class`: the best score among entries whose conditions hold, 0 without one.
#[must_use]
pub fn preference_score(preferences: &[ClassPreference], class: &str, model: Option<&Model>) -> i32 {
    let entries = preferences.iter().filter(|entry| entry.class == class);
    entries.filter(|entry| holds(&entry.conditions, model)).map(|entry| entry.score).max().unwrap_or(0)
}

fn holds(conditions: &[PreferenceCondition], model: Option<&Model>) -> bool {
    conditions.is_empty() || conditions.iter().any(|condition| condition.holds_for(model))
}

impl PreferenceCondition {
    /// As far as the model goes; a model without a size satisfies no comparison.
    #[must_use]
    pub fn holds_for(&self, model: Option<&Model>) -> bool {
        let parameters = model.and_then(|model| model.parameters);
        self.model_size.is_none_or(|comparison| parameters.is_some_and(|parameters| comparison.holds(parameters)))
    }
}

//! Class preferences of a runtime, conditional on the model and the request.

use crate::demand::Model;

/// An entry of a runtime's `preferenceOrder`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassPreference {
    /// Name of the class.
    pub class: String,
    /// Score from 0 to 100; higher is better.
    pub score: i32,
    /// Conditions, at least one of which must hold; an empty list always holds.
    pub conditions: Vec<PreferenceCondition>,
}

/// A condition of a preference; all its comparisons must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreferenceCondition {
    /// Comparison with the model's parameter count.
    pub model_size: Option<Comparison>,
    /// Comparison with the number of prompt tokens. Known only per request, so it does not affect the selection of a
    /// class.
    pub request_size: Option<Comparison>,
}

/// A comparison such as `<30B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The operator.
    pub operator: ComparisonOperator,
    /// The right-hand side.
    pub value: u64,
}

/// Operator of a [`Comparison`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonOperator {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `==` or `=`
    Equal,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
}

/// Returns the runtime's score for `class`: the highest one whose conditions hold, else 0.
pub(crate) fn preference_score(preferences: &[ClassPreference], class: &str, model: Option<&Model>) -> i32 {
    let entries = preferences.iter().filter(|entry| entry.class == class);
    entries.filter(|entry| any_holds(&entry.conditions, model)).map(|entry| entry.score).max().unwrap_or(0)
}

// === impl Comparison ===

impl Comparison {
    /// Whether the comparison holds for `value`.
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

// === impl PreferenceCondition ===

impl PreferenceCondition {
    /// Whether the comparison with the model's size holds. No comparison holds for a model of unknown size.
    #[must_use]
    pub fn holds_for(&self, model: Option<&Model>) -> bool {
        let parameters = model.and_then(|model| model.parameters);
        self.model_size.is_none_or(|comparison| parameters.is_some_and(|parameters| comparison.holds(parameters)))
    }
}

fn any_holds(conditions: &[PreferenceCondition], model: Option<&Model>) -> bool {
    conditions.is_empty() || conditions.iter().any(|condition| condition.holds_for(model))
}

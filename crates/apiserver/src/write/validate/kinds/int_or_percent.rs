//! Validation of `IntOrString` fields that are integers or percentages.

use apimachinery::StatusCause;

use super::field::Field;

const INVALID_PERCENT_MESSAGE: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// Rejects values other than non-negative integers and percentages.
pub(super) fn check_not_negative(field: &Field<'_>) -> Vec<StatusCause> {
    if field.value.is_string() && percent(field).is_none() {
        return vec![field.invalid(INVALID_PERCENT_MESSAGE)];
    }
    field.check_not_negative().into_iter().collect()
}

/// Rejects percentages above 100%.
pub(super) fn check_at_most_100_percent(field: &Field<'_>) -> Option<StatusCause> {
    percent(field).filter(|value| *value > 100).map(|_| field.invalid("must not be greater than 100%"))
}

pub(super) fn is_zero(field: &Field<'_>) -> bool {
    field.number() == Some(0) || percent(field) == Some(0)
}

fn percent(field: &Field<'_>) -> Option<u64> {
    let digits = field.value.as_str()?.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

//! A count, or a share of all in percent.

use apimachinery::status::Cause;

use super::field::Field;

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

pub(super) fn not_negative(field: &Field<'_>) -> Vec<Cause> {
    if field.value.is_string() && percent(field).is_none() {
        return vec![field.invalid(PERCENT)];
    }
    field.not_negative().into_iter().collect()
}

/// A share of more than all.
pub(super) fn not_above_all(field: &Field<'_>) -> Option<Cause> {
    percent(field).filter(|share| *share > 100).map(|_| field.invalid("must not be greater than 100%"))
}

pub(super) fn is_zero(field: &Field<'_>) -> bool {
    field.number() == Some(0) || percent(field) == Some(0)
}

fn percent(field: &Field<'_>) -> Option<u64> {
    let digits = field.value.as_str()?.strip_suffix('%')?;
    digits.chars().all(|c| c.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

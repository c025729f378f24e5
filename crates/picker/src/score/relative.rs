//! Scores relative to the other candidates.

/// Returns linear scores: 1 for the lowest value, 0 for the highest; 1 for all values if they are equal.
pub(super) fn lower_is_better(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
    let range = high - low;
    values.iter().map(|value| if range > 0.0 { (high - value) / range } else { 1.0 }).collect()
}

//! Percentiles.

/// Returns the smallest value that at least this fraction of `values` does not exceed, or NaN without values.
pub(crate) fn percentile(values: &mut [f64], fraction: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * fraction).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

//! Implausible numbers of parameters.

use super::finding::Finding;
use crate::parameter_count::ParameterCount;

/// Smaller parameter counts are implausible: the unit is probably missing.
const MIN_PLAUSIBLE_COUNT: u64 = 1_000;

/// Warns about a small number without a unit, which is read as a parameter count.
pub(super) fn check_unit(path: &str, size: ParameterCount) -> Option<Finding> {
    let ParameterCount(count) = size;
    let unit = if count == 1 { "parameter" } else { "parameters" };
    let finding = || Finding::warning(path, format!("`{count}` without a unit means {count} {unit}"));
    (1..MIN_PLAUSIBLE_COUNT)
        .contains(&count)
        .then(|| finding().with_hint(format!("write `{count}B` for billions of parameters")))
}

//! Models with implausible sizes or invalid versions.

use super::{Finding, runtimes};
use crate::ome::BaseModelSpec;
use crate::parameter_count::ParameterCount;

/// Returns the findings about a model.
pub(super) fn check(model: &BaseModelSpec) -> Vec<Finding> {
    let mut findings = runtimes::versions(model);
    if model.model_parameter_size == Some(ParameterCount(0)) {
        let finding = Finding::error("spec.modelParameterSize", "a model must have more than 0 parameters");
        findings.push(finding.with_hint("omit the field if the size is unknown"));
    }
    findings.extend(model.model_parameter_size.and_then(|size| missing_unit("spec.modelParameterSize", size)));
    findings
}

/// Smaller parameter counts are implausible: the unit is probably missing.
const MIN_PLAUSIBLE_COUNT: u64 = 1_000;

/// Warns about a small number without a unit, which is read as a parameter count.
pub(super) fn missing_unit(path: &str, size: ParameterCount) -> Option<Finding> {
    let ParameterCount(count) = size;
    let unit = if count == 1 { "parameter" } else { "parameters" };
    let finding = || Finding::warning(path, format!("`{count}` without a unit means {count} {unit}"));
    (1..MIN_PLAUSIBLE_COUNT)
        .contains(&count)
        .then(|| finding().with_hint(format!("write `{count}B` for billions of parameters")))
}

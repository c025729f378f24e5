//! Models whose facts cannot be.

use super::{Finding, runtimes};
use crate::ome::BaseModelSpec;
use crate::size::ParameterCount;

/// Findings about one model.
pub(super) fn check(model: &BaseModelSpec) -> Vec<Finding> {
    let mut findings = runtimes::versions(model);
    if model.model_parameter_size == Some(ParameterCount(0)) {
        let finding = Finding::error("spec.modelParameterSize", "no model has 0 parameters");
        findings.push(finding.hint("leave it out if the size is not known"));
    }
    findings.extend(model.model_parameter_size.and_then(|size| without_unit("spec.modelParameterSize", size)));
    findings
}

/// Smaller than any model: billions are meant where `7` is written.
const FEWEST: u64 = 1_000;

/// A plain number is a count of parameters, and this one is a handful.
pub(super) fn without_unit(path: &str, size: ParameterCount) -> Option<Finding> {
    let ParameterCount(count) = size;
    let finding = || Finding::warning(path, format!("{count} parameters: a number without a unit is a plain count"));
    (1..FEWEST).contains(&count).then(|| finding().hint(format!("write `{count}B` if billions are meant")))
}

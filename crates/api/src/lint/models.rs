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
    findings
}

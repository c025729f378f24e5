//! Models with implausible sizes or invalid versions.

use super::finding::Finding;
use super::{model_size, version};
use crate::ome::BaseModelSpec;
use crate::parameter_count::ParameterCount;

/// Returns the findings about a model.
pub(super) fn check(model: &BaseModelSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(version::check(&model.model_format, "spec.modelFormat"));
    findings.extend(version::check(&model.model_framework, "spec.modelFramework"));
    if model.model_parameter_size == Some(ParameterCount(0)) {
        let finding = Finding::error("spec.modelParameterSize", "a model must have more than 0 parameters");
        findings.push(finding.with_hint("omit the field if the size is unknown"));
    }
    findings
        .extend(model.model_parameter_size.and_then(|size| model_size::check_unit("spec.modelParameterSize", size)));
    findings
}

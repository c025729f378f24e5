//! Rules between fields that CEL rules of a CRD cannot express, because the values are quantities in strings.

use super::finding::Finding;
use super::{annotations, classes, http_routes, models, pod_templates, runtimes, use_cases};
use crate::manifest::Document;
use crate::{fusioninfer, inference, ome};

/// Returns the findings about inconsistent fields of an object.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    if (document.api_version(), document.kind()) == (fusioninfer::API_VERSION, "InferenceService") {
        return parse_and_check::<fusioninfer::InferenceService>(document, |service| {
            http_routes::check(&service).into_iter().chain(pod_templates::check(&service)).collect()
        });
    }
    if document.api_version() == inference::API_VERSION {
        return match document.kind() {
            "LLMUseCaseSet" => parse_and_check::<inference::LLMUseCaseSet>(document, |set| {
                use_cases::check(document, &set.spec.pool_ref)
            }),
            "LLMUseCase" => parse_and_check::<inference::LLMUseCase>(document, |use_case| {
                use_cases::check(document, &use_case.spec.pool_ref)
            }),
            _ => Vec::new(),
        };
    }
    if document.api_version() != ome::API_VERSION {
        return Vec::new();
    }
    match document.kind() {
        "ServingRuntime" => parse_and_check::<ome::ServingRuntime>(document, |runtime| runtimes::check(&runtime.spec)),
        "ClusterServingRuntime" => {
            parse_and_check::<ome::ClusterServingRuntime>(document, |runtime| runtimes::check(&runtime.spec))
        }
        "AcceleratorClass" => parse_and_check::<ome::AcceleratorClass>(document, |class| classes::check(&class.spec)),
        "BaseModel" => parse_and_check::<ome::BaseModel>(document, |model| models::check(&model.spec)),
        "ClusterBaseModel" => parse_and_check::<ome::ClusterBaseModel>(document, |model| models::check(&model.spec)),
        "InferenceService" => parse_and_check::<ome::InferenceService>(document, |_| annotations::check(document)),
        _ => Vec::new(),
    }
}

/// Parses the document and returns the findings of `rules`, or the parse error as a finding.
fn parse_and_check<T: serde::de::DeserializeOwned>(
    document: &Document,
    rules: impl FnOnce(T) -> Vec<Finding>,
) -> Vec<Finding> {
    match document.parse::<T>() {
        Ok(resource) => rules(resource),
        Err(error) => {
            let (message, hint) = error
                .cause
                .split_once("; ")
                .map_or((error.cause.as_str(), None), |(message, hint)| (message, Some(hint)));
            let hint = error.hint.or_else(|| hint.map(str::to_owned));
            vec![Finding { hint, ..Finding::error(error.path.unwrap_or_default(), message) }]
        }
    }
}

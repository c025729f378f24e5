//! Rules between fields that CEL in a CRD cannot say, because the values are quantities in text.

use super::{Finding, annotations, classes, models, routes, runtimes, templates};
use crate::manifest::Document;
use crate::{fusioninfer, ome};

/// Findings about an object whose parts contradict each other.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    if (document.api_version(), document.kind()) == (fusioninfer::API_VERSION, "InferenceService") {
        return typed::<fusioninfer::InferenceService>(document, |service| {
            routes::check(&service).into_iter().chain(templates::check(&service)).collect()
        });
    }
    if document.api_version() != ome::API_VERSION {
        return Vec::new();
    }
    match document.kind() {
        "ServingRuntime" => typed::<ome::ServingRuntime>(document, |runtime| runtimes::check(&runtime.spec)),
        "ClusterServingRuntime" => {
            typed::<ome::ClusterServingRuntime>(document, |runtime| runtimes::check(&runtime.spec))
        }
        "AcceleratorClass" => typed::<ome::AcceleratorClass>(document, |class| classes::check(&class.spec)),
        "BaseModel" => typed::<ome::BaseModel>(document, |model| models::check(&model.spec)),
        "ClusterBaseModel" => typed::<ome::ClusterBaseModel>(document, |model| models::check(&model.spec)),
        "InferenceService" => typed::<ome::InferenceService>(document, |_| annotations::check(document)),
        _ => Vec::new(),
    }
}

/// Findings about the typed resource, or why the document is none: sizes and memory are checked by parsing.
fn typed<T: serde::de::DeserializeOwned>(document: &Document, rules: impl FnOnce(T) -> Vec<Finding>) -> Vec<Finding> {
    match document.parse::<T>() {
        Ok(resource) => rules(resource),
        Err(error) => {
            let (what, remedy) =
                error.cause.split_once("; ").map_or((error.cause.as_str(), None), |(a, b)| (a, Some(b)));
            let hint = error.hint.or_else(|| remedy.map(str::to_owned));
            vec![Finding { hint, ..Finding::error(error.path.unwrap_or_default(), what) }]
        }
    }
}

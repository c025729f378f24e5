//! The Pod template of an engine role. Its schema preserves unknown fields, so keys that are reserved for the operator are
//! checked here.

use serde_json::Value;

use super::finding::Finding;
use super::truncate::abbreviate;
use crate::fusioninfer::{ComponentType, InferenceService};

/// Prefixes of label and annotation keys that the operator uses to find Pods.
const RESERVED_PREFIXES: [&str; 2] = ["fusioninfer.io/", "leaderworkerset.sigs.k8s.io/"];

/// Returns the findings about the Pod templates of a role-based service.
pub(super) fn check(service: &InferenceService) -> Vec<Finding> {
    let roles = service.spec.roles.iter().enumerate();
    let engines = roles.filter(|(_, role)| role.component_type != ComponentType::Router);
    let templates = engines.filter_map(|(index, role)| Some((index, role.template.as_ref()?)));
    let finding = |index: usize, (field, key): (&str, &str)| {
        let path = format!("spec.roles[{index}].template.metadata.{field}[{}]", abbreviate(key));
        Finding::error(path, "the prefix of this key is reserved for the operator")
            .with_hint("use a key with another prefix")
    };
    templates
        .flat_map(|(index, template)| reserved_template_keys(template).map(move |key| finding(index, key)))
        .collect()
}

/// Returns the reserved keys in the metadata of a Pod template, each with its field, `labels` or `annotations`.
pub fn reserved_template_keys(template: &Value) -> impl Iterator<Item = (&'static str, &str)> {
    ["labels", "annotations"].into_iter().flat_map(|field| {
        let keys = template["metadata"][field].as_object().into_iter().flat_map(|map| map.keys());
        let is_reserved = |key: &&String| RESERVED_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        keys.filter(is_reserved).map(move |key| (field, key.as_str()))
    })
}

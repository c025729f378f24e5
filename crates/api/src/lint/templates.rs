//! The Pod template of an engine role: its schema is open, so that fields newer than ostler pass; the keys that the
//! operator finds Pods by are looked for here.

use serde_json::Value;

use super::Finding;
use crate::fusioninfer::{ComponentType, InferenceService};

/// Prefixes that a user's pod template may not use: their keys are how pods are found.
const RESERVED: [&str; 2] = ["fusioninfer.io/", "leaderworkerset.sigs.k8s.io/"];

/// Findings about the templates of a role-based service.
pub(super) fn check(service: &InferenceService) -> Vec<Finding> {
    let roles = service.spec.roles.iter().enumerate();
    let engines = roles.filter(|(_, role)| role.component_type != ComponentType::Router);
    let templates = engines.filter_map(|(at, role)| Some((at, role.template.as_ref()?)));
    let finding = |at: usize, (field, key): (&str, &str)| {
        let path = format!("spec.roles[{at}].template.metadata.{field}[{}]", super::short(key));
        Finding::error(path, "the prefix is reserved").hint("use another key; the operator sets those of this prefix")
    };
    templates.flat_map(|(at, template)| reserved_keys(template).map(move |found| finding(at, found))).collect()
}

/// The keys of a template's own metadata that are reserved, each with the field it stands in, `labels` or `annotations`.
pub fn reserved_keys(template: &Value) -> impl Iterator<Item = (&'static str, &str)> {
    ["labels", "annotations"].into_iter().flat_map(|field| {
        let keys = template["metadata"][field].as_object().into_iter().flat_map(|map| map.keys());
        let taken = |key: &&String| RESERVED.iter().any(|prefix| key.starts_with(prefix));
        keys.filter(taken).map(move |key| (field, key.as_str()))
    })
}

//! The service that an object belongs to.

use cluster::{Kind, NamespacedName, controller_of, metadata_field};
use serde_json::Value;

use crate::kinds::{POD_LABELS, SERVICES};

/// Returns kind and name of the service that the labels of a Pod name.
pub(crate) fn service_of_pod(pod: &Value) -> Option<(Kind, NamespacedName)> {
    POD_LABELS.iter().find_map(|(label, kind)| {
        let name = pod["metadata"]["labels"][label].as_str()?;
        Some((*kind, NamespacedName::new(metadata_field(pod, "namespace"), name)))
    })
}

/// Returns kind and name of the service that controls `object`.
pub(crate) fn owning_service(object: &Value) -> Option<(Kind, NamespacedName)> {
    let reference = controller_of(object)?;
    let kind = SERVICES.into_iter().find(|kind| {
        reference["kind"] == kind.kind
            && reference["apiVersion"].as_str().is_some_and(|version| version.starts_with(kind.group))
    })?;
    Some((kind, NamespacedName::new(metadata_field(object, "namespace"), reference["name"].as_str()?)))
}

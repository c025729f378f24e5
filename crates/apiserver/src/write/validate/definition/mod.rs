//! Validation of custom resource definitions (`apiextensions-apiserver/pkg/apis/apiextensions/validation`). The
//! messages and their order are those of kube-apiserver.
//!
//! If a field has the same value in all versions, its errors are reported once, at the top level of the spec. For
//! example, the field path of a schema that all versions share is `spec.validation`.

mod approval;
mod conversion;
mod names;
mod shared_fields;
mod update;
mod version;

use apimachinery::{StatusCause, object};
use serde_json::{Value, json};
use shared_fields::{SharedFields, schema_of};

use crate::resources::definition::versions;
use crate::write::validate::names::{SUBDOMAIN_MESSAGE, is_label};

/// Returns the validation errors of a definition. `current` is the stored definition, or `None` on creation.
pub(super) fn causes(current: Option<&Value>, definition: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let text = |pointer: &str| object::text(definition, pointer);
    let expected = format!("{}.{}", text("/spec/names/plural"), text("/spec/group"));
    if current.is_none() && text("/metadata/name") != expected {
        let hint = "must be spec.names.plural+\".\"+spec.group";
        causes.push(StatusCause::invalid("metadata.name", &json!(text("/metadata/name")), hint));
    }
    spec_causes(definition, &mut causes);
    if let Some(current) = current {
        update::immutable_causes(current, definition, &mut causes);
    }
    update::stored_version_causes(definition, &mut causes);
    approval::check(definition, &mut causes);
    if definition.pointer("/spec/preserveUnknownFields") == Some(&json!(true)) {
        let hint =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(StatusCause::invalid("spec.preserveUnknownFields", &json!(true), hint));
    }
    causes
}

fn spec_causes(definition: &Value, causes: &mut Vec<StatusCause>) {
    let text = |pointer: &str| object::text(definition, pointer);
    group_causes(text("/spec/group"), causes);
    match text("/spec/scope") {
        "" => causes.push(StatusCause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            let supported = ["Cluster", "Namespaced"].map(Value::from);
            causes.push(StatusCause::not_supported("spec.scope", &json!(other), &supported));
        }
    }
    let shared = SharedFields::new(definition);
    if !shared.schema {
        for (index, _) in versions(definition).enumerate().filter(|(_, version)| schema_of(version).is_none()) {
            causes.push(StatusCause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    for (index, version) in versions(definition).enumerate() {
        let field_path = format!("spec.versions[{index}]");
        version::version_causes(version, &field_path, causes);
        version::field_causes(version, shared.inverted(), &field_path, causes);
    }
    shared_fields::version_list_causes(definition, &shared, causes);
    names::required_causes(definition, causes);
    names::format_causes(definition, causes);
    if let Some(first) = versions(definition).next() {
        version::field_causes(first, shared, "spec", causes);
    }
    conversion::check(definition, causes);
}

fn group_causes(group: &str, causes: &mut Vec<StatusCause>) {
    if group.is_empty() {
        causes.push(StatusCause::required("spec.group", ""));
    } else if !group.split('.').all(is_label) {
        causes.push(StatusCause::invalid("spec.group", &json!(group), SUBDOMAIN_MESSAGE));
    } else if !group.contains('.') {
        causes.push(StatusCause::invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
}

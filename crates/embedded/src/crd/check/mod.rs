//! What kube-apiserver refuses of a definition (`apiextensions-apiserver/pkg/apis/apiextensions/validation`), in its
//! words and in its order.
//!
//! What all versions have in common counts as said once, at the top: `spec.validation` is the schema of every version.

mod approval;
mod common;
mod conversion;
mod names;
mod update;
mod version;

use apimachinery::status::Cause;
use common::{Common, schema_of};
use serde_json::{Value, json};

use super::versions;
use crate::object;
use crate::write::validate::names::{SUBDOMAIN, is_label};

/// What is wrong with a definition; `current` is what it was before.
pub(crate) fn causes(current: Option<&Value>, definition: &Value) -> Vec<Cause> {
    let mut found = Vec::new();
    let text = |pointer: &str| object::text(definition, pointer);
    let expected = format!("{}.{}", text("/spec/names/plural"), text("/spec/group"));
    if current.is_none() && text("/metadata/name") != expected {
        let hint = "must be spec.names.plural+\".\"+spec.group";
        found.push(Cause::invalid("metadata.name", &json!(text("/metadata/name")), hint));
    }
    specification(definition, &mut found);
    if let Some(current) = current {
        update::immutable(current, definition, &mut found);
    }
    update::stored(definition, &mut found);
    approval::check(definition, &mut found);
    if definition.pointer("/spec/preserveUnknownFields") == Some(&json!(true)) {
        let hint =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        found.push(Cause::invalid("spec.preserveUnknownFields", &json!(true), hint));
    }
    found
}

fn specification(definition: &Value, found: &mut Vec<Cause>) {
    let text = |pointer: &str| object::text(definition, pointer);
    group(text("/spec/group"), found);
    match text("/spec/scope") {
        "" => found.push(Cause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            let known = ["Cluster", "Namespaced"].map(Value::from);
            found.push(Cause::not_supported("spec.scope", &json!(other), &known));
        }
    }
    let common = Common::of(definition);
    if !common.schema {
        for (index, _) in versions(definition).enumerate().filter(|(_, version)| schema_of(version).is_none()) {
            found.push(Cause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    for (index, version) in versions(definition).enumerate() {
        let at = format!("spec.versions[{index}]");
        version::own(version, &at, found);
        version::parts(version, common.negated(), &at, found);
    }
    common::together(definition, &common, found);
    names::required(definition, found);
    names::well_formed(definition, found);
    if let Some(first) = versions(definition).next() {
        version::parts(first, common, "spec", found);
    }
    conversion::check(definition, found);
}

fn group(group: &str, found: &mut Vec<Cause>) {
    if group.is_empty() {
        found.push(Cause::required("spec.group", ""));
    } else if !group.split('.').all(is_label) {
        found.push(Cause::invalid("spec.group", &json!(group), SUBDOMAIN));
    } else if !group.contains('.') {
        found.push(Cause::invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
}

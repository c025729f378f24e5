//! The configuration of a router's picker, read as the picker that we deploy reads it.

use api::fusioninfer;
use api::lint::Finding;
use api::manifest::Document;
use picker::policy_file;
use serde_json::Value;

/// What the picker does not understand. Never an error: the text is the user's, byte for byte.
#[must_use]
pub fn check(document: &Document) -> Vec<Finding> {
    if (document.api_version(), document.kind()) != (fusioninfer::API_VERSION, "InferenceService") {
        return Vec::new();
    }
    let roles = document.value["spec"]["roles"].as_array().into_iter().flatten().enumerate();
    roles.filter_map(|(at, role)| misread(at, role)).collect()
}

fn misread(at: usize, role: &Value) -> Option<Finding> {
    let text =
        role["endpointPickerConfig"].as_str().filter(|text| role["componentType"] == "router" && !text.is_empty())?;
    let error = policy_file::read(text).err()?;
    let finding = Finding::warning(format!("spec.roles[{at}].endpointPickerConfig"), error.to_string());
    Some(finding.hint("the text is used as it is, and the picker does not start with it"))
}

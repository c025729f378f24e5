//! Converts AdmissionReview requests to responses (`admission.k8s.io/v1`).

use apimachinery::Status;
use serde_json::{Value, json};

use crate::admission::{ObjectLister, ValidationRequest, ValidationResult, validate_admission};

/// Returns the response to an AdmissionReview. A malformed object is allowed here because schema validation rejects it.
#[must_use]
pub(crate) fn review_response(review: &Value, lister: &dyn ObjectLister) -> Value {
    let request = &review["request"];
    let object_field = |field: &str| Some(&request[field]).filter(|object| object.is_object());
    let result = validate_admission(
        &ValidationRequest { object: object_field("object"), old_object: object_field("oldObject") },
        lister,
    );
    let mut response = json!({"uid": request["uid"], "allowed": result.is_allowed()});
    if !result.warnings.is_empty() {
        response["warnings"] = json!(result.warnings);
    }
    if !result.is_allowed() {
        response["status"] = rejection_status(request, &result);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn rejection_status(request: &Value, result: &ValidationResult) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = &request["kind"];
    let kind = format!("{}.{}", text(&kind["kind"]), text(&kind["group"]));
    Status::invalid(&kind, &text(&request["name"]), result.causes()).to_json()
}

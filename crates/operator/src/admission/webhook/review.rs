//! Converts AdmissionReview requests to responses (`admission.k8s.io/v1`).

use apimachinery::Status;
use serde_json::{Value, json};

use crate::admission::object_lister::ObjectLister;
use crate::admission::{ValidationRequest, ValidationResult, validate_admission};

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

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Stores;

    fn runtime(min: &str, max: &str) -> Value {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": "a"}, "spec": {
            "supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "autoSelect": true, "priority": 1}],
            "modelSizeRange": {"min": min, "max": max}, "engineConfig": {"runner": {"image": "i"}}}})
    }

    #[test]
    fn responds_to_admission_reviews() {
        let review = |object: &Value| {
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u1", "name": "a",
                "kind": {"group": "ome.io", "version": "v1beta1", "kind": "ClusterServingRuntime"}, "operation": "CREATE",
                "object": object, "oldObject": null}})
        };
        let lister = Stores::new("operator");
        let response = review_response(&review(&runtime("5B", "9B")), &lister);
        assert_eq!(response["response"], json!({"uid": "u1", "allowed": true}));
        let response = review_response(&review(&runtime("9B", "5B")), &lister);
        assert_eq!(response["response"]["allowed"], false);
        assert_eq!(response["response"]["status"]["code"], 422);
        assert_eq!(
            response["response"]["status"]["message"],
            "ClusterServingRuntime.ome.io \"a\" is invalid: spec.modelSizeRange: min 9B is greater than max 5B, so no model is in the range; swap min and max"
        );
        assert_eq!(review_response(&json!({}), &lister)["response"]["allowed"], true);
    }
}

//! AdmissionReview in, AdmissionReview out (`admission.k8s.io/v1`).

use apimachinery::status::Status;
use serde_json::{Value, json};

use crate::admission::{Request, Verdict, View, review};

/// The answer to one AdmissionReview. What cannot be understood is allowed: the schema has the last word on it.
#[must_use]
pub fn answer(asked: &Value, view: &dyn View) -> Value {
    let request = &asked["request"];
    let given = |field: &str| Some(&request[field]).filter(|object| object.is_object());
    let verdict = review(&Request { object: given("object"), old: given("oldObject") }, view);
    let mut response = json!({"uid": request["uid"], "allowed": verdict.allowed()});
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(verdict.warnings);
    }
    if !verdict.allowed() {
        response["status"] = refusal(request, &verdict);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn refusal(request: &Value, verdict: &Verdict) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = &request["kind"];
    let kind = format!("{}.{}", text(&kind["kind"]), text(&kind["group"]));
    Status::invalid(&kind, &text(&request["name"]), verdict.causes()).to_json()
}

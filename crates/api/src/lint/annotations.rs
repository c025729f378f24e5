//! Annotations that control selection, in the metadata of a service or in its spec (seed 000, Story 6).

use serde_json::Value;

use super::finding::Finding;
use super::metadata;
use crate::manifest::Document;
use crate::ome::{CLASS_ANNOTATION, COST_THRESHOLD_ANNOTATION, STRATEGY_ANNOTATION};

/// Checks the values of ostler annotations.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (pointer, path) in
        [("/metadata/annotations", "metadata.annotations"), ("/spec/annotations", "spec.annotations")]
    {
        let annotations = document.value.pointer(pointer).and_then(Value::as_object);
        for (name, value) in annotations.into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            if let Some((message, hint)) = invalid_value(name, text) {
                findings.push(Finding::error(format!("{path}[{name}]"), message).with_hint(hint));
            }
        }
    }
    findings
}

/// Returns the message and hint for an invalid annotation value.
fn invalid_value(name: &str, text: &str) -> Option<(String, &'static str)> {
    match name {
        CLASS_ANNOTATION if !text.is_empty() && !metadata::is_subdomain(text) => Some((
            format!("`{text}` is not a valid AcceleratorClass name"),
            "use the name of one class, such as `nvidia-h100-80gb`",
        )),
        STRATEGY_ANNOTATION if !["performance", "cost", "balanced"].contains(&text) => {
            Some((format!("unknown strategy `{text}`"), "use one of performance, cost, balanced"))
        }
        COST_THRESHOLD_ANNOTATION if !is_price(text) => {
            Some((format!("`{text}` is not a valid price"), "use dollars per hour and replica, such as \"2.50\""))
        }
        _ => None,
    }
}

fn is_price(text: &str) -> bool {
    let number = text.trim().trim_start_matches('$').parse::<f64>();
    number.is_ok_and(|price| price.is_finite() && price > 0.0)
}

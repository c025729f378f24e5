//! Annotations that steer selection, on a service or, as Story 6 of seed 000 writes them, inside its spec.

use serde_json::Value;

use super::{Finding, metadata};
use crate::manifest::Document;
use crate::ome::{CLASS_ANNOTATION, COST_THRESHOLD_ANNOTATION, STRATEGY_ANNOTATION};

/// Annotations of ours whose value means nothing.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (pointer, path) in
        [("/metadata/annotations", "metadata.annotations"), ("/spec/annotations", "spec.annotations")]
    {
        let stated = document.value.pointer(pointer).and_then(Value::as_object);
        for (name, value) in stated.into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            if let Some((message, hint)) = wrong(name, text) {
                findings.push(Finding::error(format!("{path}[{name}]"), message).hint(hint));
            }
        }
    }
    findings
}

/// What is wrong with an annotation, and what to write.
fn wrong(name: &str, text: &str) -> Option<(String, &'static str)> {
    match name {
        CLASS_ANNOTATION if !text.is_empty() && !metadata::is_subdomain(text) => Some((
            format!("`{text}` is not the name of an AcceleratorClass"),
            "write one name, such as `nvidia-h100-80gb`",
        )),
        STRATEGY_ANNOTATION if !["performance", "cost", "balanced"].contains(&text) => {
            Some((format!("`{text}` is not a strategy"), "write one of performance, cost, balanced"))
        }
        COST_THRESHOLD_ANNOTATION if !is_price(text) => {
            Some((format!("`{text}` is not a price"), "write dollars per hour and replica, such as \"2.50\""))
        }
        _ => None,
    }
}

fn is_price(text: &str) -> bool {
    let number = text.trim().trim_start_matches('$').parse::<f64>();
    number.is_ok_and(|price| price.is_finite() && price > 0.0)
}

//! Validation of the conversion strategy.

use apimachinery::{StatusCause, object};
use serde_json::{Value, json};

/// Validates `spec.conversion`. Conversion webhooks are not supported and therefore rejected.
pub(super) fn check(definition: &Value, causes: &mut Vec<StatusCause>) {
    const CLIENT_CONFIG_FIELD: &str = "spec.conversion.webhookClientConfig";
    const REVIEW_VERSIONS_FIELD: &str = "spec.conversion.conversionReviewVersions";
    let webhook = definition.pointer("/spec/conversion/webhook").and_then(Value::as_object);
    let client_config = webhook.and_then(|webhook| webhook.get("clientConfig")).filter(|config| !config.is_null());
    let review_versions =
        webhook.map(|webhook| object::strings(webhook.get("conversionReviewVersions"))).unwrap_or_default();
    match object::text(definition, "/spec/conversion/strategy") {
        "" => causes.push(StatusCause::required("spec.conversion.strategy", "")),
        "Webhook" if client_config.is_none() || review_versions.is_empty() => {
            if client_config.is_none() {
                causes.push(StatusCause::required(CLIENT_CONFIG_FIELD, "required when strategy is set to Webhook"));
            }
            if review_versions.is_empty() {
                causes.push(StatusCause::required(REVIEW_VERSIONS_FIELD, ""));
            }
        }
        "Webhook" => {
            let cause = StatusCause::not_supported("spec.conversion.strategy", &json!("Webhook"), &[json!("None")]);
            causes.push(cause);
        }
        "None" => {
            let hint = "should not be set when strategy is not set to Webhook";
            causes.extend(client_config.map(|_| StatusCause::forbidden(CLIENT_CONFIG_FIELD, hint)));
            causes.extend(review_versions.first().map(|_| StatusCause::forbidden(REVIEW_VERSIONS_FIELD, hint)));
        }
        other => {
            let supported = ["None", "Webhook"].map(Value::from);
            causes.push(StatusCause::not_supported("spec.conversion.strategy", &json!(other), &supported));
        }
    }
}

//! Validation of the conversion strategy.

use apimachinery::StatusCause;
use serde_json::{Value, json};

use crate::object;

/// Validates `spec.conversion`. Conversion webhooks are not supported and therefore rejected.
pub(super) fn check(definition: &Value, causes: &mut Vec<StatusCause>) {
    const CONFIG: &str = "spec.conversion.webhookClientConfig";
    const REVIEWS: &str = "spec.conversion.conversionReviewVersions";
    let webhook = definition.pointer("/spec/conversion/webhook").and_then(Value::as_object);
    let config = webhook.and_then(|webhook| webhook.get("clientConfig")).filter(|config| !config.is_null());
    let reviews = webhook.map(|webhook| object::strings(webhook.get("conversionReviewVersions"))).unwrap_or_default();
    match object::text(definition, "/spec/conversion/strategy") {
        "" => causes.push(StatusCause::required("spec.conversion.strategy", "")),
        "Webhook" if config.is_none() || reviews.is_empty() => {
            if config.is_none() {
                causes.push(StatusCause::required(CONFIG, "required when strategy is set to Webhook"));
            }
            if reviews.is_empty() {
                causes.push(StatusCause::required(REVIEWS, ""));
            }
        }
        "Webhook" => {
            let cause = StatusCause::not_supported("spec.conversion.strategy", &json!("Webhook"), &[json!("None")]);
            causes.push(cause);
        }
        "None" => {
            let hint = "should not be set when strategy is not set to Webhook";
            causes.extend(config.map(|_| StatusCause::forbidden(CONFIG, hint)));
            causes.extend(reviews.first().map(|_| StatusCause::forbidden(REVIEWS, hint)));
        }
        other => {
            let supported = ["None", "Webhook"].map(Value::from);
            causes.push(StatusCause::not_supported("spec.conversion.strategy", &json!(other), &supported));
        }
    }
}

//! How a definition converts its versions.

use apimachinery::status::Cause;
use serde_json::{Value, json};

use crate::object;

/// Webhooks for conversion are not called here, so that none is taken.
pub(super) fn check(definition: &Value, found: &mut Vec<Cause>) {
    const CONFIG: &str = "spec.conversion.webhookClientConfig";
    const REVIEWS: &str = "spec.conversion.conversionReviewVersions";
    let webhook = definition.pointer("/spec/conversion/webhook").and_then(Value::as_object);
    let config = webhook.and_then(|webhook| webhook.get("clientConfig")).filter(|config| !config.is_null());
    let reviews = webhook.map(|webhook| object::strings(webhook.get("conversionReviewVersions"))).unwrap_or_default();
    match object::text(definition, "/spec/conversion/strategy") {
        "" => found.push(Cause::required("spec.conversion.strategy", "")),
        "Webhook" if config.is_none() || reviews.is_empty() => {
            if config.is_none() {
                found.push(Cause::required(CONFIG, "required when strategy is set to Webhook"));
            }
            if reviews.is_empty() {
                found.push(Cause::required(REVIEWS, ""));
            }
        }
        "Webhook" => {
            let cause = Cause::not_supported("spec.conversion.strategy", &json!("Webhook"), &[json!("None")]);
            found.push(cause);
        }
        "None" => {
            let hint = "should not be set when strategy is not set to Webhook";
            found.extend(config.map(|_| Cause::forbidden(CONFIG, hint)));
            found.extend(reviews.first().map(|_| Cause::forbidden(REVIEWS, hint)));
        }
        other => {
            let known = ["None", "Webhook"].map(Value::from);
            found.push(Cause::not_supported("spec.conversion.strategy", &json!(other), &known));
        }
    }
}

//! Label and field selectors of list, watch and deletecollection requests.

use apimachinery::{FieldSelector, LabelSelector, Status, object};
use serde_json::Value;

use crate::resources::Resource;

/// Conjunction of a label selector and a field selector.
pub(crate) struct SelectionPredicate {
    labels: LabelSelector,
    fields: FieldSelector,
}

// === impl SelectionPredicate ===

impl SelectionPredicate {
    /// Parses the selectors.
    ///
    /// # Errors
    /// 400 for invalid selectors and unsupported fields.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, Status> {
        let labels = LabelSelector::parse(labels)?;
        let fields = FieldSelector::parse(fields)?;
        let is_supported = |field: &str| {
            matches!(field, "metadata.name" | "metadata.namespace")
                || resource.selectable_fields.iter().any(|selectable| selectable == field)
        };
        if let Some(unsupported) = fields.fields().find(|field| !is_supported(field)) {
            // For resources without additional selectable fields, the message lists the supported ones.
            let message = if resource.selectable_fields.is_empty() {
                format!("{unsupported:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {unsupported}")
            };
            return Err(Status::bad_request(message));
        }
        Ok(Self { labels, fields })
    }

    /// Reports whether all objects match.
    pub(crate) fn selects_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Reports whether an object matches both selectors.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.labels.is_empty() || self.labels.matches_object(object))
            && (self.fields.is_empty() || self.fields.matches_with(|field| field_value(object, field)))
    }
}

/// Returns the value of a selectable field. For Events, the selectable field `source` is `source.component`.
fn field_value(object: &Value, field: &str) -> String {
    let pointer = match field {
        "source" => "/source/component".to_owned(),
        _ => format!("/{}", field.replace('.', "/")),
    };
    match object.pointer(&pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        None if field == "spec.unschedulable" || field == "spec.hostNetwork" => "false".to_owned(),
        _ if field == "metadata.namespace" => object::namespace(object).to_owned(),
        _ => String::new(),
    }
}

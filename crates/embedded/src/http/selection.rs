//! Which objects of a collection are meant: selectors of labels and fields.

use apimachinery::selector::{FieldSelector, LabelSelector};
use apimachinery::status::Status;
use serde_json::Value;

use crate::object;
use crate::resources::Resource;

/// What both selectors ask.
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

// === impl Selection ===

impl Selection {
    /// # Errors
    /// 400 for selectors that cannot be read, and for a field that the resource does not select by.
    pub(crate) fn read(resource: &Resource, labels: &str, fields: &str) -> Result<Self, Status> {
        let labels = LabelSelector::parse(labels)?;
        let fields = FieldSelector::parse(fields)?;
        let known = |field: &str| {
            matches!(field, "metadata.name" | "metadata.namespace")
                || resource.selectable.iter().any(|selectable| selectable == field)
        };
        if let Some(unknown) = fields.fields().find(|field| !known(field)) {
            // Kinds with no fields of their own know the two of all metadata, and say so.
            let message = if resource.selectable.is_empty() {
                format!("{unknown:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {unknown}")
            };
            return Err(Status::bad_request(message));
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.labels.is_empty() || self.labels.matches_object(object))
            && (self.fields.is_empty() || self.fields.matches_with(|field| field_text(object, field)))
    }
}

/// The value of a selectable field; an Event's `source` is the component in it.
fn field_text(object: &Value, field: &str) -> String {
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

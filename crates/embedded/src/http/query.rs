//! Query parameters.

use std::collections::BTreeMap;

use apimachinery::selector::{FieldSelector, LabelSelector};
use apimachinery::status::Status;
use axum::extract::Query as Pairs;
use http::Uri;
use serde_json::Value;

use crate::object;
use crate::resources::Resource;
use crate::write::{FieldValidation, Options};

/// Decoded, first occurrence wins.
pub(crate) struct Query(BTreeMap<String, String>);

/// Which objects of a collection are meant.
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

// === impl Query ===

impl Query {
    pub(crate) fn parse(uri: &Uri) -> Result<Self, Status> {
        let Pairs(pairs): Pairs<Vec<(String, String)>> =
            Pairs::try_from_uri(uri).map_err(|error| Status::bad_request(error.to_string()))?;
        let mut values = BTreeMap::new();
        for (name, value) in pairs {
            values.entry(name).or_insert(value);
        }
        Ok(Self(values))
    }

    /// Empty counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Status> {
        let parse = |value: &str| {
            value.parse().map_err(|_| Status::bad_request(format!("invalid value for {name}: {value:?}")))
        };
        self.get(name).map(parse).transpose()
    }

    pub(crate) fn dry_run(&self) -> Result<bool, Status> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                Err(Status::bad_request(format!("dryRun: Unsupported value: {other:?}: supported values: \"All\"")))
            }
        }
    }

    pub(crate) fn write_options(&self, agent: &str) -> Result<Options, Status> {
        let field_validation = match self.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            Some(other) => {
                return Err(Status::bad_request(format!("fieldValidation: Unsupported value: {other:?}")));
            }
        };
        let manager = self.get("fieldManager").unwrap_or(agent).to_owned();
        Ok(Options { manager, field_validation, dry_run: self.dry_run()? })
    }

    /// # Errors
    /// 400 for a field that the resource does not select by.
    pub(crate) fn selection(&self, resource: &Resource) -> Result<Selection, Status> {
        let labels = LabelSelector::parse(self.get("labelSelector").unwrap_or_default())?;
        let fields = FieldSelector::parse(self.get("fieldSelector").unwrap_or_default())?;
        let known = |field: &str| {
            matches!(field, "metadata.name" | "metadata.namespace")
                || resource.selectable.iter().any(|selectable| selectable == field)
        };
        if let Some(unknown) = fields.fields().find(|field| !known(field)) {
            return Err(Status::bad_request(format!("field label not supported: {unknown}")));
        }
        Ok(Selection { labels, fields })
    }
}

// === impl Selection ===

impl Selection {
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

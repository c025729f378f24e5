//! Server-side tables for `kubectl get`.

mod age;
mod autoscaler;
mod builtin;
mod cell;
mod column;
mod event;
mod job;
mod json_path;
mod node;
mod pod;
mod service;
mod storage;
mod workload;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::resources::Resource;
use column::{CellSource, Column};

/// Renders the objects of a resource as a table.
pub(crate) struct Table {
    /// Storage name of the resource, such as `pods`.
    storage: String,
    columns: Vec<Column>,
    now: jiff::Timestamp,
    include: IncludeObjectPolicy,
}

/// Part of the object that each row contains (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObjectPolicy {
    /// Nothing.
    None,
    /// The metadata.
    Metadata,
    /// The complete object.
    Object,
}

// === impl Table ===

impl Table {
    /// Creates a table. Ages are relative to `now`.
    #[must_use]
    pub(crate) fn new(resource: &Resource, now: jiff::Timestamp) -> Self {
        let mut columns = Vec::new();
        if !builtin::has_name_last(&resource.storage) {
            columns.push(Column::name(0));
        }
        if resource.custom && !resource.printer_columns.is_empty() {
            columns.extend(resource.printer_columns.iter().map(Column::from_printer_column));
        } else if resource.custom {
            let path = ".metadata.creationTimestamp".to_owned();
            columns.push(Column {
                cell: CellSource::JsonPath { path, is_date: true },
                ..Column::with_function("Age", "date", 0, |_, _| Value::Null)
            });
        } else {
            columns.extend(builtin::columns(&resource.storage));
        }
        Self { storage: resource.storage.clone(), columns, now, include: IncludeObjectPolicy::Metadata }
    }

    /// Sets the part of the object that each row contains.
    #[must_use]
    pub(crate) fn with_include(self, include: IncludeObjectPolicy) -> Self {
        Self { include, ..self }
    }

    /// Renders a `meta.k8s.io/v1` Table. In a watch, only the first event contains the column definitions.
    #[must_use]
    pub(crate) fn render(&self, objects: &[Arc<Value>], metadata: Value, with_definitions: bool) -> Value {
        let definitions: Vec<Value> = self.columns.iter().map(Column::definition).collect();
        let rows: Vec<Value> = objects.iter().map(|object| self.row(object)).collect();
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": if with_definitions { json!(definitions) } else { Value::Null }, "rows": rows,
        })
    }

    fn row(&self, object: &Value) -> Value {
        let cells: Vec<Value> = self.columns.iter().map(|column| column.cell.evaluate(object, self.now)).collect();
        let included = match self.include {
            IncludeObjectPolicy::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            }),
            IncludeObjectPolicy::Object => object.clone(),
            IncludeObjectPolicy::None => Value::Null,
        };
        let mut row = json!({"cells": cells, "object": included});
        if let Some(conditions) = builtin::conditions(&self.storage, object) {
            row["conditions"] = conditions;
        }
        row
    }
}

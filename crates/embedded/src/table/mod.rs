//! Server-side tables for `kubectl get`.

mod autoscaler;
mod builtin;
mod cell;
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

use crate::object;
use crate::resources::Resource;

/// Printer column of a custom resource definition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PrinterColumn {
    /// Heading.
    pub(crate) name: String,
    /// Type: `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    /// OpenAPI format.
    pub(crate) format: String,
    /// Description.
    pub(crate) description: String,
    /// Columns with a priority above 0 are shown only with `-o wide`.
    pub(crate) priority: i64,
    /// JSONPath of the value, without braces.
    pub(crate) path: String,
}

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
    None,
    Metadata,
    Object,
}

/// Column of a table.
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) priority: i64,
    pub(crate) cell: CellSource,
}

/// How the cells of a column are computed.
pub(crate) enum CellSource {
    Function(fn(&Value, jiff::Timestamp) -> Value),
    JsonPath { path: String, is_date: bool },
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

// === impl Column ===

impl Column {
    pub(crate) fn name(priority: i64) -> Self {
        Self::with_function("Name", "string", priority, |object, _| json!(object::name(object)))
    }

    pub(crate) fn with_function(
        name: &str,
        kind: &str,
        priority: i64,
        cell: fn(&Value, jiff::Timestamp) -> Value,
    ) -> Self {
        Self { name: name.to_owned(), kind: kind.to_owned(), priority, cell: CellSource::Function(cell) }
    }

    fn from_printer_column(column: &PrinterColumn) -> Self {
        Self {
            name: column.name.clone(),
            kind: column.kind.clone(),
            priority: column.priority,
            cell: CellSource::JsonPath { path: column.path.clone(), is_date: column.kind == "date" },
        }
    }

    fn definition(&self) -> Value {
        let format = if self.name == "Name" { "name" } else { "" };
        json!({"name": self.name, "type": self.kind, "format": format, "description": "", "priority": self.priority})
    }
}

// === impl CellSource ===

impl CellSource {
    fn evaluate(&self, object: &Value, now: jiff::Timestamp) -> Value {
        match self {
            Self::Function(function) => function(object, now),
            Self::JsonPath { path, is_date } => match json_path::find(object, path) {
                Some(Value::String(at)) if *is_date => json!(human_age(&at, now)),
                Some(value @ (Value::Object(_) | Value::Array(_))) => json!(value.to_string()),
                Some(value) => value,
                None => Value::Null,
            },
        }
    }
}

/// Formats an age like kubectl (`k8s.io/apimachinery/pkg/util/duration.HumanDuration`).
pub(crate) fn human_age(at: &str, now: jiff::Timestamp) -> String {
    let Ok(at) = at.parse::<jiff::Timestamp>() else { return "<unknown>".to_owned() };
    let seconds = now.as_second() - at.as_second();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let format_units = |major: i64, major_unit: char, minor: i64, minor_unit: char| {
        if minor == 0 { format!("{major}{major_unit}") } else { format!("{major}{major_unit}{minor}{minor_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => format_units(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format_units(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => format_units(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => format_units(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(5, "5s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(125, "2m5s")]
    #[case(601, "10m")]
    #[case(3 * 3600 + 60, "3h1m")]
    #[case(9 * 3600, "9h")]
    #[case(3 * 86400, "3d")]
    fn formats_ages(#[case] seconds: i64, #[case] expected: &str) {
        let now: jiff::Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let at = now - jiff::SignedDuration::from_secs(seconds);
        assert_eq!(human_age(&at.to_string(), now), expected);
    }
}

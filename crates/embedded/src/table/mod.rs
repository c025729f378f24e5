//! What `kubectl get` prints: the server makes the table.

mod autoscaler;
mod builtin;
mod cell;
mod event;
mod job;
mod node;
mod path;
mod pod;
mod service;
mod storage;
mod workload;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object;
use crate::resources::Resource;

/// One column that a definition declares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrinterColumn {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    /// 0 is shown always, more only with `-o wide`.
    pub priority: i64,
    /// kubectl's JSONPath, without braces.
    pub path: String,
}

/// Prints objects of one kind.
pub struct Table {
    /// Where the kind is stored, such as `pods`.
    storage: String,
    columns: Vec<Column>,
    now: jiff::Timestamp,
    include: Include,
}

/// What of each object its row carries along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// One column: its head, and how a cell is made of an object.
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) priority: i64,
    pub(crate) cell: Cell,
}

pub(crate) enum Cell {
    Made(fn(&Value, jiff::Timestamp) -> Value),
    Path { path: String, date: bool },
}

// === impl Table ===

impl Table {
    /// `now` is what ages are measured against.
    #[must_use]
    pub fn new(resource: &Resource, now: jiff::Timestamp) -> Self {
        let mut columns = Vec::new();
        if !builtin::names_last(&resource.storage) {
            columns.push(Column::name(0));
        }
        if resource.custom && !resource.columns.is_empty() {
            columns.extend(resource.columns.iter().map(Column::declared));
        } else if resource.custom {
            let path = ".metadata.creationTimestamp".to_owned();
            columns.push(Column {
                cell: Cell::Path { path, date: true },
                ..Column::made("Age", "date", 0, |_, _| Value::Null)
            });
        } else {
            columns.extend(builtin::columns(&resource.storage));
        }
        Self { storage: resource.storage.clone(), columns, now, include: Include::Metadata }
    }

    /// With more or less of each object along.
    #[must_use]
    pub(crate) fn including(self, include: Include) -> Self {
        Self { include, ..self }
    }

    /// A `meta.k8s.io/v1` Table. The heads are left out of all but the first event of a watch.
    #[must_use]
    pub fn render(&self, objects: &[Arc<Value>], metadata: Value, heads: bool) -> Value {
        let definitions: Vec<Value> = self.columns.iter().map(Column::head).collect();
        let rows: Vec<Value> = objects.iter().map(|object| self.row(object)).collect();
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": if heads { json!(definitions) } else { Value::Null }, "rows": rows,
        })
    }

    fn row(&self, object: &Value) -> Value {
        let cells: Vec<Value> = self.columns.iter().map(|column| column.cell.of(object, self.now)).collect();
        let along = match self.include {
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            }),
            Include::Object => object.clone(),
            Include::Nothing => Value::Null,
        };
        let mut row = json!({"cells": cells, "object": along});
        if let Some(conditions) = builtin::conditions(&self.storage, object) {
            row["conditions"] = conditions;
        }
        row
    }
}

// === impl Column ===

impl Column {
    pub(crate) fn name(priority: i64) -> Self {
        Self::made("Name", "string", priority, |object, _| json!(object::name(object)))
    }

    pub(crate) fn made(name: &str, kind: &str, priority: i64, cell: fn(&Value, jiff::Timestamp) -> Value) -> Self {
        Self { name: name.to_owned(), kind: kind.to_owned(), priority, cell: Cell::Made(cell) }
    }

    fn declared(column: &PrinterColumn) -> Self {
        Self {
            name: column.name.clone(),
            kind: column.kind.clone(),
            priority: column.priority,
            cell: Cell::Path { path: column.path.clone(), date: column.kind == "date" },
        }
    }

    fn head(&self) -> Value {
        let format = if self.name == "Name" { "name" } else { "" };
        json!({"name": self.name, "type": self.kind, "format": format, "description": "", "priority": self.priority})
    }
}

// === impl Cell ===

impl Cell {
    fn of(&self, object: &Value, now: jiff::Timestamp) -> Value {
        match self {
            Self::Made(make) => make(object, now),
            Self::Path { path, date } => match path::find(object, path) {
                Some(Value::String(at)) if *date => json!(since(&at, now)),
                Some(value @ (Value::Object(_) | Value::Array(_))) => json!(value.to_string()),
                Some(value) => value,
                None => Value::Null,
            },
        }
    }
}

/// An age as kubectl shows it (`k8s.io/apimachinery/pkg/util/duration.HumanDuration`).
pub(crate) fn since(at: &str, now: jiff::Timestamp) -> String {
    let Ok(at) = at.parse::<jiff::Timestamp>() else { return "<unknown>".to_owned() };
    let seconds = now.as_second() - at.as_second();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let with = |large: i64, unit: char, small: i64, minor: char| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{minor}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => with(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => with(days / 365, 'y', days % 365, 'd'),
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
    fn ages(#[case] seconds: i64, #[case] expected: &str) {
        let now: jiff::Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let at = now - jiff::SignedDuration::from_secs(seconds);
        assert_eq!(since(&at.to_string(), now), expected);
    }
}

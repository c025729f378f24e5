//! Columns of tables.

use apimachinery::object;
use serde_json::{Value, json};

use super::age::human_age;
use super::json_path;
use crate::resources::PrinterColumn;

/// Column of a table.
pub(crate) struct Column {
    /// Heading.
    pub(crate) name: String,
    /// Type: `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    /// Columns with a priority above 0 are shown only with `-o wide`.
    pub(crate) priority: i64,
    /// How the cells are computed.
    pub(crate) cell: CellSource,
}

/// How the cells of a column are computed.
pub(crate) enum CellSource {
    /// Computed from the object and the current time.
    Function(fn(&Value, jiff::Timestamp) -> Value),
    /// The value at a JSONPath.
    JsonPath {
        /// JSONPath without braces.
        path: String,
        /// Whether the value is a time, of which the age is shown.
        is_date: bool,
    },
}

// === impl Column ===

impl Column {
    /// Returns the name column.
    pub(crate) fn name(priority: i64) -> Self {
        Self::with_function("Name", "string", priority, |object, _| json!(object::name(object)))
    }

    /// Returns a column whose cells are computed from the object and the current time.
    pub(crate) fn with_function(
        name: &str,
        kind: &str,
        priority: i64,
        cell: fn(&Value, jiff::Timestamp) -> Value,
    ) -> Self {
        Self { name: name.to_owned(), kind: kind.to_owned(), priority, cell: CellSource::Function(cell) }
    }

    /// Returns the column of a custom resource definition.
    pub(super) fn from_printer_column(column: &PrinterColumn) -> Self {
        Self {
            name: column.name.clone(),
            kind: column.kind.clone(),
            priority: column.priority,
            cell: CellSource::JsonPath { path: column.path.clone(), is_date: column.kind == "date" },
        }
    }

    /// Returns the entry of `columnDefinitions`.
    pub(super) fn definition(&self) -> Value {
        let format = if self.name == "Name" { "name" } else { "" };
        json!({"name": self.name, "type": self.kind, "format": format, "description": "", "priority": self.priority})
    }
}

// === impl CellSource ===

impl CellSource {
    /// Computes the cell of an object.
    pub(super) fn evaluate(&self, object: &Value, now: jiff::Timestamp) -> Value {
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

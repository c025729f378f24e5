//! What `kubectl get` prints: the server makes the table.

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

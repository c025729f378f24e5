//! Shows the table of services and updates it when the cluster changes.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use cluster::{controller_of, find_condition, generation, metadata_field};
use embedded::{Cluster, Server, TaskStatus, TaskStatuses};
use serde_json::Value;

use crate::output;
use crate::report::service_table::{self, Row};
use crate::report::task_status;

/// Resources of both InferenceService kinds.
pub(crate) const SERVICES: [&str; 2] = ["inferenceservices.ome.io", "inferenceservices.fusioninfer.io"];

/// Resources that configure the gateway, and the condition that reports that the gateway has applied them.
const ROUTE_RESOURCES: [(&str, &str); 2] = [
    ("backendpools.inference.networking.x-k8s.io", "Ready"),
    ("llmusecasesets.inference.networking.x-k8s.io", "Accepted"),
];

/// Names of the objects to wait for.
pub(crate) struct ObjectNames {
    pub services: Vec<String>,
    /// Backend pools and use cases that do not belong to a service.
    pub routes: Vec<String>,
}

/// Prints the table, depending on whether standard error is a terminal.
enum TableOutput {
    /// Redraws the table in place; contains the text of the current table.
    Terminal(String),
    /// Prints a line per state transition; contains the last reported reason of each service and line of each task.
    Lines(BTreeMap<String, String>),
}

// === impl ObjectNames ===

impl ObjectNames {
    /// Returns whether `object` has one of the names, or belongs to one of the services.
    fn includes(&self, object: &Value) -> bool {
        let owner = controller_of(object).and_then(|owner| owner["name"].as_str()).unwrap_or_default();
        self.services.iter().any(|name| name == owner)
            || self.routes.iter().any(|name| name == metadata_field(object, "name"))
    }
}

/// Lists the InferenceServices in the order of the table.
pub(crate) fn services(server: &Server) -> Vec<Arc<Value>> {
    SERVICES.iter().flat_map(|resource| server.list(resource)).collect()
}

/// Shows the table until the services are ready and the gateway has applied all routes of `names`. The final table remains
/// on the output.
pub(crate) async fn until_ready(server: &Server, names: &ObjectNames) {
    let mut changes = server.subscribe();
    let mut output = TableOutput::for_stderr();
    loop {
        let rows = rows(server);
        output.show(&rows, &TaskStatuses::new());
        let ready = names.services.iter().all(|name| rows.iter().any(|row| row.ready && row.name == *name));
        if ready && are_routes_ready(server, names) {
            output.finish(&rows);
            return;
        }
        // Missing a change is harmless, since each iteration reads all services.
        changes.next().await.ok();
    }
}

/// Shows the table, and the background tasks that failed, until the future is dropped.
pub(crate) async fn watch(cluster: &Cluster) {
    let (mut changes, mut statuses) = (cluster.server().subscribe(), cluster.task_statuses());
    let mut output = TableOutput::for_stderr();
    loop {
        let tasks = statuses.borrow_and_update().clone();
        output.show(&rows(cluster.server()), &tasks);
        tokio::select! {
            _ = changes.next() => {}
            _ = statuses.changed() => {}
        }
    }
}

/// Prints a line when a background task fails or is restarted, until the future is dropped.
pub(crate) async fn watch_tasks(cluster: &Cluster) {
    let mut statuses = cluster.task_statuses();
    let mut output = TableOutput::Lines(BTreeMap::new());
    while statuses.changed().await.is_ok() {
        let tasks = statuses.borrow_and_update().clone();
        output.show(&[], &tasks);
    }
}

/// Returns whether the gateway has applied the current generation of all backend pools and use cases of `names`.
fn are_routes_ready(server: &Server, names: &ObjectNames) -> bool {
    ROUTE_RESOURCES.iter().all(|(resource, condition)| {
        let objects = server.list(resource);
        let mut relevant_objects = objects.iter().filter(|object| names.includes(object));
        relevant_objects.all(|object| {
            let condition = find_condition(&object["status"]["conditions"], condition);
            condition.is_some_and(|condition| {
                condition["status"] == "True" && condition["observedGeneration"] == generation(object)
            })
        })
    })
}

fn rows(server: &Server) -> Vec<Row> {
    services(server).iter().map(|service| service_table::row(service)).collect()
}

// === impl TableOutput ===

impl TableOutput {
    fn for_stderr() -> Self {
        if std::io::stderr().is_terminal() { Self::Terminal(String::new()) } else { Self::Lines(BTreeMap::new()) }
    }

    fn show(&mut self, rows: &[Row], tasks: &TaskStatuses) {
        match self {
            Self::Terminal(current) => {
                let failed_tasks = tasks.values().filter_map(task_status::line).map(|line| format!("\n  {line}"));
                let table = indent(&service_table::render(rows)) + &failed_tasks.collect::<String>();
                if table != *current {
                    redraw(&table, current);
                    *current = table;
                }
            }
            Self::Lines(reported) => {
                rows.iter().for_each(|row| report_transition(row, reported));
                tasks.values().for_each(|status| report_task(status, reported));
            }
        }
    }

    /// Prints the final table if standard error is not a terminal.
    fn finish(&self, rows: &[Row]) {
        if let Self::Lines(_) = self {
            output::print_message(&format!("\n{}", indent(&service_table::render(rows))));
        }
    }
}

/// Prints the state of a service if its reason has changed. Messages change too often to report each of them.
fn report_transition(row: &Row, reported: &mut BTreeMap<String, String>) {
    if !row.reason.is_empty() && reported.get(&row.key) != Some(&row.reason) {
        reported.insert(row.key.clone(), row.reason.clone());
        let state = if row.ready { "ready".to_owned() } else { format!("not ready: {}", row.message) };
        output::print_message(&format!("  {}: {state}", row.name));
    }
}

/// Prints the state of a task that failed, if it has changed.
fn report_task(status: &TaskStatus, reported: &mut BTreeMap<String, String>) {
    if let Some(line) = task_status::line(status)
        && reported.get(&*status.name) != Some(&line)
    {
        output::print_message(&format!("  {line}"));
        reported.insert(status.name.clone().into_owned(), line);
    }
}

/// Replaces the previous table on the terminal. Lines that are too long are truncated, not wrapped.
fn redraw(table: &str, previous: &str) {
    let height = previous.lines().count();
    let clear_sequence = if height == 0 { String::new() } else { format!("\x1b[{height}A\x1b[J") };
    writeln!(std::io::stderr().lock(), "{clear_sequence}\x1b[?7l{table}\x1b[?7h").ok();
}

fn indent(table: &str) -> String {
    let mut lines = table.lines().map(|line| format!("            {line}")).collect::<Vec<_>>();
    if let Some(first) = lines.first_mut() {
        first.replace_range(2..10, "services");
    }
    lines.join("\n")
}

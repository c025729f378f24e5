//! Shows the table of services and updates it when the cluster changes.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use api::Document;
use cluster::{controller_of, find_condition, generation, metadata_field};
use embedded::{Cluster, Server, TaskStatus, TaskStatuses};
use serde_json::Value;

use crate::host_runtime::SimulatedImages;
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

/// Identifies a service of a manifest.
pub(crate) struct ServiceKey {
    resource: &'static str,
    namespace: String,
    pub name: String,
}

/// A line below the table.
struct Notice {
    /// What the line is about.
    key: String,
    line: String,
}

/// Prints the table, depending on whether standard error is a terminal.
enum TableOutput {
    /// Redraws the table in place; contains the text of the current table.
    Terminal(String),
    /// Prints a line per state transition; contains the last reported reason of each service and the last line of each notice.
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

// === impl ServiceKey ===

impl ServiceKey {
    /// Returns the key if the document is an InferenceService.
    pub(crate) fn of_document(document: &Document) -> Option<Self> {
        let (group, _) = document.api_version().split_once('/').filter(|_| document.kind() == "InferenceService")?;
        let resource =
            SERVICES.into_iter().find(|resource| resource.strip_prefix("inferenceservices.") == Some(group))?;
        let namespace = document.namespace().unwrap_or("default").to_owned();
        Some(Self { resource, namespace, name: document.name().to_owned() })
    }
}

/// Waits until the operator has processed the services, at most for `limit`, and returns those that it has processed.
pub(crate) async fn until_decided(server: &Server, keys: &[ServiceKey], limit: Duration) -> Vec<Arc<Value>> {
    let services = || keys.iter().filter_map(|key| server.get(key.resource, &key.namespace, &key.name));
    let is_processed = |service: &Arc<Value>| service["status"]["observedGeneration"] == generation(service);
    let mut changes = server.subscribe();
    let all_processed = async {
        while !services().all(|service| is_processed(&service)) {
            // Missing a change is harmless, since each iteration reads all services.
            changes.next().await.ok();
        }
    };
    tokio::time::timeout(limit, all_processed).await.ok();
    services().filter(is_processed).collect()
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
        output.show(&rows, &[]);
        let ready = names.services.iter().all(|name| rows.iter().any(|row| row.ready && row.name == *name));
        if ready && are_routes_ready(server, names) {
            output.finish(&rows);
            return;
        }
        // Missing a change is harmless, since each iteration reads all services.
        changes.next().await.ok();
    }
}

/// Shows the table, the background tasks that failed, and the images that are simulated on the node of this host, until the
/// future is dropped.
pub(crate) async fn watch(cluster: &Cluster, simulated_images: &SimulatedImages) {
    let (mut changes, mut statuses) = (cluster.server().subscribe(), cluster.task_statuses());
    let mut output = TableOutput::for_stderr();
    loop {
        let mut notices = task_notices(&statuses.borrow_and_update());
        notices.extend(simulated_images.list().iter().map(|image| Notice::simulated_image(image)));
        output.show(&rows(cluster.server()), &notices);
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
        let notices = task_notices(&statuses.borrow_and_update());
        output.show(&[], &notices);
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

/// Returns a notice for each task that failed.
fn task_notices(statuses: &TaskStatuses) -> Vec<Notice> {
    let notice =
        |status: &TaskStatus| Some(Notice { key: status.name.clone().into_owned(), line: task_status::line(status)? });
    statuses.values().filter_map(notice).collect()
}

fn rows(server: &Server) -> Vec<Row> {
    services(server).iter().map(|service| service_table::row(service)).collect()
}

// === impl Notice ===

impl Notice {
    fn simulated_image(image: &str) -> Self {
        let line =
            format!("image {image}: simulated, because no program of this host is mapped to it; map one with --config");
        Self { key: format!("image {image}"), line }
    }
}

// === impl TableOutput ===

impl TableOutput {
    fn for_stderr() -> Self {
        if std::io::stderr().is_terminal() { Self::Terminal(String::new()) } else { Self::Lines(BTreeMap::new()) }
    }

    fn show(&mut self, rows: &[Row], notices: &[Notice]) {
        match self {
            Self::Terminal(current) => {
                let notices = notices.iter().map(|notice| format!("\n  {}", notice.line));
                let table = indent(&service_table::render(rows)) + &notices.collect::<String>();
                if table != *current {
                    redraw(&table, current);
                    *current = table;
                }
            }
            Self::Lines(reported) => {
                rows.iter().for_each(|row| report_transition(row, reported));
                notices.iter().for_each(|notice| report_notice(notice, reported));
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

/// Prints a notice if its line has changed.
fn report_notice(notice: &Notice, reported: &mut BTreeMap<String, String>) {
    if reported.get(&notice.key) != Some(&notice.line) {
        output::print_message(&format!("  {}", notice.line));
        reported.insert(notice.key.clone(), notice.line.clone());
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

//! Shows the table of services and updates it when the cluster changes, and messages about background tasks.

mod message_output;
mod task_messages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::Document;
use cluster::{controller_of, find_condition, generation, metadata_field};
use embedded::Server;
use serde_json::Value;

use crate::host_runtime::SimulatedImages;
use crate::report::service_table::{self, Row};

pub(crate) use message_output::MessageOutput;
#[cfg(test)]
pub(crate) use message_output::tests::captured_output;
pub(crate) use task_messages::{TaskGroup, watch_tasks};

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
    pub namespace: String,
    pub name: String,
}

/// Shows the services, depending on whether the output is a terminal.
struct ServiceProgress<'a> {
    output: &'a MessageOutput,
    /// The last printed reason of each service, if the output is not a terminal.
    printed: BTreeMap<String, String>,
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
pub(crate) async fn until_ready(server: &Server, names: &ObjectNames, output: &MessageOutput) {
    let mut changes = server.subscribe();
    let mut progress = ServiceProgress::new(output);
    loop {
        let rows = rows(server);
        progress.show(&rows);
        let ready = names.services.iter().all(|name| rows.iter().any(|row| row.ready && row.name == *name));
        if ready && are_routes_ready(server, names) {
            progress.finish(&rows);
            return;
        }
        // Missing a change is harmless, since each iteration reads all services.
        changes.next().await.ok();
    }
}

/// Shows the table, and a message for each image that is simulated on the node of this host. Never returns.
pub(crate) async fn watch(server: &Server, simulated_images: &SimulatedImages, output: &MessageOutput) {
    let mut changes = server.subscribe();
    let mut progress = ServiceProgress::new(output);
    let mut printed_images = BTreeSet::new();
    loop {
        for image in simulated_images.list() {
            if !printed_images.contains(&image) {
                output.print(&format!(
                    "  image {image}: simulated, because no program of this host is mapped to it; map one with --config"
                ));
                printed_images.insert(image);
            }
        }
        progress.show(&rows(server));
        changes.next().await.ok();
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

// === impl ServiceProgress ===

impl<'a> ServiceProgress<'a> {
    fn new(output: &'a MessageOutput) -> Self {
        Self { output, printed: BTreeMap::new() }
    }

    /// Updates the table in place, or prints a line per state transition.
    fn show(&mut self, rows: &[Row]) {
        if self.output.is_terminal() {
            self.output.show_table(&indent(&service_table::render(rows)));
        } else {
            rows.iter().for_each(|row| self.print_transition(row));
        }
    }

    /// Prints the state of a service if its reason has changed. Messages change too often to print each of them.
    fn print_transition(&mut self, row: &Row) {
        if !row.reason.is_empty() && self.printed.get(&row.key) != Some(&row.reason) {
            self.printed.insert(row.key.clone(), row.reason.clone());
            let state = if row.ready { "ready".to_owned() } else { format!("not ready: {}", row.message) };
            self.output.print(&format!("  {}: {state}", row.name));
        }
    }

    /// Prints the final table if the output is not a terminal.
    fn finish(&self, rows: &[Row]) {
        if self.output.is_terminal() {
            self.output.end_table();
        } else {
            self.output.print(&format!("\n{}", indent(&service_table::render(rows))));
        }
    }
}

fn indent(table: &str) -> String {
    let mut lines = table.lines().map(|line| format!("            {line}")).collect::<Vec<_>>();
    if let Some(first) = lines.first_mut() {
        first.replace_range(2..10, "services");
    }
    lines.join("\n")
}

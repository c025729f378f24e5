//! The live table of services, redrawn when the cluster changes.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use cluster::conditions;
use cluster::object::{controller, generation, meta};
use embedded::Server;
use serde_json::Value;

use crate::output;
use crate::report::fleet::{self, Row};

/// Both kinds of InferenceService.
pub(crate) const SERVICES: [&str; 2] = ["inferenceservices.ome.io", "inferenceservices.fusioninfer.io"];

/// What the gateway goes by, and the condition in which it says so.
const ROUTES: [(&str, &str); 2] = [
    ("backendpools.inference.networking.x-k8s.io", "Ready"),
    ("llmusecasesets.inference.networking.x-k8s.io", "Accepted"),
];

/// What is waited for.
pub(crate) struct Names {
    pub services: Vec<String>,
    /// Of pools and use cases beside them.
    pub others: Vec<String>,
}

impl Names {
    fn concern(&self, object: &Value) -> bool {
        let maker = controller(object).and_then(|maker| maker["name"].as_str()).unwrap_or_default();
        self.services.iter().any(|name| name == maker) || self.others.iter().any(|name| name == meta(object, "name"))
    }
}

/// Every InferenceService, in the order of the table.
pub(crate) fn services(server: &Server) -> Vec<Arc<Value>> {
    SERVICES.iter().flat_map(|resource| server.list(resource)).collect()
}

/// Shows the table until the services called `names` are ready, and the gateway knows where requests for whatever is
/// called so go; the last one stays on the screen.
pub(crate) async fn until_ready(server: &Server, names: &Names) {
    let mut changes = server.subscribe();
    let mut screen = Screen::of_stderr();
    loop {
        let rows = rows(server);
        screen.show(&rows);
        let ready = names.services.iter().all(|name| rows.iter().any(|row| row.ready && row.name == *name));
        if ready && routed(server, names) {
            screen.finish(&rows);
            return;
        }
        // Lagging is no loss: the next look reads everything again.
        changes.next().await.ok();
    }
}

/// Shows the table for ever.
pub(crate) async fn follow(server: &Server) {
    let mut changes = server.subscribe();
    let mut screen = Screen::of_stderr();
    loop {
        screen.show(&rows(server));
        changes.next().await.ok();
    }
}

/// Pools and use cases tell by a condition that the gateway goes by them as they are now: those called so, and those that
/// services called so have made.
fn routed(server: &Server, names: &Names) -> bool {
    ROUTES.iter().all(|(resource, condition)| {
        let objects = server.list(resource);
        let mut concerned = objects.iter().filter(|object| names.concern(object));
        concerned.all(|object| {
            let told = conditions::find(&object["status"]["conditions"], condition);
            told.is_some_and(|told| told["status"] == "True" && told["observedGeneration"] == generation(object))
        })
    })
}

fn rows(server: &Server) -> Vec<Row> {
    services(server).iter().map(|service| fleet::row(service)).collect()
}

/// Where the table goes, and what stands there.
enum Screen {
    /// Drawn in place: the text that stands there.
    Terminal(String),
    /// One line per service that turned: what was last said of each.
    Lines(BTreeMap<String, String>),
}

impl Screen {
    fn of_stderr() -> Self {
        if std::io::stderr().is_terminal() { Self::Terminal(String::new()) } else { Self::Lines(BTreeMap::new()) }
    }

    fn show(&mut self, rows: &[Row]) {
        match self {
            Self::Terminal(drawn) => {
                let table = indent(&fleet::render(rows));
                if table != *drawn {
                    redraw(&table, drawn);
                    *drawn = table;
                }
            }
            Self::Lines(said) => rows.iter().for_each(|row| say(row, said)),
        }
    }

    /// A log keeps the table once.
    fn finish(&self, rows: &[Row]) {
        if let Self::Lines(_) = self {
            output::tell(&format!("\n{}", indent(&fleet::render(rows))));
        }
    }
}

/// A message that changes from second to second is one state: its reason's.
fn say(row: &Row, said: &mut BTreeMap<String, String>) {
    if !row.reason.is_empty() && said.get(&row.key) != Some(&row.reason) {
        said.insert(row.key.clone(), row.reason.clone());
        let state = if row.ready { "ready".to_owned() } else { format!("not ready: {}", row.why_not) };
        output::tell(&format!("  {}: {state}", row.name));
    }
}

/// Up over the old table, then clear to the end of the screen; a line that is too wide is cut, not wrapped.
fn redraw(table: &str, before: &str) {
    let up = before.lines().count();
    let over = if up == 0 { String::new() } else { format!("\x1b[{up}A\x1b[J") };
    writeln!(std::io::stderr().lock(), "{over}\x1b[?7l{table}\x1b[?7h").ok();
}

fn indent(table: &str) -> String {
    let mut lines = table.lines().map(|line| format!("            {line}")).collect::<Vec<_>>();
    if let Some(first) = lines.first_mut() {
        first.replace_range(2..10, "services");
    }
    lines.join("\n")
}

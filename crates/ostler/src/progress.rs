//! The live table of services, redrawn when the cluster changes.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use embedded::Server;
use serde_json::Value;

use crate::report::fleet::{self, Row};

/// Both kinds of InferenceService.
pub(crate) const SERVICES: [&str; 2] = ["inferenceservices.ome.io", "inferenceservices.fusioninfer.io"];

/// Every InferenceService, in the order of the table.
pub(crate) fn services(server: &Server) -> Vec<Arc<Value>> {
    SERVICES.iter().flat_map(|resource| server.list(resource)).collect()
}

/// Redraws the table until every service is ready. On a terminal in place; elsewhere only when it changed.
pub(crate) async fn until_ready(server: &Server) {
    let mut changes = server.subscribe();
    let mut drawn = String::new();
    loop {
        let rows: Vec<Row> = services(server).iter().map(|service| fleet::row(service)).collect();
        let table = indent(&fleet::render(&rows));
        if table != drawn {
            draw(&table, &drawn);
            drawn = table;
        }
        if !rows.is_empty() && rows.iter().all(|row| row.ready) {
            return;
        }
        // Lagging is no loss: the next look reads everything again.
        changes.next().await.ok();
    }
}

fn draw(table: &str, before: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() && !before.is_empty() {
        // Up over the old table, then clear to the end of the screen.
        write!(err, "\x1b[{}A\x1b[J", before.lines().count()).ok();
    }
    writeln!(err, "{table}").ok();
}

fn indent(table: &str) -> String {
    let mut lines = table.lines().map(|line| format!("            {line}")).collect::<Vec<_>>();
    if let Some(first) = lines.first_mut() {
        first.replace_range(2..10, "services");
    }
    lines.join("\n")
}

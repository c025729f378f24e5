//! `ostler up --demo`: sample services and a request, with the reasons for its routing.

pub(crate) mod actuation;
mod request;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::{Document, parse_manifest};

use crate::apply;
use crate::local_cluster::LocalCluster;
use crate::progress::{self, MessageOutput, ObjectNames};
use crate::report::demo::{DemoOutcome, ServiceOutcome};
use request::{millis, send_request};

const MODEL: &str = "chat";
/// Length of the response in tokens.
const MAX_TOKENS: u32 = 48;

/// Maximum duration of the request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the sample manifests.
fn manifests() -> Result<Vec<Document>> {
    Ok(parse_manifest("demo/manifests.yaml", include_str!("manifests.yaml"))?)
}

/// Applies the sample manifests, and waits until the services are ready and the gateway serves them.
pub(crate) async fn deploy(local_cluster: &LocalCluster, output: &MessageOutput) -> Result<()> {
    let manifests = manifests()?;
    apply::documents(&local_cluster.client, &manifests).await?;
    let (services, routes) = manifests.iter().partition::<Vec<_>, _>(|document| document.kind() == "InferenceService");
    let [services, routes] =
        [services, routes].map(|documents| documents.iter().map(|document| document.name().to_owned()).collect());
    progress::until_ready(local_cluster.cluster.server(), &ObjectNames { services, routes }, output).await;
    Ok(())
}

/// Sends the request through the gateway and collects the decisions of services and gateway.
pub(crate) async fn run(local_cluster: &LocalCluster, start_time: Instant) -> Result<DemoOutcome> {
    let gateway = format!("http://{}", local_cluster.gateway);
    let response = tokio::time::timeout(REQUEST_TIMEOUT, send_request(&gateway, MODEL, MAX_TOKENS)).await;
    let response = response.unwrap_or_else(|_| Err(anyhow::anyhow!("the gateway did not respond within 10 min")));
    let (request, first_token) = response.context("request of the demo")?;
    Ok(DemoOutcome {
        services: progress::services(local_cluster.cluster.server())
            .iter()
            .map(|service| ServiceOutcome::from_service(service))
            .collect(),
        request,
        start_to_first_token_ms: millis(start_time, first_token),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_pass_lint() {
        for document in manifests().unwrap() {
            assert_eq!(api::lint_document(&document), [], "{} {}", document.kind(), document.name());
        }
    }
}

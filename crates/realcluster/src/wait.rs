//! Waits for a state of objects with a watch.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;

use crate::process::TIMEOUT_SECONDS;

/// Waits until `condition` holds for all objects of `api`, by name, and returns them. `description` names the condition in errors.
///
/// # Errors
/// The wait timed out; the error contains the last observed state.
pub async fn wait_until(
    description: &str,
    api: Api<DynamicObject>,
    condition: impl Fn(&BTreeMap<String, Value>) -> bool,
) -> Result<BTreeMap<String, Value>> {
    let mut state = BTreeMap::new();
    let deadline = Duration::from_secs(TIMEOUT_SECONDS);
    match tokio::time::timeout(deadline, watch_until(&mut state, api, condition)).await {
        Ok(result) => result.map(|()| state),
        Err(_) => bail!(
            "timed out waiting for {description}; last observed state: {}",
            serde_json::to_string(&state).context("failed to serialize the state")?
        ),
    }
}

async fn watch_until(
    state: &mut BTreeMap<String, Value>,
    api: Api<DynamicObject>,
    condition: impl Fn(&BTreeMap<String, Value>) -> bool,
) -> Result<()> {
    let mut events = pin!(watcher(api, watcher::Config::default()));
    let mut is_listed = false;
    while let Some(event) = events.next().await {
        match event {
            // The state is incomplete until the initial list is complete.
            Ok(Event::Init) => {
                is_listed = false;
                state.clear();
            }
            Ok(Event::InitApply(mut object) | Event::Apply(mut object)) => {
                object.metadata.managed_fields = None;
                state.insert(object.metadata.name.clone().unwrap_or_default(), serde_json::to_value(object)?);
            }
            Ok(Event::Delete(object)) => {
                state.remove(object.metadata.name.as_deref().unwrap_or_default());
            }
            Ok(Event::InitDone) => is_listed = true,
            // The kind may not be served, or the connection failed: keep the last state and retry.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        }
        if is_listed && condition(state) {
            return Ok(());
        }
    }
    bail!("the watch ended unexpectedly")
}

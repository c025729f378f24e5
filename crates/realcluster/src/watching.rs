//! Waiting for objects by a watch.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;

use crate::process::SECONDS;

/// The first state of all objects behind `api` (by name) for which `holds`.
///
/// # Errors
/// It does not come: the last state is shown.
pub async fn until(
    what: &str,
    api: Api<DynamicObject>,
    holds: impl Fn(&BTreeMap<String, Value>) -> bool,
) -> Result<BTreeMap<String, Value>> {
    let mut state = BTreeMap::new();
    let deadline = Duration::from_secs(SECONDS);
    match tokio::time::timeout(deadline, follow(&mut state, api, holds)).await {
        Ok(reached) => reached.map(|()| state),
        Err(_) => bail!("{what} does not come; last: {}", serde_json::to_string(&state).context("state")?),
    }
}

async fn follow(
    state: &mut BTreeMap<String, Value>,
    api: Api<DynamicObject>,
    holds: impl Fn(&BTreeMap<String, Value>) -> bool,
) -> Result<()> {
    let mut events = pin!(watcher(api, watcher::Config::default()));
    let mut listed = false;
    while let Some(event) = events.next().await {
        match event {
            // From here to the end of the list the state is half a state.
            Ok(Event::Init) => {
                listed = false;
                state.clear();
            }
            Ok(Event::InitApply(mut object) | Event::Apply(mut object)) => {
                object.metadata.managed_fields = None;
                state.insert(object.metadata.name.clone().unwrap_or_default(), serde_json::to_value(object)?);
            }
            Ok(Event::Delete(object)) => {
                state.remove(object.metadata.name.as_deref().unwrap_or_default());
            }
            Ok(Event::InitDone) => listed = true,
            // The kind may not be served yet, or no more, or a connection broke: nothing is known that was not before.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        }
        if listed && holds(state) {
            return Ok(());
        }
    }
    bail!("the watch ended")
}

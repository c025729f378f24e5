//! The instances of the launcher and their changes. Nothing in this module performs I/O.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

use super::config::InstanceConfig;
use super::error::LauncherError;
use super::history::History;

/// Status of an instance. The deployed launcher has no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum InstanceStatus {
    /// At least one of its processes runs, also while the instance is being deleted.
    Running,
    /// Its processes have ended, but the instance was not deleted.
    Stopped,
}

/// State of an instance, as the REST API returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct InstanceState {
    pub(super) status: InstanceStatus,
    #[serde(rename = "instance_id")]
    pub(super) id: String,
    /// Revision of the last change.
    pub(super) revision: u64,
    #[serde(flatten)]
    pub(super) config: InstanceConfig,
    /// Exit code of the engine, or the negative number of the signal that ended it; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
}

/// All instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct InstanceList {
    pub(super) revision: u64,
    pub(super) total_instances: usize,
    pub(super) running_instances: usize,
    pub(super) instances: Vec<InstanceState>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventType {
    Created,
    Stopped,
    Deleted,
}

#[derive(Serialize)]
struct Event<'a> {
    r#type: EventType,
    object: &'a InstanceState,
}

struct Instance<H> {
    state: InstanceState,
    handle: H,
}

/// The instances, each with a handle of its owner.
pub(super) struct InstanceTable<H> {
    instances: BTreeMap<String, Instance<H>>,
    history: History,
    max_instances: usize,
}

// === impl InstanceTable ===

impl<H: Clone> InstanceTable<H> {
    pub(super) fn new(max_instances: usize) -> InstanceTable<H> {
        InstanceTable { instances: BTreeMap::new(), history: History::default(), max_instances }
    }

    /// Checks whether an instance can be added.
    ///
    /// # Errors
    /// The id exists, the limit is reached, or an instance that runs has the same port.
    pub(super) fn check(&self, id: &str, config: &InstanceConfig) -> Result<(), LauncherError> {
        if self.instances.contains_key(id) {
            return Err(LauncherError::InstanceExists(id.to_owned()));
        }
        if self.instances.len() >= self.max_instances {
            return Err(LauncherError::TooManyInstances(self.max_instances));
        }
        let Some(port) = config.port() else { return Ok(()) };
        let has_port =
            |state: &&InstanceState| state.status == InstanceStatus::Running && state.config.port() == Some(port);
        match self.instances.values().map(|instance| &instance.state).find(has_port) {
            Some(other) => Err(LauncherError::PortInUse { port, instance: other.id.clone() }),
            None => Ok(()),
        }
    }

    /// Adds an instance that runs.
    pub(super) fn insert(&mut self, id: &str, config: InstanceConfig, handle: H) -> InstanceState {
        let revision = self.history.revision() + 1;
        let id = id.to_owned();
        let state = InstanceState { status: InstanceStatus::Running, id, revision, config, exit_code: None };
        self.record(EventType::Created, &state);
        self.instances.insert(state.id.clone(), Instance { state: state.clone(), handle });
        state
    }

    /// Records that the processes of an instance have ended.
    pub(super) fn stop(&mut self, id: &str, exit_code: i32) {
        let revision = self.history.revision() + 1;
        let Some(instance) = self.instances.get_mut(id) else { return };
        instance.state.status = InstanceStatus::Stopped;
        instance.state.revision = revision;
        instance.state.exit_code = Some(exit_code);
        let state = instance.state.clone();
        self.record(EventType::Stopped, &state);
    }

    /// Removes an instance whose processes have ended, and returns its last state. `exit_code` is that of the engine if it ran until
    /// the deletion.
    pub(super) fn remove(&mut self, id: &str, exit_code: Option<i32>) -> Option<InstanceState> {
        let mut state = self.instances.remove(id)?.state;
        state.status = InstanceStatus::Stopped;
        state.revision = self.history.revision() + 1;
        state.exit_code = exit_code.or(state.exit_code);
        self.record(EventType::Deleted, &state);
        Some(state)
    }

    pub(super) fn get(&self, id: &str) -> Result<&InstanceState, LauncherError> {
        self.find(id).map(|instance| &instance.state)
    }

    pub(super) fn handle(&self, id: &str) -> Result<H, LauncherError> {
        self.find(id).map(|instance| instance.handle.clone())
    }

    /// Returns id and handle of all instances.
    pub(super) fn handles(&self) -> Vec<(String, H)> {
        self.instances.iter().map(|(id, instance)| (id.clone(), instance.handle.clone())).collect()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.instances.keys().cloned().collect()
    }

    pub(super) fn list(&self) -> InstanceList {
        let instances: Vec<InstanceState> = self.instances.values().map(|instance| instance.state.clone()).collect();
        InstanceList {
            revision: self.history.revision(),
            total_instances: instances.len(),
            running_instances: instances.iter().filter(|state| state.status == InstanceStatus::Running).count(),
            instances,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.history.revision()
    }

    /// Returns one event of type `CREATED` for each instance, sorted by id.
    pub(super) fn initial_events(&self) -> Vec<Bytes> {
        self.instances.values().map(|instance| event_line(EventType::Created, &instance.state)).collect()
    }

    /// Returns the events after `revision`.
    ///
    /// # Errors
    /// `RevisionUnavailable`
    pub(super) fn events_after(&self, revision: u64) -> Result<Vec<Bytes>, LauncherError> {
        let events = self.history.after(revision).map(|events| events.cloned().collect());
        events.ok_or_else(|| LauncherError::RevisionUnavailable {
            requested: revision,
            oldest: self.history.oldest(),
            newest: self.history.revision(),
        })
    }

    fn find(&self, id: &str) -> Result<&Instance<H>, LauncherError> {
        self.instances.get(id).ok_or_else(|| LauncherError::InstanceNotFound(id.to_owned()))
    }

    fn record(&mut self, r#type: EventType, state: &InstanceState) {
        self.history.push(event_line(r#type, state));
    }
}

/// Returns the event as one line of JSON.
fn event_line(r#type: EventType, object: &InstanceState) -> Bytes {
    // Serialization fails only for maps whose keys are not strings.
    let mut line = serde_json::to_vec(&Event { r#type, object }).unwrap_or_default();
    line.push(b'\n');
    Bytes::from(line)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn config(text: &str) -> InstanceConfig {
        InstanceConfig::parse(text.as_bytes()).unwrap()
    }

    fn on_port(port: u16) -> InstanceConfig {
        config(&format!(r#"{{"options": "--port {port}"}}"#))
    }

    /// Two of three instances: `a` runs on port 1, `b` on port 2 has stopped.
    fn table() -> InstanceTable<()> {
        let mut table = InstanceTable::new(3);
        table.insert("a", on_port(1), ());
        table.insert("b", on_port(2), ());
        table.stop("b", 7);
        table
    }

    fn events(table: &InstanceTable<()>, revision: u64) -> Vec<String> {
        let name = |line: &Bytes| {
            let event: serde_json::Value = serde_json::from_slice(line).unwrap();
            let object = &event["object"];
            format!("{} {} {}", event["type"].as_str().unwrap(), object["instance_id"], object["revision"])
        };
        table.events_after(revision).unwrap().iter().map(name).collect()
    }

    #[rstest]
    #[case::duplicate("a", 9, "InstanceExists")]
    #[case::duplicate_of_a_stopped_one("b", 9, "InstanceExists")]
    #[case::same_port("c", 1, "PortInUse")]
    #[case::port_of_a_stopped_one("c", 2, "")]
    fn conflicts(#[case] id: &str, #[case] port: u16, #[case] expected: &str) {
        let code = table().check(id, &on_port(port)).map_or_else(|error| error.code(), |()| "");
        assert_eq!(code, expected);
    }

    #[test]
    fn stopped_instances_count_towards_the_limit() {
        let mut table = table();
        table.insert("c", on_port(3), ());
        assert_eq!(table.check("d", &on_port(4)), Err(LauncherError::TooManyInstances(3)));
        table.remove("b", None);
        assert_eq!(table.check("d", &on_port(4)), Ok(()));
    }

    #[test]
    fn every_change_has_a_revision() {
        let mut table = table();
        assert_eq!(events(&table, 0), [r#"CREATED "a" 1"#, r#"CREATED "b" 2"#, r#"STOPPED "b" 3"#]);
        let deleted = table.remove("a", Some(-15)).unwrap();
        assert_eq!((deleted.status, deleted.revision, deleted.exit_code), (InstanceStatus::Stopped, 4, Some(-15)));
        assert_eq!(events(&table, 3), [r#"DELETED "a" 4"#]);
        assert_eq!(table.remove("a", None), None);
        assert!(table.events_after(5).is_err());
    }

    /// The fields are those of the deployed launcher, and `exit_code`.
    #[test]
    fn states_and_lists() {
        let mut table = InstanceTable::new(1);
        let body = r#"{"options": "--model m", "gpu_uuids": ["GPU-a"], "env_vars": {"A": "b"}, "annotations": {}}"#;
        table.insert("a", config(body), ());
        table.stop("a", 1);
        let expected = json!({
            "status": "stopped", "instance_id": "a", "revision": 2, "options": "--model m", "gpu_uuids": ["GPU-a"],
            "env_vars": {"A": "b"}, "annotations": {}, "exit_code": 1,
        });
        let list = serde_json::to_value(table.list()).unwrap();
        assert_eq!(list, json!({"revision": 2, "total_instances": 1, "running_instances": 0, "instances": [expected]}));
    }
}

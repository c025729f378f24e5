//! The specification of Pods, in Pods and in templates.

use std::collections::BTreeSet;

use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::{items, resources};
use crate::object;
use crate::write::validate::metadata;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// `at` is where the specification stands in its object.
pub(super) fn causes(spec: &Value, at: &str) -> Vec<Cause> {
    let mut causes = doubled_volumes(spec, at);
    if items(spec.get("containers")).next().is_none() {
        causes.push(Cause::required(format!("{at}.containers"), ""));
    }
    causes.extend(containers(spec, at));
    let policy = object::text(spec, "/restartPolicy");
    if !RESTART_POLICIES.contains(&policy) {
        let known = RESTART_POLICIES.map(Value::from);
        causes.push(Cause::not_supported(format!("{at}.restartPolicy"), &json!(policy), &known));
    }
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    causes.extend(metadata::labels(&format!("{at}.nodeSelector"), selector));
    causes
}

fn doubled_volumes(spec: &Value, at: &str) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let names = items(spec.get("volumes")).map(|volume| object::text(volume, "/name")).enumerate();
    let doubled = names.filter(|(_, name)| !seen.insert(*name));
    doubled.map(|(index, name)| Cause::duplicate(format!("{at}.volumes[{index}].name"), &json!(name))).collect()
}

fn containers(spec: &Value, at: &str) -> Vec<Cause> {
    let volumes: BTreeSet<&str> = items(spec.get("volumes")).map(|volume| object::text(volume, "/name")).collect();
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, it) in items(spec.get(list)).enumerate() {
            let field = format!("{at}.{list}[{index}]");
            let name = object::text(it, "/name");
            if name.is_empty() {
                causes.push(Cause::required(format!("{field}.name"), ""));
            } else if !names.insert(name) {
                causes.push(Cause::duplicate(format!("{field}.name"), &json!(name)));
            }
            let policy = object::text(it, "/imagePullPolicy");
            if !PULL_POLICIES.contains(&policy) {
                let known = PULL_POLICIES.map(Value::from);
                causes.push(Cause::not_supported(format!("{field}.imagePullPolicy"), &json!(policy), &known));
            }
            causes.extend(mounts(it, &field, &volumes));
            causes.extend(resources::causes(it, &field));
        }
    }
    causes
}

fn mounts(container: &Value, field: &str, volumes: &BTreeSet<&str>) -> Vec<Cause> {
    let mounts = items(container.get("volumeMounts")).enumerate();
    let missing = mounts.filter(|(_, mount)| !volumes.contains(object::text(mount, "/name")));
    missing
        .map(|(index, mount)| {
            let message = format!("Not found: {}", mount["name"]);
            Cause::new(format!("{field}.volumeMounts[{index}].name"), "FieldValueNotFound", message)
        })
        .collect()
}

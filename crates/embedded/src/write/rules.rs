//! Rules of the built-in kinds beyond their types (`k8s.io/kubernetes/pkg/apis/*/validation`), those that people meet.

use std::collections::BTreeSet;

use apimachinery::quantity::Quantity;
use apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::priority;
use crate::object;
use crate::resources::Resource;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const QUANTITY: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// What is wrong with an object, whatever it was before.
pub(super) fn causes(resource: &Resource, object: &Value) -> Vec<Cause> {
    match resource.storage.as_str() {
        "configmaps" => config_map(object),
        "secrets" => keys(object, "data"),
        "services" => service(object),
        "pods" => pod(object.get("spec").unwrap_or(&Value::Null), "spec"),
        "events" => event(object),
        "priorityclasses.scheduling.k8s.io" => priority::causes(object),
        "leases.coordination.k8s.io" => lease(object),
        crate::autoscaling::STORAGE => autoscaler(object),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" => {
            let mut causes = not_negative(object, "spec.replicas");
            causes.extend(required_selector(object));
            causes.extend(selector_matches_template(object));
            let template = object.pointer("/spec/template/spec").unwrap_or(&Value::Null);
            causes.extend(pod(template, "spec.template.spec"));
            if template["restartPolicy"] != "Always" {
                let (field, always) = ("spec.template.spec.restartPolicy", [json!("Always")]);
                causes.push(Cause::not_supported(field, &template["restartPolicy"], &always));
            }
            causes.extend(not_negative(object, "spec.minReadySeconds"));
            causes
        }
        "jobs.batch" => pod(object.pointer("/spec/template/spec").unwrap_or(&Value::Null), "spec.template.spec"),
        _ => Vec::new(),
    }
}

/// Bounds that leave room.
fn autoscaler(scaler: &Value) -> Vec<Cause> {
    let count = |name: &str| scaler.pointer(&format!("/spec/{name}")).and_then(Value::as_i64);
    let (least, most) = (count("minReplicas").unwrap_or(1), count("maxReplicas").unwrap_or(0));
    let mut causes = Vec::new();
    if least < 1 {
        let hint = "must be greater than or equal to 1";
        causes.push(Cause::invalid("spec.minReplicas", &json!(least), hint));
    }
    if most < 1 {
        causes.push(Cause::invalid("spec.maxReplicas", &json!(most), "must be greater than 0"));
    }
    if most < least {
        let hint = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid("spec.maxReplicas", &json!(most), hint));
    }
    causes
}

/// What may not change.
pub(super) fn update_causes(resource: &Resource, current: &Value, object: &Value) -> Vec<Cause> {
    if resource.storage == "priorityclasses.scheduling.k8s.io" {
        return priority::update_causes(current, object);
    }
    if !matches!(resource.storage.as_str(), "configmaps" | "secrets") || current["immutable"] != true {
        return Vec::new();
    }
    let changed = |field: &str| current.get(field) != object.get(field);
    let mut causes = Vec::new();
    if object["immutable"] != true {
        causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in ["data", "binaryData"].into_iter().filter(|field| changed(field)) {
        causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
    }
    causes
}

/// # Errors
/// 400 for a quantity that is none: it does not even decode.
pub(super) fn quantities(resource: &Resource, object: &Value) -> Result<(), Status> {
    let spec = match resource.storage.as_str() {
        "pods" => object.get("spec"),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "jobs.batch" => {
            object.pointer("/spec/template/spec")
        }
        _ => None,
    };
    let containers =
        ["containers", "initContainers"].into_iter().flat_map(|list| items(spec.and_then(|it| it.get(list))));
    for container in containers {
        for part in ["limits", "requests"] {
            let all = container.pointer(&format!("/resources/{part}")).and_then(Value::as_object).into_iter().flatten();
            if all.into_iter().any(|(_, quantity)| parse(quantity).is_none()) {
                let (kind, version) = (&resource.kind, &resource.version);
                return Err(Status::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {kind}: {QUANTITY}"
                )));
            }
        }
    }
    Ok(())
}

fn config_map(object: &Value) -> Vec<Cause> {
    let binary = object.get("binaryData").and_then(Value::as_object);
    let data = object.get("data").and_then(Value::as_object).into_iter().flatten();
    let twice = data
        .filter(|(key, _)| binary.is_some_and(|binary| binary.contains_key(*key)))
        .map(|(key, _)| Cause::invalid(format!("data[{key}]"), &json!(key), "duplicate of key present in binaryData"));
    let mut causes = keys(object, "data");
    causes.extend(twice);
    // Key by key, as they are looked at.
    causes.sort_by(|a, b| a.field.cmp(&b.field));
    causes.extend(keys(object, "binaryData"));
    causes
}

/// The keys of a map that are no file names.
fn keys(object: &Value, field: &str) -> Vec<Cause> {
    let data = object.get(field).and_then(Value::as_object).into_iter().flatten();
    let well_formed =
        |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    data.filter(|(key, _)| !well_formed(key))
        .map(|(key, _)| Cause::invalid(format!("{field}[{key}]"), &json!(key), KEY))
        .collect()
}

fn service(service: &Value) -> Vec<Cause> {
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let kind = object::text(spec, "/type");
    let ports: Vec<&Value> = items(spec.get("ports")).collect();
    let mut causes = Vec::new();
    if ports.is_empty() && spec["clusterIP"] != "None" && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        if ports.len() > 1 && object::text(port, "/name").is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        }
        let name = object::text(port, "/name");
        let is_taken = ports[..index].iter().any(|before| object::text(before, "/name") == name);
        if !name.is_empty() && is_taken {
            causes.push(Cause::duplicate(format!("{field}.name"), &json!(name)));
        }
        for name in ["port", "targetPort"] {
            let outside = port[name].as_i64().filter(|number| !(1..=65535).contains(number));
            if outside.is_some() {
                let hint = "must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(format!("{field}.{name}"), &port[name], hint));
            }
        }
    }
    causes.extend(super::validate::labels("spec.selector", spec.get("selector").and_then(Value::as_object)));
    let affinity = object::text(spec, "/sessionAffinity");
    let affinities = ["ClientIP", "None"];
    if !affinities.contains(&affinity) {
        causes.push(Cause::not_supported("spec.sessionAffinity", &json!(affinity), &affinities.map(Value::from)));
    }
    if !SERVICE_TYPES.contains(&kind) {
        causes.push(Cause::not_supported("spec.type", &json!(kind), &SERVICE_TYPES.map(Value::from)));
    }
    causes.extend(doubled_ports(&ports));
    causes
}

/// A port is told apart by its number and protocol.
fn doubled_ports(ports: &[&Value]) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let (number, protocol) = (port["port"].as_i64(), object::text(port, "/protocol"));
        if !seen.insert((number, protocol)) {
            let number = number.unwrap_or_default();
            let message = format!(
                r#"Duplicate value: {{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            causes.push(Cause::new(format!("spec.ports[{index}]"), "FieldValueDuplicate", message));
        }
    }
    causes
}

fn lease(lease: &Value) -> Vec<Cause> {
    let duration = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).filter(|seconds| *seconds <= 0);
    let cause = |seconds| Cause::invalid("spec.leaseDurationSeconds", &json!(seconds), "must be greater than 0");
    duration.map(cause).into_iter().collect()
}

fn event(event: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let about = object::text(event, "/involvedObject/namespace");
    let own = object::namespace(event);
    // What has no namespace is reported in `default`.
    let fits = about == own || about.is_empty() && own == "default";
    if !fits && !about.is_empty() {
        causes.push(Cause::invalid("involvedObject.namespace", &json!(about), "does not match event.namespace"));
    }
    causes
}

fn pod(spec: &Value, at: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut volumes = BTreeSet::new();
    for (index, volume) in items(spec.get("volumes")).enumerate() {
        let name = object::text(volume, "/name");
        if !volumes.insert(name) {
            causes.push(Cause::duplicate(format!("{at}.volumes[{index}].name"), &json!(name)));
        }
    }
    let mut names = BTreeSet::new();
    if items(spec.get("containers")).next().is_none() {
        causes.push(Cause::required(format!("{at}.containers"), ""));
    }
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
            causes.extend(resources(it, &field));
        }
    }
    let policy = object::text(spec, "/restartPolicy");
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    let policies = ["Always", "OnFailure", "Never"];
    if !policies.contains(&policy) {
        let field = format!("{at}.restartPolicy");
        causes.push(Cause::not_supported(field, &json!(policy), &policies.map(Value::from)));
    }
    causes.extend(super::validate::labels(&format!("{at}.nodeSelector"), selector));
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

fn resources(container: &Value, field: &str) -> Vec<Cause> {
    let part = |name: &str| container.pointer(&format!("/resources/{name}")).and_then(Value::as_object);
    let mut causes = Vec::new();
    for (name, request) in part("requests").into_iter().flatten() {
        let Some(limit) = part("limits").and_then(|limits| limits.get(name)) else { continue };
        if let (Some(asked), Some(most)) = (parse(request), parse(limit))
            && asked > most
        {
            let hint = format!("must be less than or equal to {name} limit of {most}");
            causes.push(Cause::invalid(format!("{field}.resources.requests"), request, &hint));
        }
    }
    causes
}

fn required_selector(object: &Value) -> Option<Cause> {
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    selector.is_none().then(|| Cause::required("spec.selector", ""))
}

/// A workload that does not select its own pods would create them forever.
fn selector_matches_template(object: &Value) -> Option<Cause> {
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    let selector = selector.map(apimachinery::selector::LabelSelector::from_json).transpose().ok()?;
    let template = object.pointer("/spec/template").unwrap_or(&Value::Null);
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    // None selects nothing.
    (!selector.is_some_and(|selector| selector.matches_object(template))).then(|| {
        Cause::invalid("spec.template.metadata.labels", &labels, "`selector` does not match template `labels`")
    })
}

fn not_negative(object: &Value, field: &str) -> Vec<Cause> {
    let value = object.pointer(&format!("/{}", field.replace('.', "/"))).and_then(Value::as_i64);
    let negative = value.filter(|value| *value < 0);
    negative.map(|value| Cause::invalid(field, &json!(value), NOT_NEGATIVE)).into_iter().collect()
}

/// What is said of a negative count.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

fn parse(quantity: &Value) -> Option<Quantity> {
    match quantity {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// The elements of a list that may not be there.
pub(super) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

//! Parts of the PodSpec that all components share.

use decide::{Setting, Warning};
use serde_json::{Map, Value, json};

use crate::code;
use crate::container_ports::{duplicate_port_name, has_port, invalid_port};
use crate::launch::{self, variables};
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::pod;
use crate::runner::{self, Layers};

/// Default port of a component, as in upstream OME.
pub(super) const PORT: u16 = 8080;

/// Returns the serving port of `container`, and adds the port declaration and a readiness probe if they are missing.
pub(super) fn complete_port_and_probe(container: &mut Value, probe: impl FnOnce(&Value, u16) -> Value) -> u16 {
    let port = launch::port(container, launch::default_port(container).unwrap_or(PORT));
    if container["ports"].as_array().is_none_or(Vec::is_empty) {
        container["ports"] = json!([{"containerPort": port, "name": "http", "protocol": "TCP"}]);
    }
    if container.get("readinessProbe").is_none() {
        container["readinessProbe"] = probe(container, port);
    }
    port
}

/// Sets `terminationMessagePolicy: FallbackToLogsOnError` by default, so that the status of a service can show the last lines of
/// a failed container's log.
pub(super) fn default_termination_message_policy(container: &mut Value) {
    if container.get("terminationMessagePolicy").is_none() {
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    }
}

/// Returns the PodSpec without its main container: the service's fields overlaid on the runtime's, and the placement.
///
/// # Errors
/// Node affinities with too many combinations.
pub(super) fn merge_fields(
    layers: &Layers<'_>,
    settings: &mut Vec<Setting>,
    warnings: &mut Vec<Warning>,
) -> Result<Value, PlanError> {
    let placement = runner::merge_placement(layers, warnings)?;
    let mut spec = pod_spec_fields(layers.runtime);
    pod::overlay_map(&mut spec, &pod_spec_fields(layers.service));
    spec.extend(placement.fields);
    settings.extend(placement.settings);
    Ok(Value::Object(spec))
}

/// Adds the toleration of the taint that dedicates nodes to an accelerator resource, as the admission plugin
/// `ExtendedResourceToleration` of Kubernetes does on GKE. An existing toleration that suffices is preserved.
pub(super) fn tolerate_resource(spec: &mut Value, resource: &str) {
    let suffices = |toleration: &Value| {
        let matches_key = toleration["key"] == resource || toleration["key"].as_str().is_none_or(str::is_empty);
        let matches_effect = toleration["effect"].as_str().is_none_or(|effect| ["", "NoSchedule"].contains(&effect));
        matches_key && matches_effect && toleration["operator"] == "Exists"
    };
    let Some(fields) = spec.as_object_mut() else { return };
    let tolerations = fields.entry("tolerations").or_insert_with(|| json!([]));
    if let Some(tolerations) = tolerations.as_array_mut()
        && !tolerations.iter().any(suffices)
    {
        tolerations.push(json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"}));
    }
}

/// Completes the PodSpec: adds the main container as the first one, and expands template variables of the others.
pub(super) fn assemble(container: Value, mut spec: Value, owner: &Owner, warnings: &mut Vec<Warning>) -> Value {
    pod::set_main_container(&mut spec, container);
    pod::substitute_sidecars(&mut spec, owner, warnings);
    spec
}

/// Checks that the variables in the command of a component's container are defined. Routers need no model.
///
/// # Errors
/// The kubelet would pass the name of a variable instead of its value.
pub(super) fn check_variables(container: &Value, component: &str, needs_model: bool) -> Result<(), PlanError> {
    let Some(name) = variables::undefined_variable(container) else { return Ok(()) };
    let model = if needs_model && name == variables::MODEL_PATH { "set spec.model, or " } else { "" };
    let message = format!(
        "{component}: the command refers to $({name}), which is not defined; {model}define {name} in spec.{component}.runner.env"
    );
    Err(PlanError::new(code::error::UNDEFINED_VARIABLE, message))
}

/// Checks the ports of each container. `runtime` is the name of the runtime.
///
/// # Errors
/// A port has an invalid number, or two ports of a container have the same name. The message names the sources of both.
pub(super) fn check_ports(
    spec: &Value,
    layers: &Layers<'_>,
    component: &str,
    runtime: Option<&str>,
) -> Result<(), PlanError> {
    if let Some(message) = invalid_port(spec) {
        return Err(PlanError::new(code::error::INVALID_SERVICE, format!("{component}: {message}")));
    }
    let Some(duplicate) = duplicate_port_name(spec) else { return Ok(()) };
    let (container, name) = (duplicate.container.as_str(), duplicate.name.as_str());
    let is_main = spec["containers"][0]["name"] == container;
    let field = |component: &api::ome::Component, port| {
        let runner_ports = component.runner.as_ref().map_or(&Value::Null, |runner| &runner["ports"]);
        if is_main && has_port(runner_ports, name, port) {
            return Some("runner.ports".to_owned());
        }
        ["containers", "initContainers"].into_iter().find_map(|list| {
            let containers = component.pod.get(list)?.as_array()?;
            let declares = |other: &Value| other["name"] == container && has_port(&other["ports"], name, port);
            containers.iter().any(declares).then(|| format!("{list}[{container}].ports"))
        })
    };
    let source = |port| {
        let service = field(layers.service, port).map(|field| format!("spec.{component}.{field}"));
        let configuration = || {
            let accelerators = layers.accelerators.filter(|accelerators| {
                let ports = accelerators.configuration.runner.get("ports");
                ports.is_some_and(|ports| has_port(ports, name, port))
            })?;
            Some(format!("the accelerator configuration for {}", accelerators.class.name))
        };
        let runtime = || {
            let field = field(layers.runtime, port)?;
            Some(format!("{component}Config.{field} of runtime {}", runtime.unwrap_or_default()))
        };
        service.or_else(configuration).or_else(runtime).unwrap_or_else(|| format!("container {container}"))
    };
    let [first, second] = duplicate.ports;
    let message = format!(
        "{}: port {second} has the name {name}, which port {first} in {} has too; use another name, or the same containerPort for both",
        source(second),
        source(first)
    );
    Err(PlanError::new(code::error::INVALID_SERVICE, message))
}

/// Returns the fields of a component that belong to the PodSpec.
fn pod_spec_fields(component: &api::ome::Component) -> Map<String, Value> {
    let mut fields = component.pod.clone();
    for (name, list) in [("tolerations", &component.tolerations), ("volumes", &component.volumes)] {
        if !list.is_empty() {
            fields.insert(name.to_owned(), Value::Array(list.clone()));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::added(json!([]), json!([{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]))]
    #[case::of_another_resource(
        json!([{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        json!([{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}])
    )]
    #[case::of_one_value(
        json!([{"key": "amd.com/gpu", "value": "present"}]),
        json!([{"key": "amd.com/gpu", "value": "present"}, {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}])
    )]
    #[case::any_effect(json!([{"key": "amd.com/gpu", "operator": "Exists"}]), json!([{"key": "amd.com/gpu", "operator": "Exists"}]))]
    #[case::any_taint(json!([{"operator": "Exists"}]), json!([{"operator": "Exists"}]))]
    fn tolerates_the_accelerator_resource(#[case] tolerations: Value, #[case] expected: Value) {
        let mut spec = json!({"tolerations": tolerations});
        tolerate_resource(&mut spec, "amd.com/gpu");
        assert_eq!(spec["tolerations"], expected);
    }
}

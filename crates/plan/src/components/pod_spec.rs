//! What every component's Pod has around its main container, whatever the container is for.

use decide::merge::origin::Setting;
use decide::reason::Warning;
use serde_json::{Map, Value, json};

use super::PORT;
use crate::launch;
use crate::pod;
use crate::runner::{self, Layers};
use crate::topology::{Owner, Refusal};

/// The port on which `container` answers. Its declaration and a readiness probe are added where nobody states them.
pub(super) fn answer(container: &mut Value, probe: impl FnOnce(&Value, u16) -> Value) -> u16 {
    let port = launch::port(container, launch::usual_port(container).unwrap_or(PORT));
    if container["ports"].as_array().is_none_or(Vec::is_empty) {
        container["ports"] = json!([{"containerPort": port, "name": "http", "protocol": "TCP"}]);
    }
    if container.get("readinessProbe").is_none() {
        container["readinessProbe"] = probe(container, port);
    }
    port
}

/// A container that dies tells in its log why: where nobody states otherwise, the last lines become the message of its
/// end, and so the cause that a service's status names.
pub(super) fn last_words(container: &mut Value) {
    if container.get("terminationMessagePolicy").is_none() {
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    }
}

/// The PodSpec without its main container: the service's fields over the runtime's, and where the Pod may run.
///
/// # Errors
/// Affinities that cannot be written into a Pod.
pub(super) fn placed(
    layers: &Layers<'_>,
    settings: &mut Vec<Setting>,
    warnings: &mut Vec<Warning>,
) -> Result<Value, Refusal> {
    let placement = runner::placement(layers, warnings)?;
    let mut spec = fields(layers.runtime);
    pod::overlay_map(&mut spec, &fields(layers.service));
    spec.extend(placement.fields);
    settings.extend(placement.settings);
    Ok(Value::Object(spec))
}

/// The whole PodSpec: the main container first, and template variables of the others filled in.
pub(super) fn around(container: Value, mut spec: Value, owner: &Owner, warnings: &mut Vec<Warning>) -> Value {
    pod::put_first(&mut spec, container);
    pod::substitute_others(&mut spec, owner, warnings);
    spec
}

/// The fields of a component that are a PodSpec's; everything else of it is ours.
fn fields(component: &api::ome::Component) -> Map<String, Value> {
    let mut all = component.pod.clone();
    for (name, list) in [("tolerations", &component.tolerations), ("volumes", &component.volumes)] {
        if !list.is_empty() {
            all.insert(name.to_owned(), Value::Array(list.clone()));
        }
    }
    all
}

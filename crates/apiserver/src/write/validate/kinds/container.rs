//! Validation of the containers of a Pod.

use std::collections::BTreeSet;

use apimachinery::StatusCause;

use super::super::names::{label_hints, port_name_hints};
use super::field::Field;
use super::{environment, probe, resources, security_context, volume};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const SIDECAR_ONLY_MESSAGE: &str = "may not be set for init containers without restartPolicy=Always";

/// Validates the containers, then the init containers, of a Pod.
pub(super) fn causes(spec: &Field<'_>) -> Vec<StatusCause> {
    let volumes: BTreeSet<&str> = spec.get("volumes").items().map(|volume| volume.get("name").text()).collect();
    let grace = spec.get("terminationGracePeriodSeconds").number().unwrap_or(30);
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    if spec.get("containers").is_empty() {
        causes.push(spec.get("containers").required());
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).items() {
            causes.extend(container_causes(&container, &volumes));
            let name = container.get("name");
            if !name.is_empty() && !names.insert(name.text()) {
                causes.push(name.duplicate());
            }
            if list == "containers" || container.get("restartPolicy").text() == "Always" {
                causes.extend(probe::causes(&container, grace));
            } else {
                let sidecar_fields = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
                let sidecar_fields = sidecar_fields.iter().map(|name| container.get(name)).filter(Field::is_set);
                causes.extend(sidecar_fields.map(|field| field.forbidden(SIDECAR_ONLY_MESSAGE)));
            }
        }
    }
    causes
}

/// Validates a container.
fn container_causes(container: &Field<'_>, volumes: &BTreeSet<&str>) -> Vec<StatusCause> {
    let (name, image) = (container.get("name"), container.get("image"));
    let mut causes = if name.is_empty() { vec![name.required()] } else { name.check(label_hints) };
    if image.is_empty() {
        causes.push(image.required());
    } else if image.text().trim() != image.text() {
        causes.push(image.invalid("must not have leading or trailing whitespace"));
    }
    causes.extend(container.get("terminationMessagePolicy").check_one_of(&["File", "FallbackToLogsOnError"]));
    causes.extend(check_ports(&container.get("ports")));
    causes.extend(environment::causes(container));
    causes.extend(volume::check_mounts(container, volumes));
    causes.extend(container.get("imagePullPolicy").check_one_of(&PULL_POLICIES));
    causes.extend(resources::causes(container));
    causes.extend(security_context::causes(&container.get("securityContext")));
    causes
}

fn check_ports(ports: &Field<'_>) -> Vec<StatusCause> {
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    for port in ports.items() {
        let [name, number, host_port, protocol] =
            ["name", "containerPort", "hostPort", "protocol"].map(|field| port.get(field));
        if !name.is_empty() {
            let hints = name.check(port_name_hints);
            if hints.is_empty() && !names.insert(name.text()) {
                causes.push(name.duplicate());
            }
            causes.extend(hints);
        }
        match number.number().unwrap_or(0) {
            0 => causes.push(number.required()),
            value => causes.extend(probe::check_port_range(&number, value)),
        }
        let value = host_port.number().filter(|value| *value != 0);
        causes.extend(value.and_then(|value| probe::check_port_range(&host_port, value)));
        causes.extend(protocol.check_one_of(&PROTOCOLS));
    }
    causes
}

//! Validation of `PodSpec` in Pods and in Pod templates.

use std::collections::BTreeSet;

use apimachinery::StatusCause;
use serde_json::Value;

use super::super::names::{label_hints, subdomain_hints};
use super::field::Field;
use super::{container, placement, security_context, volume};
use crate::write::validate::metadata;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Validates a `PodSpec` at the field path `path`.
pub(super) fn causes(spec: &Value, path: &str) -> Vec<StatusCause> {
    let spec = Field::at(spec, path);
    let mut causes = volume::causes(&spec.get("volumes"));
    causes.extend(container::causes(&spec));
    let policy = spec.get("restartPolicy");
    causes.extend((!RESTART_POLICIES.contains(&policy.text())).then(|| policy.not_supported(&RESTART_POLICIES)));
    causes.extend(spec.get("dnsPolicy").check_one_of(&DNS_POLICIES));
    let selector = spec.get("nodeSelector");
    causes.extend(metadata::check_labels(&selector.path, selector.value.as_object()));
    causes.extend(security_context::causes(&spec.get("securityContext")));
    causes.extend(check_host_ports(&spec));
    causes.extend(placement::check_affinity(&spec.get("affinity")));
    causes.extend(check_scheduling_gates(&spec.get("schedulingGates")));
    causes.extend(placement::check_topology_spread(&spec.get("topologySpreadConstraints")));
    for name in ["serviceAccountName", "nodeName"] {
        causes.extend(spec.get(name).check_if_set(subdomain_hints));
    }
    causes.extend(spec.get("activeDeadlineSeconds").check_in_range(1..=i64::from(i32::MAX)));
    for name in ["hostname", "subdomain"] {
        causes.extend(spec.get(name).check_if_set(label_hints));
    }
    causes.extend(placement::check_tolerations(&spec.get("tolerations")));
    causes
}

/// Checks that the host ports of Pods in the host network equal their container ports.
fn check_host_ports(spec: &Field<'_>) -> Vec<StatusCause> {
    if *spec.get("hostNetwork").value != true {
        return Vec::new();
    }
    let containers = spec.get("containers").items();
    let ports = containers.flat_map(|container| container.get("ports").items());
    let port_pairs = ports.map(|port| (port.get("hostPort"), port.get("containerPort")));
    let mismatches = port_pairs
        .filter(|(host, container)| host.number().is_some_and(|host| host != 0 && Some(host) != container.number()));
    mismatches.map(|(host, _)| host.invalid("must match `containerPort` when `hostNetwork` is true")).collect()
}

fn check_scheduling_gates(gates: &Field<'_>) -> Vec<StatusCause> {
    let mut seen = BTreeSet::new();
    let duplicates = gates.items().filter(|gate| !seen.insert(gate.get("name").text()));
    duplicates.map(|gate| StatusCause::duplicate(&gate.path, gate.get("name").value)).collect()
}

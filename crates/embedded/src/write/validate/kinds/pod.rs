//! The specification of Pods, in Pods and in templates.

use std::collections::BTreeSet;

use apimachinery::status::Cause;
use serde_json::Value;

use super::super::names::{label_hints, subdomain_hints};
use super::field::Field;
use super::{container, placement, volume};
use crate::write::validate::metadata;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// `at` is where the specification stands in its object.
pub(super) fn causes(spec: &Value, at: &str) -> Vec<Cause> {
    let spec = Field::at(spec, at);
    let mut causes = volume::causes(&spec.get("volumes"));
    causes.extend(container::causes(&spec));
    let policy = spec.get("restartPolicy");
    causes.extend((!RESTART_POLICIES.contains(&policy.text())).then(|| policy.not_supported(&RESTART_POLICIES)));
    causes.extend(spec.get("dnsPolicy").one_of(&DNS_POLICIES));
    let selector = spec.get("nodeSelector");
    causes.extend(metadata::labels(&selector.path, selector.value.as_object()));
    causes.extend(host_ports(&spec));
    causes.extend(placement::affinity(&spec.get("affinity")));
    causes.extend(gates(&spec.get("schedulingGates")));
    causes.extend(placement::spread(&spec.get("topologySpreadConstraints")));
    for name in ["serviceAccountName", "nodeName"] {
        causes.extend(spec.get(name).ruled_if_given(subdomain_hints));
    }
    let deadline = spec.get("activeDeadlineSeconds");
    let fits = deadline.number().is_none_or(|seconds| (1..=i64::from(i32::MAX)).contains(&seconds));
    causes.extend((!fits).then(|| deadline.invalid("must be between 1 and 2147483647, inclusive")));
    for name in ["hostname", "subdomain"] {
        causes.extend(spec.get(name).ruled_if_given(label_hints));
    }
    causes.extend(placement::tolerations(&spec.get("tolerations")));
    causes
}

/// On the network of the machine, a port is what it is.
fn host_ports(spec: &Field<'_>) -> Vec<Cause> {
    if *spec.get("hostNetwork").value != true {
        return Vec::new();
    }
    let containers = spec.get("containers").each();
    let ports = containers.flat_map(|container| container.get("ports").each());
    let host = ports.map(|port| (port.get("hostPort"), port.get("containerPort")));
    let other = host.filter(|(host, own)| host.number().is_some_and(|host| host != 0 && Some(host) != own.number()));
    other.map(|(host, _)| host.invalid("must match `containerPort` when `hostNetwork` is true")).collect()
}

fn gates(gates: &Field<'_>) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let doubled = gates.each().filter(|gate| !seen.insert(gate.get("name").text()));
    doubled.map(|gate| Cause::duplicate(&gate.path, gate.get("name").value)).collect()
}

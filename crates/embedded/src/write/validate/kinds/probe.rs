//! Probes and hooks of containers.

use apimachinery::status::Cause;

use super::super::names::port_name_hints;
use super::field::Field;

const ONE_HANDLER: &str = "may not specify more than 1 handler type";

/// The probes of a container, and its hooks, in the order in which kube-apiserver looks at them.
pub(super) fn causes(container: &Field<'_>, grace: i64) -> Vec<Cause> {
    let lifecycle = container.get("lifecycle");
    let mut causes: Vec<Cause> =
        ["postStart", "preStop"].iter().flat_map(|hook| hook_causes(&lifecycle.get(hook), grace)).collect();
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(name);
        if probe.is_set() {
            causes.extend(probe_causes(&probe, name));
        }
    }
    causes
}

fn hook_causes(hook: &Field<'_>, grace: i64) -> Vec<Cause> {
    if !hook.is_set() {
        return Vec::new();
    }
    let mut causes = handler(hook, &["exec", "httpGet", "tcpSocket", "sleep"]);
    let sleep = hook.get("sleep");
    let seconds = sleep.get("seconds");
    if seconds.number().is_some_and(|seconds| seconds < 0 || seconds > grace) {
        let hint = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        causes.push(Cause::invalid(&sleep.path, seconds.value, &hint));
    }
    causes
}

fn probe_causes(probe: &Field<'_>, name: &str) -> Vec<Cause> {
    let mut causes = handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"]);
    let counts = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    causes.extend(counts.iter().filter_map(|count| probe.get(count).not_negative()));
    let grace = probe.get("terminationGracePeriodSeconds");
    if name == "readinessProbe" {
        causes.extend(grace.is_set().then(|| grace.invalid("must not be set for readinessProbes")));
        return causes;
    }
    causes.extend(grace.positive());
    let successes = probe.get("successThreshold");
    causes.extend((successes.number() != Some(1)).then(|| successes.invalid("must be 1")));
    causes
}

/// Exactly one of the ways, and that well.
fn handler(handled: &Field<'_>, ways: &[&str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let given: Vec<_> = ways.iter().map(|way| (*way, handled.get(way))).filter(|(_, field)| field.is_set()).collect();
    for (index, (way, field)) in given.iter().enumerate() {
        if index > 0 {
            causes.push(field.forbidden(ONE_HANDLER));
            continue;
        }
        causes.extend(match *way {
            "exec" => {
                let command = field.get("command");
                command.is_empty().then(|| command.required()).into_iter().collect()
            }
            "httpGet" => http_get(field),
            "tcpSocket" | "grpc" => port(&field.get("port")),
            _ => Vec::new(),
        });
    }
    if given.is_empty() {
        causes.push(handled.required_because("must specify a handler type"));
    }
    causes
}

fn http_get(get: &Field<'_>) -> Vec<Cause> {
    let mut causes = port(&get.get("port"));
    causes.extend(get.get("scheme").one_of(&["HTTP", "HTTPS"]));
    causes
}

/// A number, or the name of a port.
pub(super) fn port(port: &Field<'_>) -> Vec<Cause> {
    match port.number() {
        Some(number) => out_of_range(port, number).into_iter().collect(),
        None => port.ruled_if_given(port_name_hints),
    }
}

/// Numbers of ports are 16 bits, and not 0.
pub(super) fn out_of_range(port: &Field<'_>, number: i64) -> Option<Cause> {
    (!(1..=65535).contains(&number)).then(|| port.invalid("must be between 1 and 65535, inclusive"))
}

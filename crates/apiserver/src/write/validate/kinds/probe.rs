//! Validation of probes and lifecycle hooks.

use apimachinery::StatusCause;

use super::super::names::port_name_hints;
use super::field::Field;

const MULTIPLE_HANDLERS_MESSAGE: &str = "may not specify more than 1 handler type";

/// Validates the lifecycle hooks and probes of a container, in the order of kube-apiserver.
pub(super) fn causes(container: &Field<'_>, grace: i64) -> Vec<StatusCause> {
    let lifecycle = container.get("lifecycle");
    let mut causes: Vec<StatusCause> =
        ["postStart", "preStop"].iter().flat_map(|hook| check_hook(&lifecycle.get(hook), grace)).collect();
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(name);
        if probe.is_set() {
            causes.extend(check_probe(&probe, name));
        }
    }
    causes
}

fn check_hook(hook: &Field<'_>, grace: i64) -> Vec<StatusCause> {
    if !hook.is_set() {
        return Vec::new();
    }
    let mut causes = check_handler(hook, &["exec", "httpGet", "tcpSocket", "sleep"]);
    let sleep = hook.get("sleep");
    let seconds = sleep.get("seconds");
    if seconds.number().is_some_and(|seconds| seconds < 0 || seconds > grace) {
        let hint = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        causes.push(StatusCause::invalid(&sleep.path, seconds.value, &hint));
    }
    causes
}

fn check_probe(probe: &Field<'_>, name: &str) -> Vec<StatusCause> {
    let mut causes = check_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"]);
    let counts = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    causes.extend(counts.iter().filter_map(|count| probe.get(count).check_not_negative()));
    let grace = probe.get("terminationGracePeriodSeconds");
    if name == "readinessProbe" {
        causes.extend(grace.is_set().then(|| grace.invalid("must not be set for readinessProbes")));
        return causes;
    }
    causes.extend(grace.check_positive());
    let successes = probe.get("successThreshold");
    causes.extend((successes.number() != Some(1)).then(|| successes.invalid("must be 1")));
    causes
}

/// Validates the handler of a probe or lifecycle hook, which must have exactly one type.
fn check_handler(field: &Field<'_>, types: &[&str]) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let handlers: Vec<_> =
        types.iter().map(|kind| (*kind, field.get(kind))).filter(|(_, handler)| handler.is_set()).collect();
    for (index, (kind, handler)) in handlers.iter().enumerate() {
        if index > 0 {
            causes.push(handler.forbidden(MULTIPLE_HANDLERS_MESSAGE));
            continue;
        }
        causes.extend(match *kind {
            "exec" => {
                let command = handler.get("command");
                command.is_empty().then(|| command.required()).into_iter().collect()
            }
            "httpGet" => check_http_get(handler),
            "tcpSocket" | "grpc" => check_port(&handler.get("port")),
            _ => Vec::new(),
        });
    }
    if handlers.is_empty() {
        causes.push(field.required_with_hint("must specify a handler type"));
    }
    causes
}

fn check_http_get(get: &Field<'_>) -> Vec<StatusCause> {
    let mut causes = check_port(&get.get("port"));
    causes.extend(get.get("scheme").check_one_of(&["HTTP", "HTTPS"]));
    causes
}

/// Validates a port number or name.
pub(super) fn check_port(port: &Field<'_>) -> Vec<StatusCause> {
    match port.number() {
        Some(number) => check_port_range(port, number).into_iter().collect(),
        None => port.check_if_set(port_name_hints),
    }
}

/// Returns the error for a port number that is not in 1-65535.
pub(super) fn check_port_range(port: &Field<'_>, number: i64) -> Option<StatusCause> {
    (!(1..=65535).contains(&number)).then(|| port.invalid("must be between 1 and 65535, inclusive"))
}

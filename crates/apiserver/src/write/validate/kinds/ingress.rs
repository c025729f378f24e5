//! Validation of Ingresses: hosts, paths and backends.

use std::net::IpAddr;

use apimachinery::StatusCause;
use serde_json::Value;

use super::super::names::{is_label, subdomain_hints};
use super::field::Field;

const WILDCARD_MESSAGE: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const FORBIDDEN_IN_PATHS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];

pub(super) fn causes(ingress: &Value) -> Vec<StatusCause> {
    let spec = Field::root(ingress).get("spec");
    let (default_backend, rules) = (spec.get("defaultBackend"), spec.get("rules"));
    let mut causes = Vec::new();
    if rules.is_empty() && !default_backend.is_set() {
        let hint = "either `defaultBackend` or `rules` must be specified";
        causes.push(StatusCause::invalid(&spec.path, &Value::Null, hint));
    }
    if default_backend.is_set() {
        causes.extend(check_backend(&default_backend));
    }
    for rule in rules.items() {
        causes.extend(check_host(&rule.get("host")));
        let http = rule.get("http");
        if !http.is_set() {
            continue;
        }
        if http.get("paths").is_empty() {
            causes.push(http.get("paths").required());
        }
        causes.extend(http.get("paths").items().flat_map(|path| check_path(&path)));
    }
    for entry in spec.get("tls").items() {
        let hosts = entry.get("hosts").items();
        causes.extend(hosts.flat_map(|host| {
            if host.text().contains('*') {
                check_wildcard(&host).into_iter().collect()
            } else {
                host.check(subdomain_hints)
            }
        }));
    }
    causes.extend(spec.get("ingressClassName").check_if_set(subdomain_hints));
    causes
}

fn check_host(host: &Field<'_>) -> Vec<StatusCause> {
    let text = host.text();
    if text.parse::<IpAddr>().is_ok() {
        vec![host.invalid("must be a DNS name, not an IP address")]
    } else if text.contains('*') {
        check_wildcard(host).into_iter().collect()
    } else {
        host.check_if_set(subdomain_hints)
    }
}

fn check_wildcard(host: &Field<'_>) -> Option<StatusCause> {
    let is_valid = host.text().strip_prefix("*.").is_some_and(|rest| rest.split('.').all(is_label));
    (!is_valid).then(|| host.invalid(WILDCARD_MESSAGE))
}

fn check_path(path: &Field<'_>) -> Vec<StatusCause> {
    let (kind, text) = (path.get("pathType"), path.get("path"));
    let mut causes = Vec::new();
    match kind.text() {
        "" => return vec![kind.required_with_hint("pathType must be specified")],
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.text().starts_with('/') {
                causes.push(text.invalid("must be an absolute path"));
            }
        }
        "Exact" | "Prefix" if !text.text().starts_with('/') => causes.push(text.invalid("must be an absolute path")),
        "Exact" | "Prefix" => {
            let forbidden = FORBIDDEN_IN_PATHS.iter().filter(|sequence| text.text().contains(**sequence));
            causes.extend(forbidden.map(|sequence| text.invalid(&format!("must not contain '{sequence}'"))));
        }
        _ => causes.extend(kind.check_one_of(&PATH_TYPES)),
    }
    causes.extend(check_backend(&path.get("backend")));
    causes
}

fn check_backend(backend: &Field<'_>) -> Vec<StatusCause> {
    let (service, resource) = (backend.get("service"), backend.get("resource"));
    let invalid = |hint: &str| StatusCause::invalid(&backend.path, &"".into(), hint);
    if resource.is_set() && service.is_set() {
        return vec![invalid("cannot set both resource and service backends")];
    }
    if !service.is_set() {
        return if resource.is_set() { Vec::new() } else { vec![invalid("resource or service backend is required")] };
    }
    let (name, number, port) = (service.get("name"), service.get("port.number"), service.get("port.name"));
    let mut causes: Vec<StatusCause> = name.is_empty().then(|| name.required()).into_iter().collect();
    match (number.number().unwrap_or(0), port.is_empty()) {
        (0, true) => causes.push(backend.required_with_hint("port name or number is required")),
        (0, false) => {}
        (_, true) => causes.extend(number.check_in_range(1..=65535)),
        _ => causes.push(invalid("cannot set both port name & port number")),
    }
    causes
}

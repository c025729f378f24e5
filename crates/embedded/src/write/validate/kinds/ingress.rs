//! Ingresses: hosts, paths and where they lead.

use std::net::IpAddr;

use apimachinery::status::Cause;
use serde_json::Value;

use super::super::names::{is_label, subdomain_hints};
use super::field::Field;

const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const NOT_IN_PATHS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];

pub(super) fn causes(ingress: &Value) -> Vec<Cause> {
    let spec = Field::of(ingress).get("spec");
    let (default, rules) = (spec.get("defaultBackend"), spec.get("rules"));
    let mut causes = Vec::new();
    if rules.is_empty() && !default.is_set() {
        let hint = "either `defaultBackend` or `rules` must be specified";
        causes.push(Cause::invalid(&spec.path, &Value::Null, hint));
    }
    if default.is_set() {
        causes.extend(backend(&default));
    }
    for rule in rules.each() {
        causes.extend(host(&rule.get("host")));
        let http = rule.get("http");
        if !http.is_set() {
            continue;
        }
        if http.get("paths").is_empty() {
            causes.push(http.get("paths").required());
        }
        causes.extend(http.get("paths").each().flat_map(|path| path_causes(&path)));
    }
    for entry in spec.get("tls").each() {
        let hosts = entry.get("hosts").each();
        causes.extend(hosts.flat_map(|host| {
            if host.text().contains('*') { wildcard(&host).into_iter().collect() } else { host.ruled(subdomain_hints) }
        }));
    }
    causes.extend(spec.get("ingressClassName").ruled_if_given(subdomain_hints));
    causes
}

fn host(host: &Field<'_>) -> Vec<Cause> {
    let text = host.text();
    if text.parse::<IpAddr>().is_ok() {
        vec![host.invalid("must be a DNS name, not an IP address")]
    } else if text.contains('*') {
        wildcard(host).into_iter().collect()
    } else {
        host.ruled_if_given(subdomain_hints)
    }
}

fn wildcard(host: &Field<'_>) -> Option<Cause> {
    let fits = host.text().strip_prefix("*.").is_some_and(|rest| rest.split('.').all(is_label));
    (!fits).then(|| host.invalid(WILDCARD))
}

fn path_causes(path: &Field<'_>) -> Vec<Cause> {
    let (kind, text) = (path.get("pathType"), path.get("path"));
    let mut causes = Vec::new();
    match kind.text() {
        "" => return vec![kind.required_because("pathType must be specified")],
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.text().starts_with('/') {
                causes.push(text.invalid("must be an absolute path"));
            }
        }
        "Exact" | "Prefix" if !text.text().starts_with('/') => causes.push(text.invalid("must be an absolute path")),
        "Exact" | "Prefix" => {
            let bad = NOT_IN_PATHS.iter().filter(|bad| text.text().contains(**bad));
            causes.extend(bad.map(|bad| text.invalid(&format!("must not contain '{bad}'"))));
        }
        _ => causes.extend(kind.one_of(&PATH_TYPES)),
    }
    causes.extend(backend(&path.get("backend")));
    causes
}

fn backend(backend: &Field<'_>) -> Vec<Cause> {
    let (service, resource) = (backend.get("service"), backend.get("resource"));
    let wrong = |hint: &str| Cause::invalid(&backend.path, &"".into(), hint);
    if resource.is_set() && service.is_set() {
        return vec![wrong("cannot set both resource and service backends")];
    }
    if !service.is_set() {
        return if resource.is_set() { Vec::new() } else { vec![wrong("resource or service backend is required")] };
    }
    let (name, number, port) = (service.get("name"), service.get("port.number"), service.get("port.name"));
    let mut causes: Vec<Cause> = name.is_empty().then(|| name.required()).into_iter().collect();
    match (number.number().unwrap_or(0), port.is_empty()) {
        (0, true) => causes.push(backend.required_because("port name or number is required")),
        (0, false) | (_, true) => {}
        _ => causes.push(wrong("cannot set both port name & port number")),
    }
    causes
}

//! The environment of a container: `env`, `envFrom`, the downward API, and `$(VAR)`.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::pod::Amounts;
use apimachinery::quantity::Quantity;
use base64::Engine;
use serde_json::Value;

use crate::object;
use crate::workloads::ownership::string_map;

/// Where values come from that are not in the Pod. All in the Pod's namespace.
pub(crate) trait Sources {
    fn config_map(&self, name: &str) -> Option<Arc<Value>>;
    fn secret(&self, name: &str) -> Option<Arc<Value>>;
    fn pod(&self, name: &str) -> Option<Arc<Value>>;
    /// The PersistentVolume of a claim that is bound.
    fn volume(&self, claim: &str) -> Option<Arc<Value>>;
    /// What the Pod's node has for Pods; what a container may use that has no limit.
    fn allocatable(&self) -> Amounts;
}

/// Why a container cannot start yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvironmentError {
    /// `CreateContainerConfigError`.
    #[error("{0}")]
    Missing(String),
    /// A peer's name has no address yet; a container would wait for DNS.
    #[error("waiting for the address of {0}")]
    Unresolved(String),
}

/// All variables of a container in order; a later one of the same name wins. `pod` has its address in status.
pub(crate) fn resolve(
    container: &Value,
    pod: &Value,
    sources: &dyn Sources,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    let mut all = Variables::default();
    let hostname = match object::text(pod, "/spec/hostname") {
        "" => object::name(pod),
        hostname => hostname,
    };
    all.set("HOSTNAME", hostname.to_owned());
    for source in list(container, "envFrom") {
        for (key, value) in imported(source, sources)? {
            all.set(&format!("{}{key}", object::text(source, "/prefix")), value);
        }
    }
    for entry in list(container, "env") {
        let name = object::text(entry, "/name");
        let value = match entry.get("valueFrom").filter(|from| !from.is_null()) {
            Some(from) => referenced(from, container, pod, sources)?,
            None => Some(expand(object::text(entry, "/value"), &all.values)),
        };
        if let Some(value) = value {
            all.set(name, host_address(value, pod, sources)?);
        }
    }
    Ok(all.in_order())
}

fn list<'a>(container: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    container.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// `envFrom`: all of a ConfigMap or Secret.
fn imported(source: &Value, sources: &dyn Sources) -> Result<BTreeMap<String, String>, EnvironmentError> {
    let optional = |reference: &Value| reference.get("optional") == Some(&Value::Bool(true));
    if let Some(reference) = source.get("configMapRef") {
        let name = object::text(reference, "/name");
        return match sources.config_map(name) {
            Some(map) => Ok(string_map(map.get("data"))),
            None if optional(reference) => Ok(BTreeMap::new()),
            None => Err(EnvironmentError::Missing(format!("configmap \"{name}\" not found"))),
        };
    }
    if let Some(reference) = source.get("secretRef") {
        let name = object::text(reference, "/name");
        return match sources.secret(name) {
            Some(secret) => Ok(string_map(secret.get("data")).into_iter().map(|(k, v)| (k, decoded(&v))).collect()),
            None if optional(reference) => Ok(BTreeMap::new()),
            None => Err(EnvironmentError::Missing(format!("secret \"{name}\" not found"))),
        };
    }
    Ok(BTreeMap::new())
}

/// `valueFrom`; `None` for something optional that is absent.
fn referenced(
    from: &Value,
    container: &Value,
    pod: &Value,
    sources: &dyn Sources,
) -> Result<Option<String>, EnvironmentError> {
    if let Some(field) = from.get("fieldRef") {
        return Ok(Some(downward(object::text(field, "/fieldPath"), pod)));
    }
    if let Some(field) = from.get("resourceFieldRef") {
        return Ok(Some(resource_field(field, container, pod, sources)));
    }
    let (reference, kind) = match (from.get("configMapKeyRef"), from.get("secretKeyRef")) {
        (Some(reference), _) => (reference, "configmap"),
        (None, Some(reference)) => (reference, "secret"),
        (None, None) => return Ok(None),
    };
    let (name, key) = (object::text(reference, "/name"), object::text(reference, "/key"));
    let source = if kind == "configmap" { sources.config_map(name) } else { sources.secret(name) };
    let missing = |message: String| match reference.get("optional") {
        Some(Value::Bool(true)) => Ok(None),
        _ => Err(EnvironmentError::Missing(message)),
    };
    let Some(source) = source else { return missing(format!("{kind} \"{name}\" not found")) };
    let Some(value) = source.get("data").and_then(|data| data.get(key)?.as_str()) else {
        let title = if kind == "configmap" { "ConfigMap" } else { "Secret" };
        return missing(format!("couldn't find key {key} in {title} {}/{name}", object::namespace(pod)));
    };
    Ok(Some(if kind == "secret" { decoded(value) } else { value.to_owned() }))
}

fn decoded(value: &str) -> String {
    let bytes = base64::engine::general_purpose::STANDARD.decode(value).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A field of the downward API; all labels or annotations together are lines of `key="value"`.
pub(crate) fn downward(path: &str, pod: &Value) -> String {
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        let pointer = format!("/{}", map.replace('.', "/"));
        return string_map(pod.pointer(&pointer)).remove(key).unwrap_or_default();
    }
    match path {
        "metadata.labels" | "metadata.annotations" => {
            let all = string_map(pod.pointer(&format!("/{}", path.replace('.', "/"))));
            let lines: Vec<String> = all.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
            lines.join("\n")
        }
        "status.podIPs" => object::text(pod, "/status/podIP").to_owned(),
        "status.hostIPs" => object::text(pod, "/status/hostIP").to_owned(),
        _ => object::text(pod, &format!("/{}", path.replace('.', "/"))).to_owned(),
    }
}

/// `limits.cpu` and the like, rounded up in units of the divisor. Without a limit of cpu or memory it is what the node
/// has.
pub(crate) fn resource_field(field: &Value, container: &Value, pod: &Value, sources: &dyn Sources) -> String {
    let named = object::text(field, "/containerName");
    let other = list(pod.get("spec").unwrap_or(&Value::Null), "containers").find(|c| object::text(c, "/name") == named);
    let container = other.unwrap_or(container);
    let Some((kind, resource)) = object::text(field, "/resource").split_once('.') else { return String::new() };
    let amount = container.get("resources").and_then(|r| r.get(kind)?.get(resource));
    let parse = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    let of_node = || (kind == "limits").then(|| sources.allocatable().get(resource).copied()).flatten();
    let amount = amount.and_then(parse).or_else(of_node).unwrap_or(Quantity::ZERO);
    let divisor = field.get("divisor").and_then(parse).filter(|d| !d.is_zero()).unwrap_or(Quantity::from_units(1));
    let ratio = amount.as_f64() / divisor.as_f64();
    format!("{:.0}", ratio.ceil())
}

/// There is no DNS: a value that is the stable host name of a Pod, `{hostname}.{subdomain}.{namespace}` with or without
/// `.svc…`, becomes that Pod's address, as its name would resolve on a real cluster.
fn host_address(value: String, pod: &Value, sources: &dyn Sources) -> Result<String, EnvironmentError> {
    let mut parts = value.splitn(4, '.');
    let (Some(host), Some(subdomain), Some(namespace)) = (parts.next(), parts.next(), parts.next()) else {
        return Ok(value);
    };
    let service = parts.next().is_none_or(|rest| rest == "svc" || rest.starts_with("svc."));
    if !service || namespace != object::namespace(pod) {
        return Ok(value);
    }
    let is_host =
        |p: &Value| object::text(p, "/spec/hostname") == host && object::text(p, "/spec/subdomain") == subdomain;
    if is_host(pod) {
        return Ok(object::text(pod, "/status/podIP").to_owned());
    }
    let Some(peer) = sources.pod(host).filter(|peer| is_host(peer)) else { return Ok(value) };
    match object::text(&peer, "/status/podIP") {
        "" => Err(EnvironmentError::Unresolved(value)),
        address => Ok(address.to_owned()),
    }
}

/// Replaces `$(NAME)` by the variable's value; `$$` is a dollar sign, an unknown name stays as written
/// (`k8s.io/kubernetes/third_party/forked/golang/expansion`).
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.get(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// Variables with the order in which their names first came.
#[derive(Default)]
struct Variables {
    names: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Variables {
    fn set(&mut self, name: &str, value: String) {
        if self.values.insert(name.to_owned(), value).is_none() {
            self.names.push(name.to_owned());
        }
    }

    fn in_order(mut self) -> Vec<(String, String)> {
        let values = &mut self.values;
        self.names.into_iter().filter_map(|name| values.remove_entry(&name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl Sources for Fixed {
        fn config_map(&self, name: &str) -> Option<Arc<Value>> {
            (name == "settings").then(|| Arc::new(json!({"data": {"level": "high"}})))
        }
        fn secret(&self, name: &str) -> Option<Arc<Value>> {
            (name == "hf").then(|| Arc::new(json!({"data": {"token": "c2VjcmV0"}})))
        }
        fn pod(&self, name: &str) -> Option<Arc<Value>> {
            let pod = json!({"metadata": {"namespace": "n"}, "spec": {"hostname": "l-0", "subdomain": "l"}, "status": {"podIP": "127.16.0.9"}});
            (name == "l-0").then(|| Arc::new(pod))
        }
        fn volume(&self, _claim: &str) -> Option<Arc<Value>> {
            None
        }
        fn allocatable(&self) -> Amounts {
            Amounts::from([("ephemeral-storage".to_owned(), Quantity::from_units(9))])
        }
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"app.kubernetes.io/name": "x"}},
            "spec": {"nodeName": "node"}, "status": {"podIP": "127.16.0.1"},
        })
    }

    fn env(env: Value) -> Result<Vec<(String, String)>, EnvironmentError> {
        let container = json!({"env": env, "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}});
        resolve(&container, &pod(), &Fixed).map(|all| all.into_iter().filter(|(name, _)| name != "HOSTNAME").collect())
    }

    #[rstest]
    #[case::label(json!({"fieldRef": {"fieldPath": "metadata.labels['app.kubernetes.io/name']"}}), "x")]
    #[case::name(json!({"fieldRef": {"fieldPath": "metadata.name"}}), "p")]
    #[case::address(json!({"fieldRef": {"fieldPath": "status.podIP"}}), "127.16.0.1")]
    #[case::node(json!({"fieldRef": {"fieldPath": "spec.nodeName"}}), "node")]
    #[case::config(json!({"configMapKeyRef": {"name": "settings", "key": "level"}}), "high")]
    #[case::secret(json!({"secretKeyRef": {"name": "hf", "key": "token"}}), "secret")]
    #[case::cpu(json!({"resourceFieldRef": {"resource": "limits.cpu"}}), "2")]
    #[case::of_the_node(json!({"resourceFieldRef": {"resource": "limits.ephemeral-storage"}}), "9")]
    #[case::not_requested(json!({"resourceFieldRef": {"resource": "requests.ephemeral-storage"}}), "0")]
    #[case::memory(json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}), "2048")]
    fn references(#[case] from: Value, #[case] expect: &str) {
        let all = env(json!([{"name": "V", "valueFrom": from}])).unwrap();
        assert_eq!(all, [("V".to_owned(), expect.to_owned())]);
    }

    #[test]
    fn missing_sources_name_themselves() {
        let error = env(json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "k"}}}]));
        assert_eq!(error.unwrap_err().to_string(), "secret \"nope\" not found");
        let optional =
            json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "k", "optional": true}}}]);
        assert_eq!(env(optional).unwrap(), []);
    }

    #[test]
    fn a_host_name_becomes_an_address() {
        let all =
            env(json!([{"name": "LEADER", "value": "l-0.l.n"}, {"name": "URL", "value": "$(LEADER):80"}])).unwrap();
        assert_eq!(all[0].1, "127.16.0.9");
        assert_eq!(all[1].1, "127.16.0.9:80");
        assert_eq!(env(json!([{"name": "IMAGE", "value": "a.b.c"}])).unwrap()[0].1, "a.b.c");
    }

    #[rstest]
    #[case("plain", "plain")]
    #[case("$(A)-$(B)", "1-$(B)")]
    #[case("$$(A)", "$(A)")]
    #[case("$A ${A} $(A", "$A ${A} $(A")]
    #[case("é$(A)é", "é1é")]
    fn expansion(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(expand(text, &BTreeMap::from([("A".to_owned(), "1".to_owned())])), expect);
    }
}

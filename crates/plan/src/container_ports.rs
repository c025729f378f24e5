//! Ports of a container. The API server rejects a container with two ports of the same name or with an invalid number; a
//! workload whose template has one stops its old Pods and cannot create new ones.

use serde_json::Value;

/// Two ports of a container with the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DuplicatePortName {
    /// Name of the container.
    pub container: String,
    /// Name of both ports.
    pub name: String,
    /// Numbers of the ports, in the order of the container.
    pub ports: [u64; 2],
}

/// Returns a message about the first port of a container in `pod_spec` that is no port number.
pub(crate) fn invalid_port(pod_spec: &Value) -> Option<String> {
    containers(pod_spec).find_map(|container| {
        let mut numbers = container["ports"].as_array()?.iter().map(|port| &port["containerPort"]);
        let invalid = numbers.find(|number| number.is_number() && !matches!(number.as_u64(), Some(1..=65_535)))?;
        let name = container["name"].as_str().unwrap_or_default();
        Some(format!("containerPort {invalid} of container {name} is not between 1 and 65535"))
    })
}

fn containers(pod_spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"].into_iter().filter_map(|list| pod_spec[list].as_array()).flatten()
}

/// Returns the first two ports of a container in `pod_spec` that have the same name.
pub(crate) fn duplicate_port_name(pod_spec: &Value) -> Option<DuplicatePortName> {
    containers(pod_spec).find_map(|container| {
        let ports = container["ports"].as_array()?;
        let named = |port: &Value| Some((port["name"].as_str()?.to_owned(), port["containerPort"].as_u64()?));
        let ports: Vec<(String, u64)> = ports.iter().filter_map(named).collect();
        ports.iter().enumerate().find_map(|(index, (name, port))| {
            let (_, first) = ports[..index].iter().find(|(other, _)| other == name)?;
            let container = container["name"].as_str().unwrap_or_default().to_owned();
            Some(DuplicatePortName { container, name: name.clone(), ports: [*first, *port] })
        })
    })
}

/// Returns whether a list of ports has port `number` with this name.
pub(crate) fn has_port(ports: &Value, name: &str, number: u64) -> bool {
    ports.as_array().into_iter().flatten().any(|port| port["name"] == name && port["containerPort"] == number)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::lowest(json!(1), false)]
    #[case::highest(json!(65_535), false)]
    #[case::zero(json!(0), true)]
    #[case::too_large(json!(65_536), true)]
    #[case::negative(json!(-1), true)]
    #[case::missing(json!(null), false)]
    fn port_is_in_range(#[case] port: Value, #[case] is_invalid: bool) {
        let pod_spec = json!({"initContainers": [{"name": "engine", "ports": [{"containerPort": port}]}]});
        assert_eq!(invalid_port(&pod_spec).is_some(), is_invalid);
    }
}

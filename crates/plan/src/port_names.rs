//! Names of the ports of a container. The API server rejects a container with two ports of the same name.

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

/// Returns the first two ports of a container in `pod_spec` that have the same name.
pub(crate) fn duplicate_port_name(pod_spec: &Value) -> Option<DuplicatePortName> {
    let lists = ["containers", "initContainers"];
    let mut containers = lists.into_iter().filter_map(|list| pod_spec[list].as_array()).flatten();
    containers.find_map(|container| {
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

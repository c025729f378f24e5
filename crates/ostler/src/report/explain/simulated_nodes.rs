//! How to add nodes to the running cluster of `ostler up`.

use serde_json::Value;

use super::fields::text;
use crate::node_groups::SIMULATED_ANNOTATION;

/// Returns the command that creates `count` more nodes like the node named `template`. `None` if that node is not a simulated one,
/// or not ready.
pub(super) fn add_command(nodes: &[Value], template: &str, count: usize) -> Option<String> {
    let node = nodes.iter().find(|node| text(node, "/metadata/name") == template)?;
    let is_simulated = node["metadata"]["annotations"][SIMULATED_ANNOTATION] == "true";
    let ready = cluster::find_condition(&node["status"]["conditions"], "Ready");
    if !is_simulated || ready.is_some_and(|ready| ready["status"] != "True") {
        return None;
    }
    let names = new_names(nodes, template, count);
    let (variable, quote, [prefix, suffix]) = match names.as_slice() {
        [name] => (name.as_str(), '\'', [String::new(), String::new()]),
        names => ("$node", '"', [format!("for node in {}; do ", names.join(" ")), "; done".to_owned()]),
    };
    // The copy is cordoned if the node is.
    let uncordon = match node["spec"]["unschedulable"].as_bool() {
        Some(true) => format!(" && kubectl uncordon {variable}"),
        _ => String::new(),
    };
    Some(format!(
        "{prefix}kubectl get node {template} -o yaml | \
         sed {quote}/ uid:/d; /resourceVersion:/d; s/: {template}$/: {variable}/{quote} | \
         kubectl create -f -{uncordon}{suffix}"
    ))
}

/// Returns unused names that continue the numbers of the group, such as `l40s-1` after `l40s-0`.
fn new_names(nodes: &[Value], template: &str, count: usize) -> Vec<String> {
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let group = match template.rsplit_once('-') {
        Some((group, number)) if is_number(number) => group,
        _ => template,
    };
    let is_unused = |name: &String| nodes.iter().all(|node| text(node, "/metadata/name") != *name);
    (0..).map(|number| format!("{group}-{number}")).filter(is_unused).take(count).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::host_node::HOST_ANNOTATION;

    #[rstest]
    #[case::one(
        "big-0",
        1,
        Some(
            "kubectl get node big-0 -o yaml | sed '/ uid:/d; /resourceVersion:/d; s/: big-0$/: big-2/' | kubectl create -f -"
        )
    )]
    #[case::several(
        "big-1",
        2,
        Some(
            "for node in big-2 big-3; do kubectl get node big-1 -o yaml | \
              sed \"/ uid:/d; /resourceVersion:/d; s/: big-1$/: $node/\" | kubectl create -f -; done"
        )
    )]
    #[case::cordoned(
        "cordoned",
        1,
        Some(
            "kubectl get node cordoned -o yaml | sed '/ uid:/d; /resourceVersion:/d; s/: cordoned$/: cordoned-0/' | \
              kubectl create -f - && kubectl uncordon cordoned-0"
        )
    )]
    #[case::not_ready("not-ready", 1, None)]
    #[case::host("this", 1, None)]
    #[case::unknown("x", 1, None)]
    fn copies_a_simulated_node(#[case] template: &str, #[case] count: usize, #[case] expected: Option<&str>) {
        let node = |name: &str, annotation: &str, ready: &str| {
            json!({"metadata": {"name": name, "annotations": {annotation: "true"}}, "spec": {"unschedulable": name == "cordoned"},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let simulated = [("big-0", "True"), ("big-1", "True"), ("cordoned", "True"), ("not-ready", "Unknown")];
        let mut nodes: Vec<Value> =
            simulated.iter().map(|(name, ready)| node(name, SIMULATED_ANNOTATION, ready)).collect();
        nodes.push(node("this", HOST_ANNOTATION, "True"));
        assert_eq!(add_command(&nodes, template, count).as_deref(), expected);
    }
}

//! Determines the image that the operator itself runs, which is also the image of endpoint pickers.

use kube::Client;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use crate::kinds::POD;

/// Returns the image of the operator's own Pod, `namespace`/`pod`, or `None` if the Pod does not exist or cannot be
/// listed. The Pod is listed because the operator has permission to list Pods, but not to get them.
pub async fn own_image(client: Client, namespace: &str, pod: &str) -> Option<String> {
    let params = ListParams::default().fields(&format!("metadata.name={pod}"));
    let pods: Vec<DynamicObject> = match POD.api(client, namespace).list(&params).await {
        Ok(list) => list.items,
        Err(error) => {
            tracing::warn!(namespace, name = pod, error = %cluster::error_chain(&error), "failed to list the operator's own Pod");
            return None;
        }
    };
    let own_pod = pods.into_iter().find(|object| object.metadata.name.as_deref() == Some(pod))?;
    image_of(&serde_json::to_value(own_pod).ok()?)
}

/// Labels of the operator's Pods in `deploy/`.
const OPERATOR_LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "ostler"), ("app.kubernetes.io/component", "operator")];

/// Environment variable that sets the image of endpoint pickers.
const PICKER_IMAGE: &str = "OSTLER_PICKER_IMAGE";

/// Returns the image of endpoint pickers that the operator in one of `pods` uses: the one that its environment sets, else its
/// own image.
pub(crate) fn picker_image(pods: &[Value]) -> Option<String> {
    let has_labels =
        |pod: &&Value| OPERATOR_LABELS.iter().all(|(label, value)| pod["metadata"]["labels"][*label] == *value);
    let operator = pods.iter().find(has_labels)?;
    let containers = operator["spec"]["containers"].as_array().into_iter().flatten();
    let mut variables = containers.filter_map(|container| container["env"].as_array()).flatten();
    let variable = variables.find(|variable| variable["name"] == PICKER_IMAGE);
    variable.and_then(|variable| variable["value"].as_str()).map(str::to_owned).or_else(|| image_of(operator))
}

/// Returns the image of the container that runs `operator`, or of the only container.
fn image_of(pod: &Value) -> Option<String> {
    let containers = pod["spec"]["containers"].as_array()?;
    let runs_operator = |container: &&Value| {
        let mut arguments = ["command", "args"].into_iter().filter_map(|field| container[field].as_array()).flatten();
        arguments.any(|argument| argument == "operator")
    };
    let container =
        containers.iter().find(runs_operator).or_else(|| containers.first().filter(|_| containers.len() == 1))?;
    container["image"].as_str().filter(|image| !image.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn finds_the_picker_image_of_the_operator() {
        let pod = |name: &str, image: &str| {
            json!({"metadata": {"labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/component": "operator"}},
                "spec": {"containers": [{"image": image, "args": ["operator"]}]}})
        };
        let mut pods = [pod("other", "other:1"), pod("ostler", "registry.example/ostler:2")];
        assert_eq!(picker_image(&pods).as_deref(), Some("registry.example/ostler:2"));
        assert_eq!(picker_image(&pods[..1]), None);
        pods[1]["spec"]["containers"][0]["env"] = json!([{"name": PICKER_IMAGE, "value": "picker:1"}]);
        assert_eq!(picker_image(&pods).as_deref(), Some("picker:1"));
    }

    #[rstest]
    #[case::with_sidecar(json!([{"image": "mesh:1"}, {"image": "registry.example/ostler:2", "args": ["operator", "--webhook=x"]}]), Some("registry.example/ostler:2"))]
    #[case::only_container(json!([{"image": "ours:1", "command": ["/init"]}]), Some("ours:1"))]
    #[case::ambiguous(json!([{"image": "a"}, {"image": "b"}]), None)]
    #[case::no_containers(json!([]), None)]
    fn finds_the_operator_container(#[case] containers: Value, #[case] expect: Option<&str>) {
        assert_eq!(image_of(&json!({"spec": {"containers": containers}})).as_deref(), expect);
    }
}

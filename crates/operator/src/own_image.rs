//! The image that the operator itself runs: endpoint pickers are the same program.

use kube::Client;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use crate::kinds::POD;
use crate::run::chain;

/// The image of the operator's own Pod, `namespace`/`pod`. `None` where there is no such Pod or it cannot be read, which is
/// told. It is listed, not fetched: listing Pods is what the operator may do anyway.
pub async fn own_image(client: Client, namespace: &str, pod: &str) -> Option<String> {
    let only = ListParams::default().fields(&format!("metadata.name={pod}"));
    let found: Vec<DynamicObject> = match POD.api(client, namespace).list(&only).await {
        Ok(list) => list.items,
        Err(error) => {
            tracing::warn!(error = %chain(&error), "the operator's own Pod {namespace}/{pod} cannot be read");
            return None;
        }
    };
    let own = found.into_iter().find(|found| found.metadata.name.as_deref() == Some(pod))?;
    image_of(&serde_json::to_value(own).ok()?)
}

/// Of the container that runs `operator`, or of the only one.
fn image_of(pod: &Value) -> Option<String> {
    let containers = pod["spec"]["containers"].as_array()?;
    let runs_us = |container: &&Value| {
        let mut words = ["command", "args"].into_iter().filter_map(|part| container[part].as_array()).flatten();
        words.any(|word| word == "operator")
    };
    let container = containers.iter().find(runs_us).or_else(|| containers.first().filter(|_| containers.len() == 1))?;
    container["image"].as_str().filter(|image| !image.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::beside_a_sidecar(json!([{"image": "mesh:1"}, {"image": "registry.example/ostler:2", "args": ["operator", "--webhook=x"]}]), Some("registry.example/ostler:2"))]
    #[case::started_by_a_wrapper(json!([{"image": "ours:1", "command": ["/init"]}]), Some("ours:1"))]
    #[case::nobody_knows_which(json!([{"image": "a"}, {"image": "b"}]), None)]
    #[case::nothing(json!([]), None)]
    fn the_image_of_the_container_that_is_us(#[case] containers: Value, #[case] expect: Option<&str>) {
        assert_eq!(image_of(&json!({"spec": {"containers": containers}})).as_deref(), expect);
    }
}

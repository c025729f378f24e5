//! Validates requesters of dual pods in manifests: derives the provider that the controller would create.

use actuation::{NominalProvider, Owner, Problem, template_provider};
use api::dual_pods::{UserAnnotation, is_requester};
use api::{Document, Finding};
use apimachinery::LabelSelector;
use apimachinery::object::items;
use serde_json::{Value, json};

/// Label that the Deployment controller adds to Pods and to the selectors of ReplicaSets.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Kinds with a Pod template, and its path.
const TEMPLATES: [(&str, &str, &str); 7] = [
    ("v1", "Pod", ""),
    ("apps/v1", "ReplicaSet", "spec.template"),
    ("apps/v1", "Deployment", "spec.template"),
    ("apps/v1", "StatefulSet", "spec.template"),
    ("batch/v1", "Job", "spec.template"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "spec.leaderWorkerTemplate.leaderTemplate"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate"),
];

/// Returns the reason why the controller would not serve the requesters of a document, for each of its templates, and images that
/// kubelets reject.
pub(crate) fn findings(document: &Document) -> Vec<Finding> {
    let templates = TEMPLATES.iter().filter(|(api_version, kind, _)| document.is_kind(api_version, kind));
    templates.flat_map(|(_, _, path)| template_findings(document, path)).collect()
}

fn template_findings(document: &Document, path: &str) -> Vec<Finding> {
    let pointer = if path.is_empty() { String::new() } else { format!("/{}", path.replace('.', "/")) };
    let Some(template) = document.value.pointer(&pointer).filter(|template| is_requester(template)) else {
        return Vec::new();
    };
    let mut pod = template.clone();
    let owner = owner(document, &mut pod);
    let field = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let own_images = invalid_images(&template["spec"], &field("spec"), "");
    let patch = field(&format!("metadata.annotations[{}]", annotation_key(template, UserAnnotation::ServerPatch)));
    match template_provider(&pod, owner.as_ref()) {
        Ok(NominalProvider { spec, .. }) => [own_images, invalid_images(&spec, &patch, "spec.")].concat(),
        Err(problem) => {
            let path = match &problem {
                Problem::InvalidAnnotation { annotation, .. } => {
                    field(&format!("metadata.annotations[{}]", annotation_key(template, *annotation)))
                }
                Problem::ResourceClaims { field: claims } => field(claims),
                _ => patch,
            };
            let finding = Finding::error(path, problem.to_string()).with_hint(problem.code().remedy());
            [own_images, vec![finding]].concat()
        }
    }
}

/// Returns the set that creates the Pods, whose selector must not match providers. Adds the label of the Deployment controller to
/// `pod`.
fn owner(document: &Document, pod: &mut Value) -> Option<Owner> {
    let mut selector = document.value["spec"]["selector"].clone();
    if document.kind() == "Deployment" {
        pod["metadata"]["labels"][POD_TEMPLATE_HASH] = json!("hash");
        selector["matchLabels"][POD_TEMPLATE_HASH] = json!("hash");
    }
    if !selector.is_object() || document.kind() == "Job" {
        return None;
    }
    let selector = LabelSelector::from_json(&selector).ok()?;
    Some(Owner { name: format!("{} {}", document.kind(), document.name()), selector })
}

/// Returns the key of the annotation as the template spells it.
fn annotation_key(template: &Value, annotation: UserAnnotation) -> String {
    let annotations = &template["metadata"]["annotations"];
    annotation.keys().into_iter().find(|key| annotations.get(key).is_some()).unwrap_or_else(|| annotation.key())
}

/// Returns findings about images with a tag in the position of a digest, as in the examples of the specification.
fn invalid_images(spec: &Value, path: &str, prefix: &str) -> Vec<Finding> {
    let containers = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| items(spec.get(list)).enumerate().map(move |(index, container)| (list, index, container)));
    let finding = |(list, index, container): (&str, usize, &Value)| {
        let image = container["image"].as_str()?;
        let (name, tag) = image.split_once('@').filter(|(_, digest)| !digest.contains(':'))?;
        let message = format!("`{image}` is not a valid image: kubelets report InvalidImageName");
        let (path, message) = match prefix {
            "" => (format!("{path}.{list}[{index}].image"), message),
            prefix => (path.to_owned(), format!("{prefix}{list}[{index}].image: {message}")),
        };
        Some(Finding::error(path, message).with_hint(format!("did you mean `{name}:{tag}`?")))
    };
    containers.filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use api::parse_manifest;
    use rstest::rstest;

    use super::*;

    const EXAMPLE: &str = include_str!("../../actuation/tests/data/requester.yaml");

    /// Returns the example of the specification with a valid image, in a set of this kind whose Pods have the label `app: r`.
    fn set(kind: &str, patch_labels: &str) -> String {
        let mut pod: Value = serde_saphyr::from_str(&EXAMPLE.replace('@', ":")).unwrap();
        let key = "dual-pod.llm-d.ai/server-patch";
        let mut patch: Value = serde_saphyr::from_str(pod["metadata"]["annotations"][key].as_str().unwrap()).unwrap();
        patch["metadata"]["labels"] = serde_saphyr::from_str(patch_labels).unwrap();
        pod["metadata"]["annotations"][key] = json!(patch.to_string());
        pod["metadata"]["labels"] = json!({"app": "r"});
        let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
        let spec = json!({"selector": {"matchLabels": {"app": "r"}}, "template": template});
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "s"}, "spec": spec}).to_string()
    }

    fn rendered(manifest: &str) -> Vec<String> {
        let documents = parse_manifest("f.yaml", manifest).unwrap();
        documents
            .iter()
            .flat_map(|document| findings(document).into_iter().map(|finding| finding.render(document)))
            .collect()
    }

    // spec: DP-18, DP-37
    #[rstest]
    #[case::replica_set("ReplicaSet", "{app: engine}", None)]
    #[case::deployment("Deployment", "{app: engine}", None)]
    #[case::stateful_set("StatefulSet", "{app: null}", None)]
    #[case::adopted_by_a_replica_set("ReplicaSet", "{}", Some("the selector of ReplicaSet s matches"))]
    #[case::adopted_by_a_deployment("Deployment", "{model: m}", Some("the selector of Deployment s matches"))]
    #[case::adopted_by_a_stateful_set("StatefulSet", "{}", Some("the selector of StatefulSet s matches"))]
    #[case::patch(
        "Deployment",
        "[1]",
        Some(
            "failed to construct the nominal server-providing Pod: failed to unmarshal patched pod: metadata.labels must be an object"
        )
    )]
    fn patches_of_sets_are_derived(#[case] kind: &str, #[case] labels: &str, #[case] expected: Option<&str>) {
        let lines = rendered(&set(kind, labels));
        let expected = expected.map(|message| {
            format!("error: f.yaml, document 1 ({kind} s), spec.template.metadata.annotations[dual-pod.llm-d.ai/server-patch]: {message}")
        });
        assert_eq!(lines.len(), expected.iter().len(), "{lines:?}");
        assert!(expected.iter().zip(&lines).all(|(expected, line)| line.starts_with(expected)), "{lines:?}");
    }

    // spec: DP-18
    #[test]
    fn images_of_the_specification_are_rejected() {
        insta::assert_snapshot!(rendered(EXAMPLE).join("\n"));
        assert_eq!(rendered(&EXAMPLE.replace('@', ":")), Vec::<String>::new());
        assert_eq!(rendered(&EXAMPLE.replace("@v0", "@sha256:0")), Vec::<String>::new());
    }
}

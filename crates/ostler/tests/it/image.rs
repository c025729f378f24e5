//! The `Dockerfile` and the manifests of `deploy/` agree.

use serde_json::{Value, json};

use crate::deploy;

const DOCKERFILE: &str = include_str!("../../../../Dockerfile");
const DEPLOY_README: &str = include_str!("../../../../deploy/README.md");
/// The image of this version, as built and deployed.
const IMAGE: &str = concat!("ostler:", env!("CARGO_PKG_VERSION"));

/// Returns the value of an instruction of the last stage.
fn instruction(name: &str) -> &'static str {
    let (_, stage) = DOCKERFILE.rsplit_once("\nFROM ").unwrap();
    let mut values = stage.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next().unwrap_or_else(|| panic!("no {name} in the Dockerfile"))
}

/// Returns the Pods of operators, controllers of dual pods and gateway.
fn pods() -> Vec<Value> {
    let objects = [deploy::objects(), deploy::namespaced_objects()].concat();
    let deployments = objects.into_iter().filter(|object| object["kind"] == "Deployment");
    deployments.map(|deployment| deployment["spec"]["template"]["spec"].clone()).collect()
}

#[test]
fn deployments_run_the_image_as_its_user() {
    assert_eq!(pods().len(), 5);
    for pod in pods() {
        let context = &pod["securityContext"];
        assert_eq!(instruction("USER"), format!("{}:{}", context["runAsUser"], context["runAsGroup"]));
        let container = &pod["containers"][0];
        assert_eq!(container["image"], IMAGE);
        assert_eq!(container["command"], Value::Null, "the arguments follow the entrypoint of the image");
        // The image has no directory that the process could write to, and Secrets are read-only.
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], json!(true));
        let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
        assert!(volumes.iter().all(|volume| volume["secret"].is_object()), "{volumes:?}");
    }
}

#[test]
fn image_contains_the_binary_of_this_version() {
    let (_, destination) = instruction("COPY --from=build").split_once(' ').unwrap();
    assert_eq!(instruction("ENTRYPOINT"), json!([destination]).to_string());
    assert!(DOCKERFILE.contains(&format!("org.opencontainers.image.version=\"{}\"", env!("CARGO_PKG_VERSION"))));
    assert!(DOCKERFILE.contains(&format!("org.opencontainers.image.licenses=\"{}\"", env!("CARGO_PKG_LICENSE"))));
    let command = format!("docker build -t {IMAGE} .\n");
    assert!(DOCKERFILE.contains(&command) && DEPLOY_README.contains(&command));
    assert!(DEPLOY_README.contains(&format!("`docker.io/library/{IMAGE}`")));
}

/// The build needs a toolchain that the workspace accepts.
#[test]
fn toolchain_of_the_image_is_recent_enough() {
    let minor = |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok()).unwrap();
    let (_, version) = DOCKERFILE.split_once("ARG RUST_VERSION=").unwrap();
    assert!(minor(version.lines().next().unwrap()) >= minor(env!("CARGO_PKG_RUST_VERSION")));
}

//! Phase `setup`: creates CRDs, the shipped catalog, nodes and unrelated Pods.

use std::path::{Path, PathBuf};

use api::{Document, parse_manifest};
use cluster::Kind;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use operator::kinds::{ACCELERATOR_CLASS, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, NODE, POD};
use serde_json::{Value, json};

use crate::client::{Cluster, MAX_CONCURRENT_REQUESTS};
use crate::cluster::{NAMESPACE, NAMESPACE_COUNT, namespace, node, unrelated_pod};
use crate::measurements::Measurements;
use crate::parameters::Parameters;
use crate::result::Result;

const CRD: Kind =
    Kind::cluster_scoped("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");

pub(crate) async fn run(cluster: &Cluster, parameters: &Parameters) -> Result<Measurements> {
    let (nodes, pods) = (parameters.get("nodes", 500), parameters.get("unmanaged_pods", 8000));
    cluster.create_all(CRD, api::crds().into_iter().chain(api::integrations::crds()).collect()).await?;
    let names = (0..NAMESPACE_COUNT).map(namespace).chain([operator::DEFAULT_NAMESPACE.to_owned()]);
    cluster.create_all(NAMESPACE, names.map(|name| json!({"metadata": {"name": name}})).collect()).await?;
    for document in catalog_documents()? {
        let kind = [ACCELERATOR_CLASS, CLUSTER_SERVING_RUNTIME, CLUSTER_BASE_MODEL]
            .into_iter()
            .find(|kind| kind.kind == document.kind());
        cluster.create(kind.ok_or("unexpected kind in the catalog")?, document.value).await?;
    }
    cluster.create_all(NODE, (0..nodes).map(node).collect()).await?;
    cluster.create_all(POD, (0..pods).map(|number| unrelated_pod(number, nodes)).collect()).await?;
    let running_status: Value = json!({"phase": "Running"});
    let set_running = |number: usize| {
        let (namespace, name, running_status) = (namespace(number), format!("other-{number}"), &running_status);
        async move { cluster.patch_status(POD, &namespace, &name, running_status).await }
    };
    stream::iter(0..pods).map(set_running).buffer_unordered(MAX_CONCURRENT_REQUESTS).try_collect::<()>().await?;
    Ok(Measurements::default())
}

/// Reads the manifests of `catalog/` in this repository.
fn catalog_documents() -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog");
    for file in yaml_files(&root)? {
        documents.extend(parse_manifest(&file.display().to_string(), &std::fs::read_to_string(&file)?)?);
    }
    Ok(documents)
}

/// Returns all YAML files in a directory tree, sorted.
fn yaml_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        match entry.extension() {
            _ if entry.is_dir() => files.extend(yaml_files(&entry)?),
            Some(extension) if extension == "yaml" => files.push(entry),
            _ => {}
        }
    }
    Ok(files)
}

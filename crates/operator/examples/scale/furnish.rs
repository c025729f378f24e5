//! Definitions, the shipped catalogue, nodes, and Pods of others.

use std::path::{Path, PathBuf};

use api::manifest::{self, Document};
use cluster::Kind;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use operator::kinds::{CLASS, CLUSTER_MODEL, CLUSTER_RUNTIME, NODE, POD};
use serde_json::{Value, json};

use crate::client::{Cluster, PARALLEL};
use crate::cluster::{NAMESPACE, NAMESPACES, namespace, node, stranger};
use crate::{Figures, Result, Sizes};

const DEFINITION: Kind =
    Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");

pub(crate) async fn run(cluster: &Cluster, sizes: &Sizes) -> Result<Figures> {
    let (nodes, pods) = (sizes.get("nodes", 500), sizes.get("strangers", 8000));
    cluster.create_all(DEFINITION, api::crds().into_iter().chain(api::neighbours::crds()).collect()).await?;
    let names = (0..NAMESPACES).map(namespace).chain([operator::NAMESPACE.to_owned()]);
    cluster.create_all(NAMESPACE, names.map(|name| json!({"metadata": {"name": name}})).collect()).await?;
    for document in catalogue()? {
        let kind = [CLASS, CLUSTER_RUNTIME, CLUSTER_MODEL].into_iter().find(|kind| kind.kind == document.kind());
        cluster.create(kind.ok_or("a kind that the catalogue does not have")?, document.value).await?;
    }
    cluster.create_all(NODE, (0..nodes).map(node).collect()).await?;
    cluster.create_all(POD, (0..pods).map(|number| stranger(number, nodes)).collect()).await?;
    let running: Value = json!({"phase": "Running"});
    let run = |number: usize| {
        let (namespace, name, running) = (namespace(number), format!("other-{number}"), &running);
        async move { cluster.patch_status(POD, &namespace, &name, running).await }
    };
    stream::iter(0..pods).map(run).buffer_unordered(PARALLEL).try_collect::<()>().await?;
    Ok(Figures::default())
}

/// The manifests of `catalog/` in this repository.
fn catalogue() -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog");
    for file in files(&root)? {
        documents.extend(manifest::read(&file.display().to_string(), &std::fs::read_to_string(&file)?)?);
    }
    Ok(documents)
}

/// Every YAML file below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        match entry.extension() {
            _ if entry.is_dir() => found.extend(files(&entry)?),
            Some(extension) if extension == "yaml" => found.push(entry),
            _ => {}
        }
    }
    Ok(found)
}

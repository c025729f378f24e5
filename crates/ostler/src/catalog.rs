//! The shipped catalog: accelerator classes, runtimes and models, embedded from the YAML files of `catalog/`.

mod check;
mod filter;
mod find;
mod list;
mod model_files;
#[cfg(test)]
mod page_tests;
mod placement;

use anyhow::Result;
use api::{Document, parse_manifest};
use serde_json::Value;

pub(crate) use check::check;
pub(crate) use filter::Filter;
pub(crate) use find::find;
pub(crate) use list::tables;
pub(crate) use model_files::{document as model_document, is_model, read as read_model};
pub(crate) use placement::placement_comment;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$((concat!("catalog/", $path), include_str!(concat!("../../../catalog/", $path)))),*]
    };
}

const FILES: &[(&str, &str)] = files![
    "classes/amd.yaml",
    "classes/aws.yaml",
    "classes/google.yaml",
    "classes/huawei.yaml",
    "classes/intel.yaml",
    "classes/nvidia-ada.yaml",
    "classes/nvidia-ampere.yaml",
    "classes/nvidia-blackwell.yaml",
    "classes/nvidia-hopper.yaml",
    "classes/nvidia-mig.yaml",
    "classes/nvidia-turing-volta.yaml",
    "models/allenai.yaml",
    "models/baai.yaml",
    "models/bytedance-seed.yaml",
    "models/deepseek-ai.yaml",
    "models/google.yaml",
    "models/huggingfacetb.yaml",
    "models/ibm-granite.yaml",
    "models/intfloat.yaml",
    "models/meta.yaml",
    "models/microsoft.yaml",
    "models/minimaxai.yaml",
    "models/mistralai.yaml",
    "models/moonshotai.yaml",
    "models/nvidia.yaml",
    "models/openai.yaml",
    "models/qwen.yaml",
    "models/zai-org.yaml",
    "runtimes/sglang/deepseek.yaml",
    "runtimes/sglang/e5.yaml",
    "runtimes/sglang/general.yaml",
    "runtimes/sglang/llama-3-vision.yaml",
    "runtimes/sglang/llama-3.yaml",
    "runtimes/sglang/llama-4.yaml",
    "runtimes/sglang/mistral.yaml",
    "runtimes/vllm/amd.yaml",
    "runtimes/vllm/deepseek.yaml",
    "runtimes/vllm/e5.yaml",
    "runtimes/vllm/gaudi.yaml",
    "runtimes/vllm/gemma.yaml",
    "runtimes/vllm/general.yaml",
    "runtimes/vllm/glm.yaml",
    "runtimes/vllm/gpt-oss.yaml",
    "runtimes/vllm/kimi.yaml",
    "runtimes/vllm/llama-3-vision.yaml",
    "runtimes/vllm/llama-3.yaml",
    "runtimes/vllm/llama-4.yaml",
    "runtimes/vllm/minimax.yaml",
    "runtimes/vllm/mistral.yaml",
    "runtimes/vllm/nemotron-3.yaml",
    "runtimes/vllm/nemotron.yaml",
    "runtimes/vllm/qwen.yaml",
    "runtimes/vllm/tpu.yaml",
];

/// Returns all shipped objects in file order.
pub(crate) fn documents() -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (name, text) in FILES {
        documents.extend(parse_manifest(name, text)?);
    }
    Ok(documents)
}

/// A kind of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CatalogKind {
    Runtimes,
    Classes,
    Models,
}

impl CatalogKind {
    pub(crate) const ALL: [Self; 3] = [Self::Runtimes, Self::Classes, Self::Models];

    /// Returns whether `document` is of this kind.
    pub(crate) fn matches(self, document: &Document) -> bool {
        document.kind()
            == match self {
                Self::Runtimes => "ClusterServingRuntime",
                Self::Classes => "AcceleratorClass",
                Self::Models => "ClusterBaseModel",
            }
    }
}

/// Returns the accelerator classes of `shipped`. The classes describe the hardware products that appear in node labels.
pub(crate) fn classes(shipped: &[Document]) -> Vec<Value> {
    shipped
        .iter()
        .filter(|document| CatalogKind::Classes.matches(document))
        .map(|document| document.value.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use apimachinery::Schema;

    use super::*;

    #[test]
    fn catalog_passes_lint() {
        for document in documents().unwrap() {
            assert_eq!(api::lint_document(&document), [], "{} {}", document.source, document.name());
        }
    }

    /// The API server adds defaults to the stored lists. Server-side apply compares a list with the stored one as a whole, so it
    /// would report a conflict with an earlier apply of the same object by another field manager.
    #[test]
    fn lists_state_the_defaults_of_the_schema() {
        let crds = api::crds();
        let spec_of = |kind: &str| &crds.iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap()["spec"];
        for document in documents().unwrap() {
            let schema = &spec_of(document.kind())["versions"][0]["schema"]["openAPIV3Schema"];
            let mut stored = document.value.clone();
            Schema::from_json(schema).unwrap().default(&mut stored);
            let lists = |object: &Value| {
                let spec = object["spec"].as_object().unwrap().clone();
                spec.into_iter().filter(|(_, value)| value.is_array()).collect::<Vec<_>>()
            };
            assert_eq!(lists(&document.value), lists(&stored), "{} {}", document.source, document.name());
        }
    }

    #[test]
    fn embeds_every_file_of_the_catalog_directory() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let files = list_files(&root.join("catalog"));
        let files: Vec<_> = files.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap()).collect();
        assert_eq!(FILES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), files);
    }

    #[test]
    fn kind_and_name_are_unique() {
        let documents = documents().unwrap();
        let mut keys: Vec<_> = documents.iter().map(|document| (document.kind(), document.name())).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    fn list_files(directory: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files.extend(list_files(&path)) } else { files.push(path) }
        }
        files.sort();
        files
    }
}

//! The shipped catalogue: accelerator classes, runtimes and models, as the YAML of `catalog/`.

mod find;
mod list;

use anyhow::Result;
use api::manifest::{self, Document};
use serde_json::Value;

pub(crate) use find::find;
pub(crate) use list::tables;

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
    "models/deepseek-ai.yaml",
    "models/intfloat.yaml",
    "models/meta.yaml",
    "models/mistralai.yaml",
    "models/nvidia.yaml",
    "runtimes/sglang/deepseek.yaml",
    "runtimes/sglang/e5.yaml",
    "runtimes/sglang/llama-3-vision.yaml",
    "runtimes/sglang/llama-3.yaml",
    "runtimes/sglang/llama-4.yaml",
    "runtimes/sglang/mistral.yaml",
    "runtimes/vllm/e5.yaml",
    "runtimes/vllm/llama-3-vision.yaml",
    "runtimes/vllm/llama-3.yaml",
    "runtimes/vllm/llama-4.yaml",
    "runtimes/vllm/mistral.yaml",
    "runtimes/vllm/nemotron.yaml",
];

/// Every shipped object, in file order.
pub(crate) fn documents() -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (name, text) in FILES {
        documents.extend(manifest::read(name, text)?);
    }
    Ok(documents)
}

/// The kinds of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Runtimes,
    Classes,
    Models,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Runtimes, Self::Classes, Self::Models];

    pub(crate) fn holds(self, document: &Document) -> bool {
        document.kind()
            == match self {
                Self::Runtimes => "ClusterServingRuntime",
                Self::Classes => "AcceleratorClass",
                Self::Models => "ClusterBaseModel",
            }
    }
}

/// The accelerator classes among `shipped`: what is known of products that nodes name.
pub(crate) fn classes(shipped: &[Document]) -> Vec<Value> {
    shipped.iter().filter(|document| Kind::Classes.holds(document)).map(|document| document.value.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn the_catalogue_reads_and_lints_clean() {
        for document in documents().unwrap() {
            assert_eq!(api::lint::check(&document), [], "{} {}", document.source, document.name());
        }
    }

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let found = files_below(&root.join("catalog"));
        let found: Vec<_> = found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap()).collect();
        assert_eq!(FILES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), found);
    }

    #[test]
    fn no_two_objects_share_kind_and_name() {
        let documents = documents().unwrap();
        let mut keys: Vec<_> = documents.iter().map(|document| (document.kind(), document.name())).collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    fn files_below(folder: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
        }
        files.sort();
        files
    }
}

//! Selects objects of the catalog.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::Result;
use api::ome::{ClusterBaseModel, ClusterServingRuntime};
use api::{Document, ParameterCount};
use decide::SizeRange;
use serde_json::Value;

use super::placement::Planner;
use super::{CatalogKind, find};
use crate::report::errors::error_with_hint;

/// Properties of the objects to select; all of them apply.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Filter {
    /// List objects whose name, vendor, family or architecture contains this text
    #[arg(long, value_name = "TEXT")]
    family: Option<String>,
    /// List models and runtimes of these sizes, such as `7B..80B`, `..8B` or `70B`
    #[arg(long, value_name = "SIZES")]
    size: Option<Sizes>,
    /// List this class, the models that run on it, and the runtimes that serve them
    #[arg(long, value_name = "CLASS")]
    accelerator: Option<String>,
    /// List runtimes of this engine, and the models that they serve
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<Engine>,
}

/// An engine of the shipped runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    Sglang,
    Vllm,
}

/// A range of model sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes(SizeRange);

// === impl Filter ===

impl Filter {
    /// Returns the objects of `kinds` with all properties, in their order.
    pub(crate) fn select<'d>(&self, documents: &'d [Document], kinds: &[CatalogKind]) -> Result<Vec<&'d Document>> {
        let served = self.served(documents)?;
        let mut selected = Vec::new();
        for document in documents.iter().filter(|document| kinds.iter().any(|kind| kind.matches(document))) {
            if self.matches(document, served.as_ref())? {
                selected.push(document);
            }
        }
        if selected.is_empty() {
            return Err(error_with_hint("no object of the catalog has these properties", "omit one of the options"));
        }
        Ok(selected)
    }

    /// Returns the models, and the runtimes that serve them on the accelerator with the engine; `None` for any.
    fn served(&self, documents: &[Document]) -> Result<Option<BTreeSet<String>>> {
        if self.accelerator.is_none() && self.engine.is_none() {
            return Ok(None);
        }
        let planner = match &self.accelerator {
            Some(class) => Planner::with_class(documents, known_class(documents, class)?)?,
            None => Planner::new(documents)?,
        };
        let mut served = BTreeSet::new();
        for model in documents.iter().filter(|document| CatalogKind::Models.matches(document)) {
            let runtimes = planner.runtimes(model.name());
            let runtimes: Vec<String> = runtimes.into_iter().filter(|runtime| self.has_engine(runtime)).collect();
            if !runtimes.is_empty() {
                served.insert(model.name().to_owned());
                served.extend(runtimes);
            }
        }
        Ok(Some(served))
    }

    fn matches(&self, document: &Document, served: Option<&BTreeSet<String>>) -> Result<bool> {
        if !self.family.as_deref().is_none_or(|text| has_text(document, text)) {
            return Ok(false);
        }
        if CatalogKind::Classes.matches(document) {
            return Ok(self.accelerator.as_deref().is_none_or(|class| document.name() == class));
        }
        Ok(served.is_none_or(|names| names.contains(document.name())) && self.has_size(document)?)
    }

    fn has_engine(&self, runtime: &str) -> bool {
        let expected = match self.engine {
            None => return true,
            Some(Engine::Sglang) => "SGLang",
            Some(Engine::Vllm) => "vLLM",
        };
        find::engine(runtime) == expected
    }

    fn has_size(&self, document: &Document) -> Result<bool> {
        let Some(Sizes(range)) = self.size else { return Ok(true) };
        if CatalogKind::Models.matches(document) {
            let size = document.parse::<ClusterBaseModel>()?.spec.model_parameter_size;
            return Ok(size.is_some_and(|size| range.contains(size.0)));
        }
        let stated = document.parse::<ClusterServingRuntime>()?.spec.model_size_range.unwrap_or_default();
        let (min, max) = (stated.min.map_or(0, |size| size.0), stated.max.map_or(u64::MAX, |size| size.0));
        Ok(range.max.is_none_or(|bound| min <= bound) && range.min.is_none_or(|bound| bound <= max))
    }
}

/// Returns the name of a class of the catalog.
fn known_class<'c>(documents: &[Document], class: &'c str) -> Result<&'c str> {
    let names = || documents.iter().filter(|document| CatalogKind::Classes.matches(document)).map(Document::name);
    if names().any(|name| name == class) {
        return Ok(class);
    }
    let hint = match decide::nearest_name(class, names()) {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => "`ostler catalog list classes` lists all names".to_owned(),
    };
    Err(error_with_hint(format!("--accelerator: unknown class {class:?}"), hint))
}

/// Returns whether the name, or a property that identifies the family, contains the text.
fn has_text(document: &Document, text: &str) -> bool {
    let text = text.to_lowercase();
    let spec = &document.value["spec"];
    let fields = ["vendor", "family", "displayName", "modelArchitecture"].into_iter().map(|field| &spec[field]);
    let formats = spec["supportedModelFormats"].as_array().into_iter().flatten();
    let architectures = formats.map(|format| &format["modelArchitecture"]);
    let values = fields.chain(architectures).filter_map(Value::as_str);
    values.chain([document.name()]).any(|value| value.to_lowercase().contains(&text))
}

// === impl Sizes ===

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| match text.trim() {
            "" => Ok(None),
            bound => bound.parse::<ParameterCount>().map(|size| Some(size.0)).map_err(|error| error.to_string()),
        };
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        Ok(Self(SizeRange { min: parse(min)?, max: parse(max)? }))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::documents;
    use super::*;

    fn select(filter: &Filter, kind: CatalogKind) -> Vec<String> {
        let documents = documents().unwrap();
        filter.select(&documents, &[kind]).unwrap().into_iter().map(|document| document.name().to_owned()).collect()
    }

    #[rstest]
    #[case("7B..80B", Some(7_000_000_000), Some(80_000_000_000))]
    #[case("..8B", None, Some(8_000_000_000))]
    #[case("70B..", Some(70_000_000_000), None)]
    #[case("70B", Some(70_000_000_000), Some(70_000_000_000))]
    fn parses_sizes(#[case] text: &str, #[case] min: Option<u64>, #[case] max: Option<u64>) {
        assert_eq!(text.parse(), Ok(Sizes(SizeRange { min, max })));
    }

    #[test]
    fn rejects_invalid_sizes() {
        assert!("big".parse::<Sizes>().is_err());
    }

    #[test]
    fn selects_by_family_and_size() {
        let filter =
            Filter { family: Some("gpt-oss".to_owned()), size: Some("..30B".parse().unwrap()), ..Filter::default() };
        assert_eq!(select(&filter, CatalogKind::Models), ["gpt-oss-20b"]);
        assert_eq!(select(&filter, CatalogKind::Runtimes), ["vllm-gpt-oss"]);
    }

    #[test]
    fn selects_by_accelerator_and_engine() {
        let filter =
            Filter { accelerator: Some("intel-gaudi3".to_owned()), engine: Some(Engine::Vllm), ..Filter::default() };
        assert_eq!(select(&filter, CatalogKind::Runtimes), ["vllm-gaudi"]);
        assert_eq!(select(&filter, CatalogKind::Classes), ["intel-gaudi3"]);
        let models = select(&filter, CatalogKind::Models);
        assert!(models.contains(&"llama-3-1-8b-instruct".to_owned()), "{models:?}");
        assert!(!models.contains(&"gpt-oss-20b".to_owned()), "{models:?}");
    }

    #[test]
    fn reports_unknown_classes() {
        let filter = Filter { accelerator: Some("intel-gaudi33".to_owned()), ..Filter::default() };
        let error = filter.select(&documents().unwrap(), &CatalogKind::ALL).unwrap_err();
        assert_eq!(error.to_string(), "--accelerator: unknown class \"intel-gaudi33\"");
    }
}

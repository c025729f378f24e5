//! Selects objects of the catalog.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::Result;
use api::ome::{ClusterBaseModel, ClusterServingRuntime};
use api::{Document, ParameterCount};
use decide::{Engine, SizeRange};
use serde_json::Value;

use super::placement::Planner;
use super::{CatalogKind, find};
use crate::report::errors::error_with_hint;

/// Deviation from a size without a range: a model named 70B has 70.6B parameters, one named 7B up to 7.6B.
const TOLERANCE: f64 = 0.1;

/// Properties of the objects to select; all of them apply.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Filter {
    /// List objects whose name, vendor, family or architecture contains this text
    #[arg(long, value_name = "TEXT")]
    family: Option<String>,
    /// List models and runtimes of these sizes, such as `7B..80B`, `..8B`, or `70B` ±10 %
    #[arg(long, value_name = "SIZES")]
    size: Option<Sizes>,
    /// List this class, the models that run on it, and the runtimes that serve them
    #[arg(long, value_name = "CLASS")]
    accelerator: Option<String>,
    /// List runtimes of `sglang` or `vllm`, the models that they serve, and their classes
    #[arg(long, value_name = "ENGINE", value_parser = parse_engine)]
    engine: Option<Engine>,
}

/// A range of model sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes(SizeRange);

/// Names of the models, runtimes and classes of feasible placements.
#[derive(Default)]
struct Placed {
    /// The only class.
    class: Option<String>,
    models: BTreeSet<String>,
    runtimes: BTreeSet<String>,
    classes: BTreeSet<String>,
}

fn parse_engine(name: &str) -> Result<Engine, String> {
    let engine = [Engine::Sglang, Engine::Vllm].into_iter().find(|engine| engine.as_str() == name);
    engine.ok_or_else(|| "expected `sglang` or `vllm`".to_owned())
}

// === impl Filter ===

impl Filter {
    /// Returns the objects of `kinds` with all properties, in their order.
    pub(crate) fn select<'d>(&self, documents: &'d [Document], kinds: &[CatalogKind]) -> Result<Vec<&'d Document>> {
        let placed = self.placed(documents)?;
        let mut selected = Vec::new();
        for document in documents.iter().filter(|document| kinds.iter().any(|kind| kind.matches(document))) {
            if self.matches(document, placed.as_ref())? {
                selected.push(document);
            }
        }
        if selected.is_empty() {
            return Err(error_with_hint("no object of the catalog has these properties", "omit one of the options"));
        }
        Ok(selected)
    }

    /// Returns what runs on the accelerator with the engine; `None` for any.
    fn placed(&self, documents: &[Document]) -> Result<Option<Placed>> {
        let class = self.accelerator.as_deref().map(|class| find::find_class(documents, class)).transpose()?;
        let class = class.map(Document::name);
        let planner = match class {
            Some(class) => Planner::with_class(documents, class)?,
            None if self.engine.is_some() => Planner::new(documents)?,
            None => return Ok(None),
        };
        let has_engine = |document: &&Document| self.engine.is_none_or(|engine| find::engine(document) == Some(engine));
        let runtimes = documents.iter().filter(|document| CatalogKind::Runtimes.matches(document)).filter(has_engine);
        let runtimes: BTreeSet<&str> = runtimes.map(Document::name).collect();
        let mut placed = Placed { class: class.map(str::to_owned), ..Placed::default() };
        for model in documents.iter().filter(|document| CatalogKind::Models.matches(document)) {
            for (runtime, classes) in planner.runtimes(model.name()) {
                if runtimes.contains(runtime.as_str()) {
                    placed.models.insert(model.name().to_owned());
                    placed.runtimes.insert(runtime);
                    placed.classes.extend(classes);
                }
            }
        }
        Ok(Some(placed))
    }

    fn matches(&self, document: &Document, placed: Option<&Placed>) -> Result<bool> {
        if !self.family.as_deref().is_none_or(|text| has_text(document, text)) {
            return Ok(false);
        }
        let is_placed = |names: fn(&Placed) -> &BTreeSet<String>| {
            placed.is_none_or(|placed| names(placed).contains(document.name()))
        };
        if CatalogKind::Classes.matches(document) {
            let is_named =
                placed.and_then(|placed| placed.class.as_deref()).is_none_or(|class| document.name() == class);
            return Ok(is_named && (self.engine.is_none() || is_placed(|placed| &placed.classes)));
        }
        if CatalogKind::Models.matches(document) {
            return Ok(is_placed(|placed| &placed.models) && self.has_size(document)?);
        }
        Ok(is_placed(|placed| &placed.runtimes) && self.has_size(document)?)
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
        if let Some((min, max)) = text.split_once('-') {
            return Err(format!("a range is written `{min}..{max}`"));
        }
        let Some((min, max)) = text.split_once("..") else {
            let size = parse(text)?.ok_or("expected a size such as 70B, or a range such as 7B..80B")?;
            let bound = |factor: f64| Some((size as f64 * factor) as u64);
            return Ok(Self(SizeRange { min: bound(1.0 - TOLERANCE), max: bound(1.0 + TOLERANCE) }));
        };
        let (min, max) = (parse(min)?, parse(max)?);
        if min.zip(max).is_some_and(|(min, max)| min > max) {
            return Err("the range ends before it starts".to_owned());
        }
        Ok(Self(SizeRange { min, max }))
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
    #[case("70B", Some(63_000_000_000), Some(77_000_000_000))]
    fn parses_sizes(#[case] text: &str, #[case] min: Option<u64>, #[case] max: Option<u64>) {
        assert_eq!(text.parse(), Ok(Sizes(SizeRange { min, max })));
    }

    #[rstest]
    #[case("big")]
    #[case("")]
    #[case("80B..7B")]
    #[case("7B-80B")]
    fn rejects_invalid_sizes(#[case] text: &str) {
        assert!(text.parse::<Sizes>().is_err());
    }

    #[test]
    fn selects_models_by_the_size_in_their_names() {
        let filter =
            Filter { family: Some("llama-3".to_owned()), size: Some("70B".parse().unwrap()), ..Filter::default() };
        let models = select(&filter, CatalogKind::Models);
        assert!(models.contains(&"llama-3-1-70b-instruct".to_owned()), "{models:?}");
    }

    #[test]
    fn selects_classes_and_runtimes_by_engine() {
        let filter = Filter { engine: Some(Engine::Sglang), ..Filter::default() };
        let classes = select(&filter, CatalogKind::Classes);
        assert!(classes.contains(&"nvidia-h100-80gb".to_owned()), "{classes:?}");
        assert!(!classes.contains(&"google-tpu-v6e".to_owned()), "{classes:?}");
        let runtimes = select(&filter, CatalogKind::Runtimes);
        assert!(runtimes.contains(&"srt-deepseek-rdma-pd".to_owned()), "{runtimes:?}");
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
    fn class_is_found_without_its_vendor() {
        let filter = Filter { accelerator: Some("MI300X".to_owned()), ..Filter::default() };
        assert_eq!(select(&filter, CatalogKind::Classes), ["amd-mi300x"]);
    }

    #[test]
    fn reports_unknown_classes() {
        let filter = Filter { accelerator: Some("intel-gaudi33".to_owned()), ..Filter::default() };
        let error = filter.select(&documents().unwrap(), &CatalogKind::ALL).unwrap_err();
        assert_eq!(error.to_string(), "\"intel-gaudi33\" is not in the catalog");
    }
}

//! Runtimes that offer to serve the same models: two of one scope must not leave it to chance which one is selected.

use std::collections::{BTreeMap, BTreeSet};

use api::lint::Finding;
use api::ome::{ModelSizeRange, SupportedModelFormat, VersionOperator, VersionedName};
use serde::Deserialize;
use serde_json::Value;

/// Every auto-selected format entry of enabled runtimes, by scope and model.
#[derive(Clone, Debug, Default)]
pub(super) struct Offers(BTreeMap<(Scope, Model), Vec<Offer>>);

/// Kind and namespace: runtimes of different scopes never tie, the nearer one wins.
type Scope = (String, String);

/// What an entry says of a model, versions aside; the last is the diffusion pipeline.
type Model = [Option<String>; 5];

/// One entry of one runtime.
#[derive(Clone, Debug)]
struct Offer {
    runtime: String,
    entry: usize,
    /// Of format and framework.
    versions: [Version; 2],
    range: Range,
    protocols: BTreeSet<String>,
    priority: Option<i32>,
}

type Version = (Option<String>, VersionOperator);
/// Parameters, inclusive.
type Range = (Option<u64>, Option<u64>);

/// As much of a runtime as the comparison asks for.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    disabled: Option<bool>,
    supported_model_formats: Vec<SupportedModelFormat>,
    model_size_range: Option<ModelSizeRange>,
    protocol_versions: Vec<String>,
}

/// How two offers stand to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Clash {
    /// The same in everything, with the same stated priority.
    Same(i32),
    /// Some models fit both equally.
    Overlap,
}

impl Offers {
    pub(super) fn add(&mut self, runtime: &Value) {
        for (key, offer) in read(runtime) {
            self.0.entry(key).or_default().push(offer);
        }
    }

    /// The clashes of one runtime with the others; of each of its entries the worst.
    pub(super) fn check(&self, runtime: &Value) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (key, offer) in read(runtime) {
            let others = self.0.get(&key).into_iter().flatten().filter(|other| other.runtime != offer.runtime);
            let clashes: Vec<(&Offer, Clash)> =
                others.filter_map(|other| Some((other, clash(&offer, other)?))).collect();
            let worst = clashes.iter().find(|(_, clash)| *clash != Clash::Overlap).or(clashes.first());
            findings.extend(worst.map(|(other, clash)| tell(&offer, other, *clash, clashes.len() - 1)));
        }
        findings
    }
}

/// The offers of a runtime; none of one that is disabled, or cannot be read, which is another finding.
fn read(runtime: &Value) -> Vec<((Scope, Model), Offer)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&runtime["kind"]);
    if !["ServingRuntime", "ClusterServingRuntime"].contains(&kind.as_str()) {
        return Vec::new();
    }
    let spec = Spec::deserialize(&runtime["spec"]).unwrap_or_default();
    if spec.disabled == Some(true) {
        return Vec::new();
    }
    let scope = (kind, text(&runtime["metadata"]["namespace"]));
    let range = spec.model_size_range.unwrap_or_default();
    let range = (range.min.map(|size| size.0), range.max.map(|size| size.0));
    let mut protocols: BTreeSet<String> = spec.protocol_versions.into_iter().collect();
    if protocols.is_empty() {
        protocols.insert("openAI".to_owned());
    }
    let automatic = spec.supported_model_formats.iter().enumerate().filter(|(_, one)| one.auto_select == Some(true));
    let offer = |(entry, format): (usize, &SupportedModelFormat)| {
        let offer = Offer {
            runtime: text(&runtime["metadata"]["name"]),
            entry,
            versions: [version(format.format().as_ref()), version(format.model_framework.as_ref())],
            range,
            protocols: protocols.clone(),
            priority: format.priority,
        };
        ((scope.clone(), model(format)), offer)
    };
    automatic.map(offer).collect()
}

fn model(format: &SupportedModelFormat) -> Model {
    [
        format.format().map(|format| format.name),
        format.model_framework.as_ref().map(|framework| framework.name.clone()),
        format.model_architecture.clone(),
        format.quantization.clone(),
        format.diffusion_pipeline.as_ref().map(Value::to_string),
    ]
}

/// Written alike means the same: `v1.0.0` and `1.0.0` are one version.
fn version(of: Option<&VersionedName>) -> Version {
    let text = of.and_then(|of| of.version.as_deref());
    let parsed = text.map(|text| text.parse::<api::version::Version>().map_or(text.to_owned(), |it| it.to_string()));
    (parsed, of.and_then(|of| of.operator).unwrap_or_default())
}

fn clash(one: &Offer, other: &Offer) -> Option<Clash> {
    if one.priority != other.priority {
        return None;
    }
    let same = one.versions == other.versions && one.range == other.range && one.protocols == other.protocols;
    match one.priority {
        Some(priority) if same => Some(Clash::Same(priority)),
        _ => {
            let versions = one.versions.iter().zip(&other.versions).all(|(one, other)| meet(one, other));
            let overlap = versions && tie(one.range, other.range) && !one.protocols.is_disjoint(&other.protocols);
            overlap.then_some(Clash::Overlap)
        }
    }
}

/// Whether one version of a model can fit both; operators other than `Equal` leave that open.
fn meet((one, by): &Version, (other, also_by): &Version) -> bool {
    let exact = [by, also_by].iter().all(|operator| **operator == VersionOperator::Equal);
    !exact || one.is_none() || other.is_none() || one == other
}

/// Whether a size exists that is in both ranges at the same distance: |model − min| + |max − model| is the width of a
/// range with two bounds; with one bound, it is the distance to that.
fn tie(one: Range, other: Range) -> bool {
    match (one, other) {
        ((Some(min), Some(max)), (Some(other_min), Some(other_max))) => {
            max.saturating_sub(min) == other_max.saturating_sub(other_min) && min.max(other_min) <= max.min(other_max)
        }
        _ => one == other,
    }
}

fn tell(offer: &Offer, other: &Offer, clash: Clash, more: usize) -> Finding {
    let others = if more == 0 { String::new() } else { format!(" and {more} more") };
    let (mine, theirs) = (&offer.runtime, &other.runtime);
    let path = format!("spec.supportedModelFormats[{}]", offer.entry);
    let finding = match clash {
        Clash::Same(priority) => Finding::error(
            format!("{path}.priority"),
            format!(
                "`{mine}` and `{theirs}`{others} are selected for the same models with the same priority {priority}"
            ),
        ),
        Clash::Overlap => {
            let priority = offer
                .priority
                .map_or("none has a priority".to_owned(), |priority| format!("both have priority {priority}"));
            Finding::warning(
                path,
                format!(
                    "AmbiguousRuntimes: `{mine}` and `{theirs}`{others} fit the same models equally and {priority}, so the newest is selected"
                ),
            )
        }
    };
    finding.hint("give one of them another priority, or set autoSelect: false")
}

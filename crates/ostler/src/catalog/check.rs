//! Lists facts of models and classes without a source, or with an old one.

use api::Document;
use jiff::civil::Date;
use serde_json::Value;

use super::CatalogKind;
use crate::report::table::table;

/// Annotation with the sources of the facts of an object. A line such as `memory, price: …` is the source of these facts, any other
/// text that of all facts.
const SOURCE: &str = "ome.io/source";
/// Annotation with the day on which the sources were read.
const SOURCE_DATE: &str = "ome.io/source-date";
/// Days after which sources are read again.
const MAX_AGE: i64 = 365;

/// A property of the world that an object states.
struct Fact {
    name: &'static str,
    /// Path in the spec.
    path: &'static str,
    presence: Presence,
}

/// Whether every object states a fact.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Expected,
    /// Hardware without the property states none.
    Optional,
}

const fn expected(name: &'static str, path: &'static str) -> Fact {
    Fact { name, path, presence: Presence::Expected }
}

const fn optional(name: &'static str, path: &'static str) -> Fact {
    Fact { name, path, presence: Presence::Optional }
}

const MODEL_FACTS: [Fact; 3] = [
    expected("number of parameters", "/modelParameterSize"),
    expected("context length", "/maxTokens"),
    expected("dimensions", "/modelConfiguration"),
];
const CLASS_FACTS: [Fact; 10] = [
    expected("memory", "/capabilities/memoryGB"),
    expected("bandwidth", "/capabilities/memoryBandwidthGBps"),
    optional("compute capability", "/capabilities/computeCapability"),
    optional("fp32", "/capabilities/performance/fp32TFLOPS"),
    expected("fp16", "/capabilities/performance/fp16TFLOPS"),
    optional("fp8", "/capabilities/performance/fp8TFLOPS"),
    optional("int8", "/capabilities/performance/int8TOPS"),
    expected("price", "/cost/perHour"),
    expected("PCI IDs", "/discovery/deviceIDs"),
    optional("interconnect", FEATURES),
];
const FEATURES: &str = "/capabilities/features";
/// Prefixes of features that name a link between accelerators.
const INTERCONNECTS: [&str; 6] = ["nvlink", "infinity-fabric", "ici", "roce", "neuron-link", "hccs"];

/// Returns a table of the facts that models and classes lack, of those without a source, and of the sources that are older than a
/// year on `today`.
pub(crate) fn check(documents: &[Document], today: Date) -> String {
    let rows = documents.iter().filter_map(|document| {
        let findings = findings(document, today);
        (!findings.is_empty()).then(|| vec![format!("{}/{}", document.kind(), document.name()), findings.join("; ")])
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() { "All facts have current sources.".to_owned() } else { table(&["OBJECT", "FINDING"], &rows) }
}

fn findings(document: &Document, today: Date) -> Vec<String> {
    let annotation = |name: &str| document.value["metadata"]["annotations"][name].as_str();
    let spec = &document.value["spec"];
    let (stated, unset): (Vec<_>, Vec<_>) = facts(document).iter().partition(|fact| is_stated(spec, fact));
    let source = annotation(SOURCE).unwrap_or_default();
    let without_source = stated.into_iter().filter(|fact| !covers(source, fact.name));
    let missing = unset.into_iter().filter(|fact| fact.presence == Presence::Expected);
    let list = |what: &str, facts: Vec<&str>| (!facts.is_empty()).then(|| format!("no {what}{}", facts.join(", ")));
    let date = (!facts(document).is_empty()).then(|| date_finding(annotation(SOURCE_DATE), today)).flatten();
    date.into_iter()
        .chain(list("source of ", without_source.map(|fact| fact.name).collect()))
        .chain(list("", missing.map(|fact| fact.name).collect()))
        .collect()
}

/// Returns the facts that objects of this kind state.
fn facts(document: &Document) -> &'static [Fact] {
    if CatalogKind::Models.matches(document) {
        return &MODEL_FACTS;
    }
    if CatalogKind::Classes.matches(document) { &CLASS_FACTS } else { &[] }
}

fn is_stated(spec: &Value, fact: &Fact) -> bool {
    let Some(value) = spec.pointer(fact.path).filter(|value| !value.is_null()) else { return false };
    let names_interconnect =
        |feature: &Value| feature.as_str().is_some_and(|name| INTERCONNECTS.iter().any(|link| name.starts_with(link)));
    fact.path != FEATURES || value.as_array().is_some_and(|features| features.iter().any(names_interconnect))
}

/// Returns whether `source` is the source of `fact`.
fn covers(source: &str, fact: &str) -> bool {
    source.lines().any(|line| facts_of_line(line).is_none_or(|facts| facts.contains(&fact)))
}

/// Returns the facts at the start of a line of the annotation; `None` for other text.
fn facts_of_line(line: &str) -> Option<Vec<&str>> {
    let facts: Vec<&str> = line.split_once(": ")?.0.split(", ").collect();
    let is_known = |name: &str| MODEL_FACTS.iter().chain(&CLASS_FACTS).any(|fact| fact.name == name);
    facts.iter().all(|name| is_known(name)).then_some(facts)
}

fn date_finding(date: Option<&str>, today: Date) -> Option<String> {
    let Some(text) = date else { return Some("no source date".to_owned()) };
    match text.parse::<Date>() {
        Ok(date) if date.duration_until(today).as_hours() / 24 > MAX_AGE => {
            Some(format!("the source of {date} is older than a year"))
        }
        Ok(_) => None,
        Err(_) => Some(format!("{SOURCE_DATE} is not a date: {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use api::parse_manifest;

    use super::super::documents;
    use super::*;

    #[test]
    fn lists_missing_and_old_facts() {
        let manifest = |name: &str, date: &str, spec: &str| {
            format!(
                "apiVersion: ome.io/v1beta1\nkind: ClusterBaseModel\nmetadata: {{name: {name}, annotations: {{ome.io/source: x, ome.io/source-date: '{date}'}}}}\nspec: {spec}\n---\n"
            )
        };
        let complete = "{modelParameterSize: 1B, maxTokens: 4096, modelConfiguration: {}}";
        let text = manifest("current", "2026-01-02", complete)
            + &manifest("old", "2025-01-01", complete)
            + &manifest("incomplete", "2026-01-02", "{modelParameterSize: 1B}")
            + &manifest("undated", "recently", complete)
            + "apiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata:\n  name: c\n  annotations:\n    ome.io/source-date: '2026-01-02'\n    ome.io/source: |\n      memory, PCI IDs: x\nspec: {discovery: {deviceIDs: ['2330']}, capabilities: {memoryGB: 80Gi, features: [nvlink-4], performance: {fp8TFLOPS: 1}}}\n";
        let table = check(&parse_manifest("test", &text).unwrap(), Date::constant(2026, 1, 2));
        insta::assert_snapshot!(table, @r#"
        OBJECT                       FINDING
        ClusterBaseModel/old         the source of 2025-01-01 is older than a year
        ClusterBaseModel/incomplete  no context length, dimensions
        ClusterBaseModel/undated     ome.io/source-date is not a date: "recently"
        AcceleratorClass/c           no source of fp8, interconnect; no bandwidth, fp16, price
        "#);
    }

    #[test]
    fn shipped_facts_have_sources() {
        let documents = documents().unwrap();
        for kind in [CatalogKind::Models, CatalogKind::Classes] {
            let count = documents.iter().filter(|document| kind.matches(document)).count();
            assert!(count >= 80, "{kind:?}: {count}");
        }
        insta::assert_snapshot!(check(&documents, Date::constant(2026, 11, 28)));
    }

    /// A misspelt fact would make the line the source of all facts.
    #[test]
    fn sources_of_classes_name_facts() {
        let documents = documents().unwrap();
        for class in documents.iter().filter(|document| CatalogKind::Classes.matches(document)) {
            let source = class.value["metadata"]["annotations"][SOURCE].as_str().unwrap_or_default();
            for line in source.lines() {
                assert!(facts_of_line(line).is_some(), "{}: {line}", class.name());
            }
        }
    }

    #[test]
    fn accepts_complete_catalogs() {
        assert_eq!(check(&[], Date::constant(2026, 1, 2)), "All facts have current sources.");
    }
}

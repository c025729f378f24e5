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
    /// Of a list: prefixes of the elements that state the fact; empty if any value does.
    element_prefixes: &'static [&'static str],
}

/// Whether every object states a fact.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Expected,
    /// A partition has it from its device.
    ExpectedOfDevices,
    /// Hardware without the property states none.
    Optional,
}

const fn expected(name: &'static str, path: &'static str) -> Fact {
    Fact { name, path, presence: Presence::Expected, element_prefixes: &[] }
}

const fn expected_of_devices(name: &'static str, path: &'static str) -> Fact {
    Fact { presence: Presence::ExpectedOfDevices, ..expected(name, path) }
}

const fn optional(name: &'static str, path: &'static str) -> Fact {
    Fact { presence: Presence::Optional, ..expected(name, path) }
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
    expected_of_devices("price", "/cost/perHour"),
    expected_of_devices("PCI IDs", "/discovery/deviceIDs"),
    Fact { element_prefixes: &INTERCONNECTS, ..optional("interconnect", "/capabilities/features") },
];
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
    let without_source = stated.into_iter().filter(|fact| !covers(source, fact.name, facts(document)));
    let is_partition = spec["resources"][0]["divisible"] == true;
    let missing = unset.into_iter().filter(|fact| match fact.presence {
        Presence::Expected => true,
        Presence::ExpectedOfDevices => !is_partition,
        Presence::Optional => false,
    });
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
    let has_prefix = |element: &Value| {
        element.as_str().is_some_and(|element| fact.element_prefixes.iter().any(|prefix| element.starts_with(prefix)))
    };
    fact.element_prefixes.is_empty() || value.as_array().is_some_and(|elements| elements.iter().any(has_prefix))
}

/// Returns whether `source` is the source of `fact`, which is one of the `known` facts of the object.
fn covers(source: &str, fact: &str, known: &[Fact]) -> bool {
    source.lines().any(|line| facts_of_line(line, known).is_none_or(|facts| facts.contains(&fact)))
}

/// Returns the facts at the start of a line of the annotation; `None` for other text.
fn facts_of_line<'s>(line: &'s str, known: &[Fact]) -> Option<Vec<&'s str>> {
    let facts: Vec<&str> = line.split_once(": ")?.0.split(", ").collect();
    facts.iter().all(|name| known.iter().any(|fact| fact.name == *name)).then_some(facts)
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
    fn lists_shipped_facts_without_sources() {
        let documents = documents().unwrap();
        for kind in [CatalogKind::Models, CatalogKind::Classes] {
            let count = documents.iter().filter(|document| kind.matches(document)).count();
            assert!(count >= 80, "{kind:?}: {count}");
        }
        insta::assert_snapshot!(check(&documents, Date::constant(2026, 11, 28)));
    }

    /// A misspelled fact would make the line the source of all facts. Models may have one source for all.
    #[test]
    fn sources_name_facts() {
        for document in documents().unwrap() {
            let source = document.value["metadata"]["annotations"][SOURCE].as_str().unwrap_or_default();
            let names_facts = |line: &str| facts_of_line(line, facts(&document)).is_some();
            if CatalogKind::Classes.matches(&document) || source.lines().any(names_facts) {
                let other = source.lines().find(|line| !names_facts(line));
                assert_eq!(other, None, "{}", document.name());
            }
        }
    }

    #[test]
    fn accepts_complete_catalogs() {
        assert_eq!(check(&[], Date::constant(2026, 1, 2)), "All facts have current sources.");
    }
}

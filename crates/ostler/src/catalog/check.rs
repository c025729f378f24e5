//! Lists models and classes whose facts have no source, or one that is old.

use api::Document;
use jiff::civil::Date;
use serde_json::Value;

use super::CatalogKind;
use crate::report::table::table;

/// Annotation with the sources of the facts of an object.
const SOURCE: &str = "ome.io/source";
/// Annotation with the day on which the sources were read.
const SOURCE_DATE: &str = "ome.io/source-date";
/// Days after which sources are read again.
const MAX_AGE: i64 = 365;

/// Facts of models, by field of the spec, that decisions depend on.
const MODEL_FACTS: [(&str, &str); 3] = [
    ("modelParameterSize", "number of parameters"),
    ("maxTokens", "context length"),
    ("modelConfiguration", "dimensions"),
];
/// Facts of classes, by path in the spec.
const CLASS_FACTS: [(&str, &str); 4] = [
    ("/capabilities/memoryGB", "memory"),
    ("/capabilities/memoryBandwidthGBps", "bandwidth"),
    ("/capabilities/performance", "performance"),
    ("/cost/perHour", "price"),
];

/// Returns a table of the models and classes that lack facts, or whose sources are unknown or older than a year on `today`.
pub(crate) fn check(documents: &[Document], today: Date) -> String {
    let rows = documents.iter().filter_map(|document| {
        let missing = missing_facts(document)?;
        let missing = (!missing.is_empty()).then(|| format!("no {}", missing.join(", ")));
        let findings: Vec<String> = source_finding(document, today).into_iter().chain(missing).collect();
        (!findings.is_empty()).then(|| vec![format!("{}/{}", document.kind(), document.name()), findings.join("; ")])
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() { "All facts have current sources.".to_owned() } else { table(&["OBJECT", "FINDING"], &rows) }
}

fn source_finding(document: &Document, today: Date) -> Option<String> {
    let annotation = |name: &str| document.value["metadata"]["annotations"][name].as_str();
    let (Some(_), Some(text)) = (annotation(SOURCE), annotation(SOURCE_DATE)) else {
        return Some("no source".to_owned());
    };
    match text.parse::<Date>() {
        Ok(date) if date.duration_until(today).as_hours() / 24 > MAX_AGE => {
            Some(format!("the source of {date} is older than a year"))
        }
        Ok(_) => None,
        Err(_) => Some(format!("{SOURCE_DATE} is not a date: {text:?}")),
    }
}

/// Returns the facts that are unset; `None` for objects without facts.
fn missing_facts(document: &Document) -> Option<Vec<&'static str>> {
    let spec = &document.value["spec"];
    let is_unset = |value: Option<&Value>| value.is_none_or(Value::is_null);
    if CatalogKind::Models.matches(document) {
        let unset = MODEL_FACTS.into_iter().filter(|(field, _)| is_unset(spec.get(field)));
        return Some(unset.map(|(_, fact)| fact).collect());
    }
    CatalogKind::Classes.matches(document).then(|| {
        let unset = CLASS_FACTS.into_iter().filter(|(path, _)| is_unset(spec.pointer(path)));
        unset.map(|(_, fact)| fact).collect()
    })
}

#[cfg(test)]
mod tests {
    use api::parse_manifest;

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
            + "apiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {name: c}\nspec: {capabilities: {memoryGB: 80Gi}}\n";
        let table = check(&parse_manifest("test", &text).unwrap(), Date::constant(2026, 1, 2));
        insta::assert_snapshot!(table, @r#"
        OBJECT                       FINDING
        ClusterBaseModel/old         the source of 2025-01-01 is older than a year
        ClusterBaseModel/incomplete  no context length, dimensions
        ClusterBaseModel/undated     ome.io/source-date is not a date: "recently"
        AcceleratorClass/c           no source; no bandwidth, performance, price
        "#);
    }

    #[test]
    fn accepts_complete_catalogs() {
        assert_eq!(check(&[], Date::constant(2026, 1, 2)), "All facts have current sources.");
    }
}

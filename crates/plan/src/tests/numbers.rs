//! Extreme numbers in objects: every plan and remedy is computed without a panic.

use api::{Document, Severity, lint_document, parse_manifest};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Claim, Service, Snapshot};

const OBJECTS: &str = include_str!("numbers.yaml");

/// Values that a quantity, a size, or a number in a string is replaced with.
const TEXTS: &[&str] = &[
    "0",
    "-1",
    "1",
    "2147483647",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999999999999999999999999999",
    "1E18",
    "1E1000",
    "1n",
    "999999999T",
    "16Ei",
    "0.0000000001",
    "é1",
    "",
];

fn number() -> impl Strategy<Value = Value> {
    let limits = [i64::MIN, i64::MAX, i64::from(i32::MIN), i64::from(i32::MAX), i64::from(u32::MAX), -1, 0, 1, 10_000];
    prop_oneof![
        4 => prop::sample::select(limits.to_vec()).prop_map(Value::from),
        1 => Just(json!(u64::MAX)),
        1 => prop::sample::select(vec![0.1, -1.5, 1e308, -1e308]).prop_map(Value::from),
        4 => prop::sample::select(TEXTS).prop_map(Value::from),
    ]
}

/// Returns the paths of the numbers in `value`, also of those in strings.
fn number_paths(value: &Value, path: &str, paths: &mut Vec<String>) {
    const FIXED: [&str; 2] = ["/apiVersion", "/kind"];
    match value {
        Value::Number(_) => paths.push(path.to_owned()),
        Value::String(text) if !FIXED.contains(&path) && text.starts_with(|c: char| c.is_ascii_digit()) => {
            paths.push(path.to_owned());
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| number_paths(item, &format!("{path}/{index}"), paths));
        }
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            number_paths(member, &format!("{path}/{name}"), paths);
        }),
        _ => {}
    }
}

/// Returns the documents with one in 2 to 16 numbers replaced: all of these by the same value, or each by its own.
fn mutated_documents() -> impl Strategy<Value = Vec<Document>> {
    let documents = parse_manifest("numbers.yaml", OBJECTS).unwrap();
    let mut paths = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let mut own = Vec::new();
        number_paths(&document.value, "", &mut own);
        paths.extend(own.into_iter().map(|path| (index, path)));
    }
    let replacements = prop::collection::vec((any::<u8>(), number()), paths.len());
    (2_u8..=16, any::<bool>(), number(), replacements).prop_map(move |(share, is_common, common, replacements)| {
        let mut documents = documents.clone();
        for ((index, path), (chance, own)) in paths.iter().zip(replacements) {
            if chance % share == 0 {
                let value = if is_common { common.clone() } else { own };
                // The API server rejects the object with some values.
                let mut candidate = documents[*index].clone();
                *candidate.value.pointer_mut(path).unwrap() = value;
                if is_valid(&candidate) {
                    documents[*index] = candidate;
                }
            }
        }
        documents
    })
}

fn is_valid(document: &Document) -> bool {
    let findings = lint_document(document);
    findings.iter().all(|finding| finding.severity != Severity::Error)
        && Snapshot::from_documents(std::slice::from_ref(document), &[]).is_ok()
}

/// Returns the claims of all services.
fn claims(services: &[Service], snapshot: &Snapshot) -> Vec<Claim> {
    let plans = services.iter().map(|service| crate::plan_service(snapshot, service));
    plans.filter_map(|plan| Claim::new("default", &plan.name, &plan.components)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn plans_objects_with_extreme_numbers(documents in mutated_documents()) {
        let mut snapshot = Snapshot::from_documents(&documents, &[]).unwrap();
        prop_assert_eq!(crate::plan(&snapshot).services.len(), 4);
        snapshot.claims = claims(&snapshot.services, &snapshot);
        for service in &snapshot.services {
            crate::plan_service(&snapshot, service);
            crate::remedies(&snapshot, service);
        }
    }
}

/// The duration of planning does not depend on the number of Pods.
#[test]
fn gang_of_many_pods_is_planned() {
    let numbers = OBJECTS.replace("size: 3", "size: 9999");
    let documents = parse_manifest("numbers.yaml", &numbers).unwrap();
    let plan = crate::plan(&Snapshot::from_documents(&documents, &[]).unwrap());
    let group = plan.services[2].objects.iter().find(|object| object["kind"] == "PodGroup").unwrap();
    assert_eq!(group["spec"]["minResources"]["nvidia.com/gpu"], "80k");
}

#[test]
fn number_of_nodes_is_limited() {
    let numbers = OBJECTS.replace("size: 3", "size: 2147483647");
    let documents = parse_manifest("numbers.yaml", &numbers).unwrap();
    let plan = crate::plan(&Snapshot::from_documents(&documents, &[]).unwrap());
    let service = &plan.services[2];
    assert_eq!(
        (service.feasible, service.reason.as_str(), service.message.as_str(), service.components.len()),
        (
            false,
            "TooManyPods",
            "spec.engine: a replica has 2147483648 nodes, more than the limit of 10000; reduce worker.size of the service or of its \
             runtime",
            0
        )
    );
}

#[test]
fn accelerators_of_many_nodes_and_containers_saturate() {
    let numbers = OBJECTS.replace("nvidia.com/gpu: \"8\"", "nvidia.com/gpu: \"4294967295\"");
    let documents = parse_manifest("numbers.yaml", &numbers).unwrap();
    let plan = crate::plan(&Snapshot::from_documents(&documents, &[]).unwrap());
    let per_node: Vec<u32> =
        plan.services.iter().flat_map(|plan| plan.components.values()).map(|one| one.accelerators_per_node).collect();
    assert!(per_node.contains(&u32::MAX), "{per_node:?}");
}

#[test]
fn objects_are_feasible() {
    let documents = parse_manifest("numbers.yaml", OBJECTS).unwrap();
    let plan = crate::plan(&Snapshot::from_documents(&documents, &[]).unwrap());
    let messages: Vec<_> =
        plan.services.iter().filter(|service| !service.feasible).map(|service| &service.message).collect();
    assert_eq!(messages, [""; 0], "the numbers of infeasible services are not used");
}

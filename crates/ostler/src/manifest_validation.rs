//! Validates the manifests that a user passes. `ostler lint` reports all findings; `ostler plan` and `ostler up` end with the
//! first error. A service that cannot be planned is an error of `lint` and `plan`; `up` reports it in the status, like a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::Result;
use api::{Document, Finding, ManifestError, Severity, lint_document, ome};
use decide::{FieldError, Runtime, Scope};
use operator::kinds::ACCELERATOR_CLASS;
use operator::{AdmissionContext, validate_picker_config};
use plan::Service;
use serde_json::Value;

use crate::{files, output, requester_validation};

/// API version, kind, namespace and name of an object.
type ObjectKey<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Reads the documents of `paths` and validates each of them. Warnings are printed to standard error.
///
/// # Errors
/// The first error, with file, document and field.
pub(crate) fn read_valid(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let documents = files::read_all(paths)?;
    documents.iter().try_for_each(|document| report(document, document_findings(document)))?;
    Ok(documents)
}

/// Validates an object that ostler created from other files. Warnings are printed to standard error.
///
/// # Errors
/// The first error, with source and field.
pub(crate) fn validate(document: &Document) -> Result<(), ManifestError> {
    report(document, document_findings(document))
}

/// Compares the documents with each other and with `existing` objects, which they are added to. Warnings are printed to standard error.
///
/// # Errors
/// The first error, with file, document and field.
pub(crate) fn validate_together(documents: &[Document], existing: &[Document]) -> Result<()> {
    let findings = comparison_findings(documents, existing);
    Ok(documents.iter().zip(findings).try_for_each(|(document, findings)| report(document, findings))?)
}

/// Removes documents that repeat an earlier one. [`validate_together`] rejects those with other content.
pub(crate) fn without_duplicates(documents: Vec<Document>) -> Vec<Document> {
    let is_first: Vec<bool> = earlier_documents(&documents).iter().map(Option::is_none).collect();
    documents.into_iter().zip(is_first).filter(|(_, is_first)| *is_first).map(|(document, _)| document).collect()
}

/// Rejects documents of the same kind and name with different content.
///
/// # Errors
/// The second document, with the position of the first one.
pub(crate) fn reject_duplicates(documents: &[Document]) -> Result<()> {
    let mut pairs = documents.iter().zip(earlier_documents(documents));
    let mut findings = |(document, earlier): (&Document, Option<&Document>)| {
        report(document, earlier.and_then(|earlier| duplicate(document, earlier)).into_iter().collect())
    };
    Ok(pairs.try_for_each(&mut findings)?)
}

/// Returns all findings about each document. `existing` are the objects that the documents are added to.
pub(crate) fn findings(documents: &[Document], existing: &[Document]) -> Vec<Vec<Finding>> {
    let comparisons = comparison_findings(documents, existing);
    documents
        .iter()
        .zip(comparisons)
        .map(|(document, comparison)| document_findings(document).into_iter().chain(comparison).collect())
        .collect()
}

/// Returns whether the finding rejects the document.
pub(crate) fn is_error(finding: &Finding) -> bool {
    finding.severity == Severity::Error
}

/// Returns the namespace of an object of a namespaced kind.
pub(crate) fn namespace(document: &Document) -> &str {
    document.namespace().filter(|namespace| !namespace.is_empty()).unwrap_or(picker::DEFAULT_NAMESPACE)
}

/// Prints the warnings, and returns the first error. A warning may name the cause of the error, such as a misspelled field.
fn report(document: &Document, findings: Vec<Finding>) -> Result<(), ManifestError> {
    let (errors, warnings): (Vec<_>, Vec<_>) = findings.into_iter().partition(is_error);
    warnings.iter().for_each(|warning| output::print_message(&warning.render(document)));
    errors.into_iter().next().map_or(Ok(()), |error| Err(error.into_manifest_error(document)))
}

/// Returns the findings that do not depend on other objects.
fn document_findings(document: &Document) -> Vec<Finding> {
    let findings = lint_document(document);
    if findings.iter().any(is_error) {
        return findings;
    }
    let requesters = requester_validation::findings(document);
    let findings = findings.into_iter().chain(validate_picker_config(document)).chain(planning_input_error(document));
    findings.chain(requesters).collect()
}

/// Returns why a plan could not use the document: the name of a service that its objects cannot have, or a runtime or class
/// that a decision would ignore.
fn planning_input_error(document: &Document) -> Option<Finding> {
    let field_error = |error: FieldError| Finding::error(error.path, error.cause);
    let runtime = |spec: &ome::ServingRuntimeSpec| {
        Runtime::from_api(document.name(), Scope::Cluster, "", None, spec).err().map(field_error)
    };
    match (document.api_version(), document.kind()) {
        (ome::API_VERSION, "ServingRuntime") => runtime(&document.parse::<ome::ServingRuntime>().ok()?.spec),
        (ome::API_VERSION, "ClusterServingRuntime") => {
            runtime(&document.parse::<ome::ClusterServingRuntime>().ok()?.spec)
        }
        _ if is_class(document) => decide::Class::from_api(&document.parse().ok()?, None).err().map(field_error),
        _ => {
            let ManifestError { path, cause, hint, .. } = Service::from_document(document).err()?;
            Some(Finding { hint, ..Finding::error(path.unwrap_or_default(), cause) })
        }
    }
}

/// Returns the findings about each document that depend on the others and on `existing`.
fn comparison_findings(documents: &[Document], existing: &[Document]) -> Vec<Vec<Finding>> {
    let mut context = admission_context(documents, existing);
    let earlier_documents = earlier_documents(documents);
    let findings = |(document, earlier): (&Document, &Option<&Document>)| {
        let duplicate = earlier.and_then(|earlier| duplicate(document, earlier));
        let conflicts = context.runtime_conflicts(document).into_iter().map(conflict_warning);
        let findings = duplicate.into_iter().chain(conflicts).chain(context.validate(document)).collect();
        // Like `kubectl apply`: of two conflicting objects, the second is rejected.
        if !is_class(document) {
            context.add(&document.value);
        }
        findings
    };
    documents.iter().zip(&earlier_documents).map(findings).collect()
}

/// Returns the warning about a conflict of two runtimes. The API server rejects the second runtime with the same priority, but a plan
/// selects one of them, and deployed systems ship such runtimes.
fn conflict_warning(conflict: Finding) -> Finding {
    match is_error(&conflict) {
        true => Finding {
            severity: Severity::Warning,
            message: format!("{}; the API server rejects the second one", conflict.message),
            ..conflict
        },
        false => conflict,
    }
}

fn is_class(document: &Document) -> bool {
    document.is_kind(ome::API_VERSION, ACCELERATOR_CLASS.kind)
}

/// Returns the objects that the documents are compared with: the existing objects except those that the documents replace, and
/// the documents' classes and role-based services.
fn admission_context(documents: &[Document], existing: &[Document]) -> AdmissionContext {
    let mut context = AdmissionContext::default();
    let replaced: BTreeSet<_> = documents.iter().map(key).collect();
    let retained = existing.iter().filter(|document| !replaced.contains(&key(document)));
    retained.for_each(|document| context.add(&document.value));
    let is_relevant =
        |document: &&Document| is_class(document) || document.api_version() == api::fusioninfer::API_VERSION;
    documents.iter().filter(is_relevant).for_each(|document| context.add(&document.value));
    context
}

/// Returns for each document the first one with the same kind, namespace and name, if it is an earlier one.
fn earlier_documents(documents: &[Document]) -> Vec<Option<&Document>> {
    let mut first_documents: BTreeMap<ObjectKey<'_>, &Document> = BTreeMap::new();
    let mut earlier = Vec::with_capacity(documents.len());
    for document in documents {
        // The API server generates the missing name.
        let is_named = !document.name().is_empty();
        earlier.push(first_documents.get(&key(document)).copied().filter(|_| is_named));
        first_documents.entry(key(document)).or_insert(document);
    }
    earlier
}

fn key(document: &Document) -> ObjectKey<'_> {
    (document.api_version(), document.kind(), namespace(document), document.name())
}

/// Returns the error about a document whose content differs from that of `earlier`, which has the same name.
fn duplicate(document: &Document, earlier: &Document) -> Option<Finding> {
    let content = |document: &Document| {
        let mut value = document.value.clone();
        value.pointer_mut("/metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("namespace"));
        value
    };
    let Document { source, index, .. } = earlier;
    let message = format!("{source}, document {index}, has the same kind and name but different content");
    let finding = || Finding::error("metadata.name", message).with_hint("rename or remove one of the two objects");
    (content(document) != content(earlier)).then(finding)
}

#[cfg(test)]
mod tests {
    use api::parse_manifest;
    use rstest::rstest;

    use super::*;

    fn documents(manifests: &[&str]) -> Vec<Document> {
        let parse = |(index, text): (usize, &&str)| parse_manifest(&format!("{index}.yaml"), text).unwrap();
        manifests.iter().enumerate().flat_map(parse).collect()
    }

    fn model(namespace: &str, format: &str) -> String {
        format!(
            "{{apiVersion: ome.io/v1beta1, kind: BaseModel, metadata: {{name: m{namespace}}}, spec: {{modelFormat: {{name: {format}}}}}}}"
        )
    }

    #[rstest]
    #[case::same_content(&model("", "a"), &model(", namespace: default", "a"), true, 1)]
    #[case::different_content(&model("", "a"), &model("", "b"), false, 1)]
    #[case::default_namespace(&model("", "a"), &model(", namespace: default", "b"), false, 1)]
    #[case::other_namespace(&model("", "a"), &model(", namespace: team", "b"), true, 2)]
    #[case::other_kind(&model("", "a"), &model("", "b").replace("BaseModel", "ClusterBaseModel"), true, 2)]
    fn objects_of_one_name_have_one_content(
        #[case] first: &str,
        #[case] second: &str,
        #[case] is_valid: bool,
        #[case] count: usize,
    ) {
        let documents = documents(&[first, second]);
        let result = reject_duplicates(&documents);
        assert_eq!(result.is_ok(), is_valid);
        if let Err(error) = result {
            let message = error.to_string();
            assert!(message.starts_with("1.yaml, document 1 (BaseModel"), "{message}");
            assert!(
                message
                    .ends_with("metadata.name: 0.yaml, document 1, has the same kind and name but different content")
            );
        }
        assert_eq!(without_duplicates(documents).len(), count);
    }

    #[rstest]
    #[case::capability(
        "AcceleratorClass",
        "{discovery: {nodeSelector: {a: b}}, capabilities: {computeCapability: sm_90}}",
        "spec.capabilities.computeCapability"
    )]
    #[case::condition(
        "ClusterServingRuntime",
        "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 1, conditions: [{modelSizes: '<30B'}]}]}}",
        "spec.acceleratorRequirements.preferenceOrder[0].conditions[0]"
    )]
    #[case::comparison(
        "ServingRuntime",
        "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 1, conditions: [{modelSize: 30B}]}]}}",
        "spec.acceleratorRequirements.preferenceOrder[0].conditions[0].modelSize"
    )]
    fn objects_that_decisions_ignore_are_errors(#[case] kind: &str, #[case] spec: &str, #[case] path: &str) {
        let manifest = format!("{{apiVersion: ome.io/v1beta1, kind: {kind}, metadata: {{name: x}}, spec: {spec}}}");
        let findings = findings(&documents(&[&manifest]), &[]).remove(0);
        let errors: Vec<&str> =
            findings.iter().filter(|finding| is_error(finding)).map(|finding| finding.path.as_str()).collect();
        assert_eq!(errors, [path]);
    }
}

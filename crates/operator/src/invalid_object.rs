//! Invalid runtimes, models and classes: they are excluded from selection, so that they do not affect other services.

use cluster::{Kind, NamespacedName, metadata_field};
use decide::code::outcome::{MODEL_NOT_FOUND, RUNTIME_NOT_FOUND};
use decide::{Warning, WarningSubject};
use plan::ServicePlan;
use serde_json::Value;

use crate::condition_reason::ConditionReason;
use crate::kinds::{BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, SERVING_RUNTIME};

/// Runtime, model or class that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidObject {
    /// Kind of the object.
    pub(crate) kind: Kind,
    /// Namespace and name.
    pub(crate) key: NamespacedName,
    /// The invalid field and its error.
    pub(crate) error: String,
}

// === impl InvalidObject ===

impl InvalidObject {
    /// Formats a message: `Kind namespace/name is invalid and is ignored: …`.
    pub(crate) fn message(&self) -> String {
        let NamespacedName { namespace, name } = &self.key;
        let name = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        format!("{} {name} is invalid and is ignored: {}", self.kind.kind, self.error)
    }

    /// Returns the object as the subject of a warning.
    fn subject(&self) -> WarningSubject {
        let NamespacedName { namespace, name } = self.key.clone();
        WarningSubject::Object { kind: self.kind.kind, namespace, name }
    }

    /// Returns whether the service could select the object if it were valid.
    fn is_visible_to(&self, service: &Value) -> bool {
        !self.kind.namespaced || self.key.namespace == metadata_field(service, "namespace")
    }
}

/// Adds the invalid objects to the plan of a service that they affect: as the reason if the service names the
/// object, otherwise as a warning if the object could have been selected.
pub(crate) fn report_invalid_objects(objects: &[InvalidObject], service: &Value, plan: &mut ServicePlan) {
    for object in objects.iter().filter(|object| object.is_visible_to(service)) {
        let spec = &service["spec"];
        let is_named = |field: &str| spec[field]["name"] == *object.key.name;
        let not_found = match object.kind {
            SERVING_RUNTIME | CLUSTER_SERVING_RUNTIME if is_named("runtime") => {
                Some((RUNTIME_NOT_FOUND, ConditionReason::RuntimeUnreadable))
            }
            BASE_MODEL | CLUSTER_BASE_MODEL if is_named("model") => {
                Some((MODEL_NOT_FOUND, ConditionReason::ModelUnreadable))
            }
            BASE_MODEL | CLUSTER_BASE_MODEL => continue,
            _ => None,
        };
        if let Some((not_found, reason)) = not_found
            && plan.reason == not_found.as_str()
        {
            plan.reason = reason.as_str().to_owned();
            plan.message = object.message();
        }
        add_warning(&mut plan.warnings, object);
    }
}

/// Adds a warning about an invalid object unless the plan already contains one.
fn add_warning(warnings: &mut Vec<Warning>, object: &InvalidObject) {
    let code = match object.kind {
        SERVING_RUNTIME | CLUSTER_SERVING_RUNTIME => decide::code::warning::INVALID_RUNTIME,
        BASE_MODEL | CLUSTER_BASE_MODEL => decide::code::warning::INVALID_MODEL,
        _ => decide::code::warning::INVALID_CLASS,
    };
    let subject = object.subject();
    if warnings.iter().all(|warning| warning.subject.as_ref() != Some(&subject)) {
        warnings.push(Warning::new(code, object.message()).with_subject(subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn invalid(kind: Kind, namespace: &str, name: &str) -> InvalidObject {
        InvalidObject { kind, key: NamespacedName::new(namespace, name), error: "spec.x: not a number".to_owned() }
    }

    /// Returns reason and warnings of a plan after an invalid object was reported.
    fn reason_and_warnings(object: InvalidObject, reason: &str) -> (String, Vec<String>) {
        let service = json!({"metadata": {"namespace": "n", "name": "s"}, "spec": {"model": {"name": "m"}, "runtime": {"name": "r"}}});
        let mut plan = ServicePlan { reason: reason.to_owned(), ..ServicePlan::default() };
        report_invalid_objects(&[object], &service, &mut plan);
        let codes = plan.warnings.into_iter().map(|warning| warning.code).collect();
        (plan.reason, codes)
    }

    #[test]
    fn named_invalid_object_sets_the_reason_and_others_add_warnings() {
        let expected = |reason: &str, codes: &[&str]| {
            (reason.to_owned(), codes.iter().map(|code| (*code).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            reason_and_warnings(invalid(CLUSTER_SERVING_RUNTIME, "", "r"), "RuntimeNotFound"),
            expected("RuntimeUnreadable", &["InvalidRuntime"])
        );
        assert_eq!(
            reason_and_warnings(invalid(CLUSTER_SERVING_RUNTIME, "", "other"), "Selected"),
            expected("Selected", &["InvalidRuntime"])
        );
        assert_eq!(
            reason_and_warnings(invalid(BASE_MODEL, "n", "m"), "ModelNotFound"),
            expected("ModelUnreadable", &["InvalidModel"])
        );
        assert_eq!(reason_and_warnings(invalid(BASE_MODEL, "n", "other"), "Selected"), expected("Selected", &[]));
        assert_eq!(
            reason_and_warnings(invalid(SERVING_RUNTIME, "elsewhere", "r"), "RuntimeNotFound"),
            expected("RuntimeNotFound", &[])
        );
    }

    #[rstest]
    #[case::cluster_scoped(CLUSTER_SERVING_RUNTIME, "", true)]
    #[case::namespaced(SERVING_RUNTIME, "n", true)]
    #[case::same_name_in_other_scope(SERVING_RUNTIME, "n", false)]
    fn warning_of_the_plan_is_not_repeated(#[case] kind: Kind, #[case] namespace: &str, #[case] is_same: bool) {
        let object = &invalid(kind, namespace, "r");
        let other = &invalid(CLUSTER_SERVING_RUNTIME, "", "r");
        let of_plan = if is_same { object } else { other };
        let warning = Warning::new(decide::code::warning::INVALID_RUNTIME, "Runtime r is invalid and ignored: x");
        let mut warnings = vec![warning.with_subject(of_plan.subject())];
        add_warning(&mut warnings, object);
        assert_eq!(warnings.len(), if is_same { 1 } else { 2 });
    }
}

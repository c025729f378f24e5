//! Validates the roles of a service by planning them: reports planning errors and fields without effect.

use api::{Document, Finding};
use plan::Service;

/// Field path of findings that concern several roles.
const ROLES_PATH: &str = "spec.roles";

/// Plans the roles and returns the findings. Only contradictions are errors: an incomplete service is accepted and
/// reported in conditions, so that users can write it in steps.
pub(super) fn validate(document: &Document) -> Vec<Finding> {
    let Ok(Some(Service::RoleBased(service))) = Service::from_document(document) else { return Vec::new() };
    match plan::validate_roles(&document.value, &service) {
        Ok(warnings) => warnings.into_iter().map(|warning| Finding::warning(ROLES_PATH, warning.message)).collect(),
        Err(error) if error.code == plan::code::error::SCHEDULER_CONFLICT => {
            vec![Finding::error(ROLES_PATH, error.message)]
        }
        Err(error) => {
            vec![Finding::warning(ROLES_PATH, error.message).with_hint("no object is created until this is corrected")]
        }
    }
}

#[cfg(test)]
mod tests {
    use api::Severity;
    use rstest::rstest;

    use super::*;

    fn findings(roles: &str) -> Vec<(Severity, String)> {
        let text = format!(
            "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: s}}, spec: {{roles: [{roles}]}}}}"
        );
        let document = api::parse_manifest("s.yaml", &text).unwrap().remove(0);
        validate(&document).into_iter().map(|finding| (finding.severity, finding.message)).collect()
    }

    const ENGINE: &str = "{containers: [{name: e, image: i}]}";

    // spec: TOP-56
    #[test]
    fn rejects_conflicting_scheduler() {
        let role = "{name: w, componentType: worker, multinode: {nodeCount: 2}, template: {spec: {schedulerName: mine, containers: [{name: e, image: i}]}}}";
        let findings = findings(role);
        assert_eq!(findings[0].0, Severity::Error);
        assert!(findings[0].1.contains("mine conflicts with volcano"), "{findings:?}");
    }

    // spec: TOP-10
    #[rstest]
    #[case::router_field_on_worker(format!("{{name: w, componentType: worker, strategy: queue-size, template: {{spec: {ENGINE}}}}}"), "strategy has no effect on a worker")]
    #[case::prefiller_without_decoder(format!("{{name: p, componentType: prefiller, template: {{spec: {ENGINE}}}}}"), "a prefiller without a decoder")]
    #[case::no_container("{name: w, componentType: worker, template: {spec: {containers: []}}}".to_owned(), "at least one container is required")]
    fn warns_about_ignored_fields_and_incomplete_roles(#[case] roles: String, #[case] expect: &str) {
        let findings = findings(&roles);
        assert!(
            findings.len() == 1 && findings[0].0 == Severity::Warning && findings[0].1.contains(expect),
            "{findings:?}"
        );
    }

    #[test]
    fn accepts_complete_service() {
        assert_eq!(findings(&format!("{{name: w, componentType: worker, template: {{spec: {ENGINE}}}}}")), []);
    }
}

//! What laying a role-based service out says of it, told when it is written: what keeps it from being laid out, and what of
//! it has no effect.

use api::lint::Finding;
use api::manifest::Document;
use plan::Service;
use plan::gang::PodGroupSchema;
use plan::topology::Owner;

/// Where a finding stands that is about the roles together.
const ROLES: &str = "spec.roles";

/// Only contradictions are errors: what cannot be laid out yet is kept and told in conditions, so that a service may be
/// written in steps.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    let Ok(Some(Service::Roles(service))) = Service::read(document) else { return Vec::new() };
    let owner = Owner::of(&document.value);
    match plan::roles::topology(owner, &service, PodGroupSchema::default(), plan::PICKER_IMAGE) {
        Ok((_, warnings)) => warnings.into_iter().map(|warning| Finding::warning(ROLES, warning.message)).collect(),
        Err(refusal) if refusal.code == plan::code::refusal::SCHEDULER_CONFLICT => {
            vec![Finding::error(ROLES, refusal.message)]
        }
        Err(refusal) => vec![Finding::warning(ROLES, refusal.message).hint("nothing is made before that is mended")],
    }
}

#[cfg(test)]
mod tests {
    use api::lint::Severity;
    use rstest::rstest;

    use super::*;

    fn found(roles: &str) -> Vec<(Severity, String)> {
        let text = format!(
            "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: s}}, spec: {{roles: [{roles}]}}}}"
        );
        let document = api::manifest::read("s.yaml", &text).unwrap().remove(0);
        check(&document).into_iter().map(|one| (one.severity, one.message)).collect()
    }

    const ENGINE: &str = "{containers: [{name: e, image: i}]}";

    // spec: TOP-56
    #[test]
    fn another_scheduler_than_the_gangs_is_refused() {
        let role = "{name: w, componentType: worker, multinode: {nodeCount: 2}, template: {spec: {schedulerName: mine, containers: [{name: e, image: i}]}}}";
        let found = found(role);
        assert_eq!(found[0].0, Severity::Error);
        assert!(found[0].1.contains("mine contradicts volcano"), "{found:?}");
    }

    // spec: TOP-10
    #[rstest]
    #[case::a_field_of_routers(format!("{{name: w, componentType: worker, strategy: queue-size, template: {{spec: {ENGINE}}}}}"), "strategy has no effect on a worker")]
    #[case::half_a_pair(format!("{{name: p, componentType: prefiller, template: {{spec: {ENGINE}}}}}"), "a prefiller without a decoder")]
    #[case::no_container("{name: w, componentType: worker, template: {spec: {containers: []}}}".to_owned(), "needs at least one container")]
    fn what_has_no_effect_or_cannot_be_is_a_warning(#[case] roles: String, #[case] told: &str) {
        let found = found(&roles);
        assert!(found.len() == 1 && found[0].0 == Severity::Warning && found[0].1.contains(told), "{found:?}");
    }

    #[test]
    fn a_whole_service_is_passed() {
        assert_eq!(found(&format!("{{name: w, componentType: worker, template: {{spec: {ENGINE}}}}}")), []);
    }
}

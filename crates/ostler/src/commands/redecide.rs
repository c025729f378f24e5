//! `ostler redecide KIND/NAME`: re-runs selection for a service.

use anyhow::{Context, Result};
use decide::Decision;
use kube::api::{Patch, PatchParams};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::object_reference::{AcceptedObjects, ObjectReference};
use super::target_service::{ClusterArgs, Target};
use crate::exit::Exit;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct RedecideArgs {
    /// Service: inferenceservice/NAME
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Name of the service, if the first argument is only the kind
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The operator re-runs selection once for each value of this annotation.
const ANNOTATION: &str = plan::labels::REDECIDE;

pub(super) async fn run(args: RedecideArgs) -> Result<Exit> {
    let accepted = AcceptedObjects::ServicesWithSelection;
    let reference = ObjectReference::parse(&args.object, args.name.as_deref(), accepted)?;
    let target = Target::find(&reference, &args.cluster).await?;
    let now = jiff::Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {ANNOTATION: now}}});
    let response = target.api.patch(&target.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    response.context("failed to request a new decision")?;
    output::print_line(&format!(
        "{}: new selection requested ({})\nrun `ostler explain inferenceservice/{}` to see the result",
        target.display_name,
        expected_change(&target.service),
        target.name
    ))?;
    Ok(Exit::Success)
}

/// Describes what a new selection is expected to change, according to the status of the service.
fn expected_change(service: &Value) -> String {
    let stale_condition = cluster::find_condition(&service["status"]["conditions"], "DecisionStale");
    if stale_condition.is_none_or(|condition| condition["status"] != "True") {
        return "the operator has not reported a better selection".to_owned();
    }
    let decision = Decision::deserialize(&service["status"]["decision"]).ok();
    let change = decision.as_ref().and_then(|decision| runtime_change(decision).or_else(|| class_change(decision)));
    change.unwrap_or_else(|| "re-running selection would change the result".to_owned())
}

/// Describes the change of the runtime, if another one ranks first.
fn runtime_change(decision: &Decision) -> Option<String> {
    let selected = decision.candidates.iter().find(|candidate| candidate.selected)?;
    let best = decision.candidates.iter().find(|candidate| candidate.rank == Some(1))?;
    (!best.selected).then(|| format!("runtime {} would be selected instead of {}", best.runtime, selected.runtime))
}

/// Describes the change of the class of a component, if another class ranks first for the selected runtime.
fn class_change(decision: &Decision) -> Option<String> {
    let selected_runtime = decision.candidates.iter().find(|candidate| candidate.selected)?;
    decision.components.iter().find_map(|(name, component)| {
        let selected = component.accelerator_class.as_ref()?;
        let mut classes = selected_runtime.accelerators.iter().filter(|class| class.component == *name);
        let best = classes.find(|class| class.rank == Some(1))?;
        (best.class != *selected).then(|| format!("class {} would be selected instead of {selected}", best.class))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn service(decision_stale: &str, candidates: &Value) -> Value {
        let components = json!({"engine": {"acceleratorClass": "h100", "nodes": 1, "replicas": 1}});
        json!({"status": {
            "conditions": [{"type": "DecisionStale", "status": decision_stale, "message": "m"}],
            "decision": {"feasible": true, "reason": "Kept", "message": "m", "components": components, "candidates": candidates},
        }})
    }

    fn class(name: &str, rank: usize) -> Value {
        json!({"component": "engine", "class": name, "rank": rank, "code": "Eligible", "message": "m"})
    }

    fn runtime(name: &str, rank: usize, selected: bool, classes: &[Value]) -> Value {
        json!({"runtime": name, "scope": "Cluster", "rank": rank, "selected": selected, "accelerators": classes})
    }

    #[rstest]
    #[case::runtime(
        service("True", &json!([runtime("b", 1, false, &[]), runtime("a", 2, true, &[class("h100", 1)])])),
        "runtime b would be selected instead of a"
    )]
    #[case::class(
        service("True", &json!([runtime("a", 1, true, &[class("l40s", 1), class("h100", 2)])])),
        "class l40s would be selected instead of h100"
    )]
    #[case::shape(
        service("True", &json!([runtime("a", 1, true, &[class("h100", 1)])])),
        "re-running selection would change the result"
    )]
    #[case::no_record(
        json!({"status": {"conditions": [{"type": "DecisionStale", "status": "True"}]}}),
        "re-running selection would change the result"
    )]
    #[case::not_stale(
        service("False", &json!([runtime("b", 1, false, &[])])),
        "the operator has not reported a better selection"
    )]
    #[case::no_status(Value::Null, "the operator has not reported a better selection")]
    fn describes_the_expected_change(#[case] service: Value, #[case] expected: &str) {
        assert_eq!(expected_change(&service), expected);
    }
}

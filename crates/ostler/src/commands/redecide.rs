//! `ostler redecide KIND/NAME`: re-runs selection for a service.

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
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

/// Describes what a new selection is expected to change, with the message of the condition, which states the better selection.
fn expected_change(service: &Value) -> String {
    let stale_condition = cluster::find_condition(&service["status"]["conditions"], "DecisionStale")
        .filter(|condition| condition["status"] == "True");
    match stale_condition.and_then(|condition| condition["message"].as_str()) {
        // The message ends with the command that is running.
        Some(message) => {
            format!("DecisionStale: {}", message.split("; run `ostler redecide").next().unwrap_or(message))
        }
        None => "the operator has not reported a better selection".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const CHANGE: &str = "Re-running selection would change the result: x on 1 × l40s ($1/h; next: h100)";
    const MESSAGE: &str = "Re-running selection would change the result: x on 1 × l40s ($1/h; next: h100); run `ostler redecide inferenceservice/chat` to accept it";

    fn service(decision_stale: &Value) -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "message": "m"}, decision_stale]}})
    }

    #[rstest]
    #[case::stale(
        service(&json!({"type": "DecisionStale", "status": "True", "message": MESSAGE})),
        &format!("DecisionStale: {CHANGE}")
    )]
    #[case::not_stale(
        service(&json!({"type": "DecisionStale", "status": "False", "message": MESSAGE})),
        "the operator has not reported a better selection"
    )]
    #[case::no_message(
        service(&json!({"type": "DecisionStale", "status": "True"})),
        "the operator has not reported a better selection"
    )]
    #[case::no_status(Value::Null, "the operator has not reported a better selection")]
    fn describes_the_expected_change(#[case] service: Value, #[case] expected: &str) {
        assert_eq!(expected_change(&service), expected);
    }
}

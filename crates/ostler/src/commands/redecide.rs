//! `ostler redecide KIND/NAME`: re-runs selection for a service.

use std::process::ExitCode;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::connect::{self, ConnectArgs};
use crate::output;
use crate::report::errors::error_with_hint;

#[derive(clap::Args)]
pub(crate) struct RedecideArgs {
    /// Service: inferenceservice/NAME
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Use this namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// The operator re-runs selection once for each value of this annotation.
const ANNOTATION: &str = plan::labels::REDECIDE;

pub(super) async fn run(args: RedecideArgs) -> Result<ExitCode> {
    let name = parse(&args.object)?;
    let connection = connect::connect(&args.connect).await?;
    let namespace = args.namespace.unwrap_or(connection.namespace);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ome.io", "v1beta1", "InferenceService"));
    let api: Api<DynamicObject> = Api::namespaced_with(connection.client, &namespace, &resource);
    let response = api.get_opt(name).await.with_context(|| format!("inferenceservice.ome.io/{name}"))?;
    let service = response.ok_or_else(|| {
        error_with_hint(
            format!("InferenceService `{name}` of ome.io not found in namespace `{namespace}`"),
            "`kubectl get inferenceservices.ome.io -A` lists them; set the namespace with -n",
        )
    })?;
    let message = success_message(name, &serde_json::to_value(&service)?);
    let now = jiff::Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {ANNOTATION: now}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .context("failed to request a new decision")?;
    output::print_line(&message)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of the service. Role-based services are rejected, since they do not use selection.
fn parse(object: &str) -> Result<&str> {
    const HINT: &str = "write inferenceservice/NAME";
    let invalid_object =
        || error_with_hint(format!("`{object}` is not KIND/NAME of an InferenceService of ome.io"), HINT);
    let (kind, name) = object.split_once('/').ok_or_else(invalid_object)?;
    let (kind, group) = kind.split_once('.').map_or((kind, "ome.io"), |(kind, group)| (kind, group));
    if group == "fusioninfer.io" || kind == "fisvc" {
        return Err(error_with_hint(
            format!("{object}: role-based services do not use selection"),
            "edit the roles of the service instead",
        ));
    }
    let is_service =
        ["inferenceservice", "inferenceservices", "isvc"].iter().any(|name| kind.eq_ignore_ascii_case(name));
    if is_service && group == "ome.io" && !name.is_empty() { Ok(name) } else { Err(invalid_object()) }
}

/// Returns the message after the request, with the selection that the operator has reported as better.
fn success_message(name: &str, service: &Value) -> String {
    let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
    let stale_condition =
        conditions.into_iter().find(|condition| condition["type"] == "DecisionStale" && condition["status"] == "True");
    let message = stale_condition
        .and_then(|stale| stale["message"].as_str())
        .unwrap_or("the operator has not reported a better selection");
    // Omit the end of the message, which advises to run this command.
    let advice_start = message.find("`ostler redecide").and_then(|start| message[..start].rfind("; "));
    let reason = advice_start.map_or(message, |end| &message[..end]);
    format!(
        "inferenceservice.ome.io/{name}: new selection requested ({reason})\nrun `ostler explain inferenceservice/{name}` to see the result"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("inferenceservice/chat", Some("chat"))]
    #[case("isvc/chat", Some("chat"))]
    #[case("InferenceService.ome.io/chat", Some("chat"))]
    #[case("inferenceservice.fusioninfer.io/chat", None)]
    #[case("fisvc/chat", None)]
    #[case("pod/chat", None)]
    #[case("chat", None)]
    #[case("isvc/", None)]
    fn parses_objects(#[case] object: &str, #[case] name: Option<&str>) {
        assert_eq!(parse(object).ok(), name);
    }

    #[test]
    fn message_names_the_better_selection() {
        let service = json!({"status": {"conditions": [{"type": "DecisionStale", "status": "True",
            "message": "Re-running selection would change the result: x on 1 × l40s ($1/h; next: h100); run `ostler redecide inferenceservice/chat` to accept it"}]}});
        assert!(
            success_message("chat", &service)
                .contains("(Re-running selection would change the result: x on 1 × l40s ($1/h; next: h100))")
        );
        assert!(success_message("chat", &Value::Null).contains("the operator has not reported a better selection"));
    }
}

//! `ostler redecide KIND/NAME`: accept what would be chosen today.

use std::process::ExitCode;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::connect::{self, ConnectArgs};
use crate::output;
use crate::report::errors::hinted;

#[derive(clap::Args)]
pub(crate) struct RedecideArgs {
    /// `inferenceservice/NAME`
    object: String,
    /// Namespace of the service; otherwise the context's
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// The operator answers each value of this annotation once.
const ANNOTATION: &str = plan::labels::REDECIDE;

pub(super) async fn run(args: RedecideArgs) -> Result<ExitCode> {
    let name = parse(&args.object)?;
    let connection = connect::connect(&args.connect).await?;
    let namespace = args.namespace.unwrap_or(connection.namespace);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ome.io", "v1beta1", "InferenceService"));
    let api: Api<DynamicObject> = Api::namespaced_with(connection.client, &namespace, &resource);
    let read = api.get_opt(name).await.with_context(|| format!("inferenceservice.ome.io/{name}"))?;
    let service = read.ok_or_else(|| {
        hinted(
            format!("there is no InferenceService `{name}` of ome.io in namespace `{namespace}`"),
            "`kubectl get inferenceservices.ome.io -A` lists them; choose the namespace with -n",
        )
    })?;
    let text = outcome(name, &serde_json::to_value(&service)?);
    let now = jiff::Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {ANNOTATION: now}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.context("asking for a new decision")?;
    output::print_line(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The service's name. Roles state everything themselves, so there is nothing to decide.
fn parse(object: &str) -> Result<&str> {
    const HINT: &str = "write inferenceservice/NAME";
    let wrong = || hinted(format!("`{object}` is not KIND/NAME of a service that is decided on"), HINT);
    let (kind, name) = object.split_once('/').ok_or_else(wrong)?;
    let (kind, group) = kind.split_once('.').map_or((kind, "ome.io"), |(kind, group)| (kind, group));
    if group == "fusioninfer.io" || kind == "fisvc" {
        return Err(hinted(
            format!("{object}: role-based services choose nothing, so there is nothing to decide again"),
            "edit its roles instead",
        ));
    }
    let known = ["inferenceservice", "inferenceservices", "isvc"].iter().any(|known| kind.eq_ignore_ascii_case(known));
    if known && group == "ome.io" && !name.is_empty() { Ok(name) } else { Err(wrong()) }
}

/// What is asked for, and where the answer will stand.
fn outcome(name: &str, service: &Value) -> String {
    let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
    let stale = conditions.into_iter().find(|one| one["type"] == "DecisionStale" && one["status"] == "True");
    let known = stale.and_then(|stale| stale["message"].as_str()).and_then(|message| message.split_once("; `"));
    let why = known.map_or_else(
        || "no better choice is known; the service is decided anew all the same".to_owned(),
        |(message, _)| message.to_owned(),
    );
    format!(
        "inferenceservice.ome.io/{name}: a new decision is asked for ({why})\n`ostler explain inferenceservice/{name}` shows it"
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
    fn objects(#[case] object: &str, #[case] name: Option<&str>) {
        assert_eq!(parse(object).ok(), name);
    }

    #[test]
    fn the_better_choice_is_named() {
        let service = json!({"status": {"conditions": [{"type": "DecisionStale", "status": "True",
            "message": "now x on 1 × l40s would be chosen; `ostler redecide inferenceservice/chat` accepts it"}]}});
        assert!(outcome("chat", &service).contains("(now x on 1 × l40s would be chosen)"));
        assert!(outcome("chat", &Value::Null).contains("no better choice is known"));
    }
}

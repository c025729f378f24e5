//! `ostler explain KIND/NAME`: the recorded decision and the why-not-ready tree of a live service.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use api::manifest::Document;
use clap::ValueEnum;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::connect::{self, ConnectArgs};
use crate::report::errors::hinted;
use crate::report::explain::{Explanation, render};

#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    /// `inferenceservice/NAME`; `inferenceservice.ome.io/NAME` where two kinds share the name
    object: String,
    #[arg(short, long, default_value = "default")]
    namespace: String,
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// A kind that can be explained.
struct Kind {
    group: &'static str,
    version: &'static str,
    short: &'static str,
    /// Label that names the service on its Pods.
    label: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind { group: "ome.io", version: "v1beta1", short: "isvc", label: "ome.io/inferenceservice" },
    Kind { group: "fusioninfer.io", version: "v1alpha1", short: "fisvc", label: "fusioninfer.io/service" },
];

/// What a decision is made of.
const SUPPLY: [(&str, &str, &str); 7] = [
    ("ome.io", "v1beta1", "ServingRuntime"),
    ("ome.io", "v1beta1", "ClusterServingRuntime"),
    ("ome.io", "v1beta1", "BaseModel"),
    ("ome.io", "v1beta1", "ClusterBaseModel"),
    ("ome.io", "v1beta1", "AcceleratorClass"),
    ("", "v1", "Node"),
    ("", "v1", "Pod"),
];

pub(super) async fn run(args: ExplainArgs) -> Result<ExitCode> {
    let client = connect::client(&args.connect).await?;
    let (kind, name) = parse(&args.object)?;
    let (kind, service) = find(&client, &args.namespace, &kind, name).await?;
    let pods = list(&client, "", "v1", "Pod", &args.namespace, Some(&format!("{}={name}", kind.label))).await?;
    let remedies = remedies(&client, &service).await?;
    let explanation = Explanation::of(&service, &pods, remedies);
    let text = match args.output {
        Output::Text => render(&explanation),
        Output::Json => serde_json::to_string_pretty(&explanation)?,
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

/// The kinds that `KIND/NAME` may mean.
fn parse(object: &str) -> Result<(Vec<&'static Kind>, &str)> {
    let wrong = || {
        hinted(format!("{object:?} is not KIND/NAME of a kind that can be explained"), "write inferenceservice/NAME")
    };
    let (kind, name) = object.split_once('/').ok_or_else(wrong)?;
    let (kind, group) = kind.split_once('.').map_or((kind, None), |(kind, group)| (kind, Some(group)));
    let named = |candidate: &&Kind| {
        let spelt = ["inferenceservice", "inferenceservices"].iter().any(|known| kind.eq_ignore_ascii_case(known));
        (spelt || kind == candidate.short) && group.is_none_or(|group| group == candidate.group)
    };
    let kinds: Vec<_> = KINDS.iter().filter(named).collect();
    if kinds.is_empty() || name.is_empty() { Err(wrong()) } else { Ok((kinds, name)) }
}

async fn find<'k>(client: &Client, namespace: &str, kinds: &[&'k Kind], name: &str) -> Result<(&'k Kind, Value)> {
    let mut found = Vec::new();
    for kind in kinds {
        let resource = resource(kind.group, kind.version, "InferenceService");
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        if let Some(service) =
            api.get_opt(name).await.with_context(|| format!("inferenceservice.{}/{name}", kind.group))?
        {
            found.push((*kind, serde_json::to_value(service)?));
        }
    }
    match found.len() {
        0 => Err(hinted(
            format!("no InferenceService {name:?} in namespace {namespace:?}"),
            "`kubectl get inference -A` lists them; choose the namespace with -n",
        )),
        1 => Ok(found.remove(0)),
        _ => Err(hinted(
            format!("{name:?} is an InferenceService of two groups"),
            format!("write inferenceservice.ome.io/{name} or inferenceservice.fusioninfer.io/{name}"),
        )),
    }
}

async fn list(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: &str,
    labels: Option<&str>,
) -> Result<Vec<Value>> {
    let resource = resource(group, version, kind);
    let api: Api<DynamicObject> = if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    };
    let params = labels.map_or_else(ListParams::default, |labels| ListParams::default().labels(labels));
    let objects = api.list(&params).await.with_context(|| format!("listing {kind}"))?;
    objects.items.into_iter().map(|object| Ok(serde_json::to_value(object)?)).collect()
}

/// Decides again, with the cluster as it is and one constraint lifted at a time.
async fn remedies(client: &Client, service: &Value) -> Result<Vec<String>> {
    let document = |value: Value| Document { source: "cluster".into(), index: 1, value };
    let mut supply = Vec::new();
    for (group, version, kind) in SUPPLY {
        supply.extend(list(client, group, version, kind, "", None).await?.into_iter().map(document));
    }
    let mut snapshot = plan::Snapshot::from_documents(&[document(service.clone())], &[])?;
    for object in &supply {
        // What cannot be read takes no part in decisions; a broken neighbour must not hide why this service waits.
        snapshot.add_supply(object).ok();
    }
    let remedies = snapshot.services.iter().flat_map(|service| plan::remedies(&snapshot, service));
    Ok(remedies.map(|remedy| remedy.to_string()).collect())
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::both("inferenceservice/chat", &["ome.io", "fusioninfer.io"])]
    #[case::one_group("InferenceService.ome.io/chat", &["ome.io"])]
    #[case::short("fisvc/chat", &["fusioninfer.io"])]
    fn kinds(#[case] object: &str, #[case] groups: &[&str]) {
        let (kinds, name) = parse(object).unwrap();
        assert_eq!(kinds.iter().map(|kind| kind.group).collect::<Vec<_>>(), groups);
        assert_eq!(name, "chat");
    }

    #[rstest]
    #[case("chat")]
    #[case("pod/chat")]
    #[case("inferenceservice/")]
    fn other_things_are_refused(#[case] object: &str) {
        assert!(parse(object).is_err());
    }
}

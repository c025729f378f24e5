//! `ostler explain KIND/NAME`: explains the state of an object in the cluster and suggests changes.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use decide::ProposedChange;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::cluster_objects::{self, ClusterObjects};
use crate::connect::{self, ConnectArgs};
use crate::output;
use crate::report::errors::error_with_hint;
use crate::report::explain::{Explanation, class, pod_diagnostics, render, runtime, service};

#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    /// Object: inferenceservice/NAME, acceleratorclass/NAME, runtime/NAME or model/NAME
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Use this namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Print the explanation in this format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// A kind that `ostler explain` supports.
#[derive(Debug)]
pub(super) struct SupportedKind {
    gvk: cluster_objects::StaticGvk,
    /// Plural, short names and category, in lower case.
    names: &'static [&'static str],
    is_namespaced: bool,
    object_type: ObjectType,
}

/// Selects how an object is explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectType {
    Service,
    Class,
    Runtime,
    Model,
}

const KINDS: [SupportedKind; 7] = [
    SupportedKind {
        gvk: cluster_objects::OME_SERVICE,
        names: &["inferenceservices", "isvc", "service", "inference"],
        is_namespaced: true,
        object_type: ObjectType::Service,
    },
    SupportedKind {
        gvk: cluster_objects::ROLE_BASED_SERVICE,
        names: &["inferenceservices", "fisvc", "service", "inference"],
        is_namespaced: true,
        object_type: ObjectType::Service,
    },
    SupportedKind {
        gvk: ("ome.io", "v1beta1", "AcceleratorClass"),
        names: &["acceleratorclasses", "aclass", "class"],
        is_namespaced: false,
        object_type: ObjectType::Class,
    },
    SupportedKind {
        gvk: ("ome.io", "v1beta1", "ServingRuntime"),
        names: &["servingruntimes", "srt", "runtime"],
        is_namespaced: true,
        object_type: ObjectType::Runtime,
    },
    SupportedKind {
        gvk: ("ome.io", "v1beta1", "ClusterServingRuntime"),
        names: &["clusterservingruntimes", "csrt", "runtime"],
        is_namespaced: false,
        object_type: ObjectType::Runtime,
    },
    SupportedKind {
        gvk: ("ome.io", "v1beta1", "BaseModel"),
        names: &["basemodels", "model"],
        is_namespaced: true,
        object_type: ObjectType::Model,
    },
    SupportedKind {
        gvk: ("ome.io", "v1beta1", "ClusterBaseModel"),
        names: &["clusterbasemodels", "model"],
        is_namespaced: false,
        object_type: ObjectType::Model,
    },
];

impl SupportedKind {
    /// Returns whether `name`, in lower case, is a name of this kind.
    fn has_name(&self, name: &str) -> bool {
        self.names.contains(&name) || self.gvk.2.to_lowercase() == name
    }

    /// Returns `KIND.GROUP/NAME`, which is unambiguous.
    fn qualified_name(&self, name: &str) -> String {
        format!("{}.{}/{name}", self.gvk.2.to_lowercase(), self.gvk.0)
    }
}

pub(super) async fn run(args: ExplainArgs) -> Result<ExitCode> {
    let (kinds, name) = parse(&args.object)?;
    let connection = connect::connect(&args.connect).await?;
    let namespace = args.namespace.clone().unwrap_or(connection.namespace);
    let (kind, object) = find(&connection.client, &namespace, &kinds, name).await?;
    let mut objects = ClusterObjects::read(&connection.client).await?;
    if kind.object_type == ObjectType::Service {
        objects.pod_diagnostics =
            pod_diagnostics::collect(&connection.client, &namespace, &service::service_pods(&object, &objects)).await;
    }
    let explanation = explain(kind, &object, &objects);
    let text = match args.output {
        Output::Text => render(&explanation),
        Output::Json => serde_json::to_string_pretty(&explanation)?,
    };
    output::print_line(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn explain(kind: &SupportedKind, object: &Value, objects: &ClusterObjects) -> Explanation {
    let now = Timestamp::now();
    match kind.object_type {
        ObjectType::Service => service::explain(object, explain_context(objects, object, now)),
        ObjectType::Class => class::explain(object, objects, now),
        ObjectType::Runtime => runtime::explain_runtime(object, objects, now),
        ObjectType::Model => runtime::explain_model(object, objects, now),
    }
}

/// Parses `KIND/NAME` or `KIND.GROUP/NAME`: the kinds with that name, and the object's name.
fn parse(object: &str) -> Result<(Vec<&'static SupportedKind>, &str)> {
    let invalid_object = || {
        let hint = "write inferenceservice/NAME, acceleratorclass/NAME, runtime/NAME or model/NAME";
        error_with_hint(format!("`{object}` is not KIND/NAME of a supported kind"), hint)
    };
    let (kind, name) = object.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(invalid_object)?;
    let kind = kind.to_lowercase();
    let (kind, group) = kind.split_once('.').map_or((kind.as_str(), None), |(kind, group)| (kind, Some(group)));
    let matches_kind =
        |supported: &&SupportedKind| supported.has_name(kind) && group.is_none_or(|group| group == supported.gvk.0);
    let kinds: Vec<_> = KINDS.iter().filter(matches_kind).collect();
    if kinds.is_empty() { Err(invalid_object()) } else { Ok((kinds, name)) }
}

/// Parses `KIND/NAME` of a service: the kinds with that name, and the object's name.
pub(super) fn service_kinds(object: &str) -> Result<(Vec<&'static SupportedKind>, &str)> {
    let invalid_object =
        || error_with_hint(format!("`{object}` is not KIND/NAME of a service"), "write inferenceservice/NAME");
    let (kinds, name) = parse(object).map_err(|_| invalid_object())?;
    let services: Vec<_> = kinds.into_iter().filter(|kind| kind.object_type == ObjectType::Service).collect();
    if services.is_empty() { Err(invalid_object()) } else { Ok((services, name)) }
}

/// Reads the service `KIND/NAME` from the cluster.
pub(super) async fn find_service(
    client: &Client,
    namespace: &str,
    object: &str,
) -> Result<(cluster_objects::StaticGvk, Value)> {
    let (kinds, name) = service_kinds(object)?;
    let (kind, service) = find(client, namespace, &kinds, name).await?;
    Ok((kind.gvk, service))
}

async fn find<'k>(
    client: &Client,
    namespace: &str,
    kinds: &[&'k SupportedKind],
    name: &str,
) -> Result<(&'k SupportedKind, Value)> {
    let mut matches = Vec::new();
    for kind in kinds {
        if let Some(object) =
            cluster_objects::get(client, kind.gvk, kind.is_namespaced.then_some(namespace), name).await?
        {
            matches.push((*kind, object));
        }
    }
    match matches.len() {
        0 => Err(not_found(kinds, namespace, name)),
        1 => Ok(matches.remove(0)),
        _ => {
            let names: Vec<String> = matches.iter().map(|(kind, _)| kind.qualified_name(name)).collect();
            Err(error_with_hint(format!("`{name}` is ambiguous"), format!("write {}", names.join(" or "))))
        }
    }
}

fn not_found(kinds: &[&SupportedKind], namespace: &str, name: &str) -> anyhow::Error {
    let mut names: Vec<&str> = kinds.iter().map(|kind| kind.gvk.2).collect();
    names.dedup();
    let is_namespaced = kinds.iter().any(|kind| kind.is_namespaced);
    let location = if is_namespaced { format!(" in namespace `{namespace}`") } else { String::new() };
    let plural = kinds.first().map(|kind| kind.names[0]).unwrap_or_default();
    let hint = if is_namespaced {
        format!("`kubectl get {plural} -A` lists them; set the namespace with -n")
    } else {
        format!("`kubectl get {plural}` lists them")
    };
    error_with_hint(format!("{} `{name}` not found{location}", names.join(" or ")), hint)
}

/// Plans the service again, with the current cluster and with one constraint lifted at a time, and collects the remedies. If
/// no remedy is found, other models are tried.
pub(crate) fn explain_context<'a>(
    objects: &'a ClusterObjects,
    object: &Value,
    now: Timestamp,
) -> service::ExplainContext<'a> {
    let mut context = service::ExplainContext {
        objects,
        remedies: Vec::new(),
        capacity_remedies: Vec::new(),
        settings: BTreeMap::new(),
        now,
    };
    let snapshot = objects.snapshot();
    let Ok(Some(service)) = plan::Service::from_document(&cluster_objects::document(object.clone())) else {
        return context;
    };
    let service_plan = plan::plan_service(&snapshot, &service);
    for remedy in plan::remedies(&snapshot, &service) {
        let frees_accelerators = matches!(remedy.change, ProposedChange::FreeAccelerators { .. });
        if frees_accelerators { &mut context.capacity_remedies } else { &mut context.remedies }
            .push(remedy.to_string());
    }
    if context.remedies.is_empty() && !service_plan.feasible {
        context.remedies.extend(runtime::other_models_remedy(&snapshot, object));
    }
    context.settings = service_plan.settings;
    context
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::both("inferenceservice/chat", &["inferenceservice.ome.io/chat", "inferenceservice.fusioninfer.io/chat"])]
    #[case::one_group("InferenceService.ome.io/chat", &["inferenceservice.ome.io/chat"])]
    #[case::short("fisvc/chat", &["inferenceservice.fusioninfer.io/chat"])]
    #[case::family("runtime/chat", &["servingruntime.ome.io/chat", "clusterservingruntime.ome.io/chat"])]
    #[case::plural("acceleratorclasses/chat", &["acceleratorclass.ome.io/chat"])]
    fn resolves_kind_names(#[case] object: &str, #[case] names: &[&str]) {
        let (kinds, name) = parse(object).unwrap();
        assert_eq!(kinds.iter().map(|kind| kind.qualified_name(name)).collect::<Vec<_>>(), names);
    }

    #[rstest]
    #[case("chat")]
    #[case("pod/chat")]
    #[case("inferenceservice/")]
    #[case("inferenceservice.apps/chat")]
    fn rejects_unsupported_objects(#[case] object: &str) {
        assert!(parse(object).is_err());
    }
}

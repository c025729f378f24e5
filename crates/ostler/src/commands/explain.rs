//! `ostler explain KIND/NAME`: why a live object is as it is, and what would help.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use decide::remedy::Change;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::connect::{self, ConnectArgs};
use crate::live::{self, Live};
use crate::output;
use crate::report::errors::hinted;
use crate::report::explain::{Explanation, class, render, runtime, service, witness};

#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    /// What to explain: inferenceservice/NAME, acceleratorclass/NAME, runtime/NAME or model/NAME
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Namespace of the object; the context's own without it
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// text for people, json for programs
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Output::Text)]
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
#[derive(Debug)]
pub(super) struct Kind {
    kind: live::Kind,
    /// Plural and short names, and the family that it belongs to, in lower case.
    names: &'static [&'static str],
    namespaced: bool,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Service,
    Class,
    Runtime,
    Model,
}

const KINDS: [Kind; 7] = [
    Kind {
        kind: live::OME_SERVICE,
        names: &["inferenceservices", "isvc", "service", "inference"],
        namespaced: true,
        what: What::Service,
    },
    Kind {
        kind: live::ROLES_SERVICE,
        names: &["inferenceservices", "fisvc", "service", "inference"],
        namespaced: true,
        what: What::Service,
    },
    Kind {
        kind: ("ome.io", "v1beta1", "AcceleratorClass"),
        names: &["acceleratorclasses", "aclass", "class"],
        namespaced: false,
        what: What::Class,
    },
    Kind {
        kind: ("ome.io", "v1beta1", "ServingRuntime"),
        names: &["servingruntimes", "srt", "runtime"],
        namespaced: true,
        what: What::Runtime,
    },
    Kind {
        kind: ("ome.io", "v1beta1", "ClusterServingRuntime"),
        names: &["clusterservingruntimes", "csrt", "runtime"],
        namespaced: false,
        what: What::Runtime,
    },
    Kind {
        kind: ("ome.io", "v1beta1", "BaseModel"),
        names: &["basemodels", "model"],
        namespaced: true,
        what: What::Model,
    },
    Kind {
        kind: ("ome.io", "v1beta1", "ClusterBaseModel"),
        names: &["clusterbasemodels", "model"],
        namespaced: false,
        what: What::Model,
    },
];

impl Kind {
    /// Whether `name`, in lower case, means this kind.
    fn is_called(&self, name: &str) -> bool {
        self.names.contains(&name) || self.kind.2.to_lowercase() == name
    }

    /// The spelling that means this kind only.
    fn spelling(&self, name: &str) -> String {
        format!("{}.{}/{name}", self.kind.2.to_lowercase(), self.kind.0)
    }
}

pub(super) async fn run(args: ExplainArgs) -> Result<ExitCode> {
    let (kinds, name) = parse(&args.object)?;
    let connection = connect::connect(&args.connect).await?;
    let namespace = args.namespace.clone().unwrap_or(connection.namespace);
    let (kind, object) = find(&connection.client, &namespace, &kinds, name).await?;
    let mut live = Live::read(&connection.client).await?;
    if kind.what == What::Service {
        live.witnesses = witness::of(&connection.client, &namespace, &service::pods_of(&object, &live)).await;
    }
    let explanation = explain(kind, &object, &live);
    let text = match args.output {
        Output::Text => render(&explanation),
        Output::Json => serde_json::to_string_pretty(&explanation)?,
    };
    output::print_line(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn explain(kind: &Kind, object: &Value, live: &Live) -> Explanation {
    let now = Timestamp::now();
    match kind.what {
        What::Service => service::explain(object, around(live, object, now)),
        What::Class => class::explain(object, live, now),
        What::Runtime => runtime::runtime(object, live, now),
        What::Model => runtime::model(object, live, now),
    }
}

/// The kinds that `KIND/NAME` may mean.
fn parse(object: &str) -> Result<(Vec<&'static Kind>, &str)> {
    let wrong = || {
        let hint = "write inferenceservice/NAME, acceleratorclass/NAME, runtime/NAME or model/NAME";
        hinted(format!("`{object}` is not KIND/NAME of a kind that can be explained"), hint)
    };
    let (kind, name) = object.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
    let kind = kind.to_lowercase();
    let (kind, group) = kind.split_once('.').map_or((kind.as_str(), None), |(kind, group)| (kind, Some(group)));
    let named = |known: &&Kind| known.is_called(kind) && group.is_none_or(|group| group == known.kind.0);
    let kinds: Vec<_> = KINDS.iter().filter(named).collect();
    if kinds.is_empty() { Err(wrong()) } else { Ok((kinds, name)) }
}

/// The kinds of service that `KIND/NAME` may mean, and the name.
pub(super) fn service_kinds(object: &str) -> Result<(Vec<&'static Kind>, &str)> {
    let wrong = || hinted(format!("`{object}` is not KIND/NAME of a service"), "write inferenceservice/NAME");
    let (kinds, name) = parse(object).map_err(|_| wrong())?;
    let services: Vec<_> = kinds.into_iter().filter(|kind| kind.what == What::Service).collect();
    if services.is_empty() { Err(wrong()) } else { Ok((services, name)) }
}

/// The service that `KIND/NAME` means.
pub(super) async fn service_named(client: &Client, namespace: &str, object: &str) -> Result<(live::Kind, Value)> {
    let (kinds, name) = service_kinds(object)?;
    let (kind, service) = find(client, namespace, &kinds, name).await?;
    Ok((kind.kind, service))
}

async fn find<'k>(client: &Client, namespace: &str, kinds: &[&'k Kind], name: &str) -> Result<(&'k Kind, Value)> {
    let mut found = Vec::new();
    for kind in kinds {
        if let Some(object) = live::get(client, kind.kind, kind.namespaced.then_some(namespace), name).await? {
            found.push((*kind, object));
        }
    }
    match found.len() {
        0 => Err(missing(kinds, namespace, name)),
        1 => Ok(found.remove(0)),
        _ => {
            let spellings: Vec<String> = found.iter().map(|(kind, _)| kind.spelling(name)).collect();
            Err(hinted(format!("`{name}` is the name of two objects"), format!("write {}", spellings.join(" or "))))
        }
    }
}

fn missing(kinds: &[&Kind], namespace: &str, name: &str) -> anyhow::Error {
    let mut names: Vec<&str> = kinds.iter().map(|kind| kind.kind.2).collect();
    names.dedup();
    let namespaced = kinds.iter().any(|kind| kind.namespaced);
    let place = if namespaced { format!(" in namespace `{namespace}`") } else { String::new() };
    let plural = kinds.first().map(|kind| kind.names[0]).unwrap_or_default();
    let hint = if namespaced {
        format!("`kubectl get {plural} -A` lists them; choose the namespace with -n")
    } else {
        format!("`kubectl get {plural}` lists them")
    };
    hinted(format!("there is no {} `{name}`{place}", names.join(" or ")), hint)
}

/// What planning the service again tells: with the cluster as it is and one constraint lifted at a time; if none helps,
/// with another model.
pub(crate) fn around<'a>(live: &'a Live, object: &Value, now: Timestamp) -> service::Around<'a> {
    let mut around =
        service::Around { live, remedies: Vec::new(), freeing: Vec::new(), settings: BTreeMap::new(), now };
    let snapshot = live.snapshot();
    let Ok(Some(service)) = plan::Service::read(&live::document(object.clone())) else { return around };
    let planned = plan::plan_service(&snapshot, &service);
    for remedy in plan::remedies(&snapshot, &service) {
        let frees = matches!(remedy.change, Change::FreeAccelerators { .. });
        if frees { &mut around.freeing } else { &mut around.remedies }.push(remedy.to_string());
    }
    if around.remedies.is_empty() && !planned.feasible {
        around.remedies.extend(runtime::other_models(&snapshot, object));
    }
    around.settings = planned.settings;
    around
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
    fn kinds(#[case] object: &str, #[case] spellings: &[&str]) {
        let (kinds, name) = parse(object).unwrap();
        assert_eq!(kinds.iter().map(|kind| kind.spelling(name)).collect::<Vec<_>>(), spellings);
    }

    #[rstest]
    #[case("chat")]
    #[case("pod/chat")]
    #[case("inferenceservice/")]
    #[case("inferenceservice.apps/chat")]
    fn other_things_are_refused(#[case] object: &str) {
        assert!(parse(object).is_err());
    }
}

//! The service that a command is about: `KIND/NAME`, found in the cluster.

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::Value;

use super::explain;
use crate::connect::{self, ConnectArgs};
use crate::live;
use crate::report::errors::hinted;

#[derive(clap::Args)]
pub(super) struct TargetArgs {
    /// `inferenceservice/NAME`; with the group (`inferenceservice.ome.io/NAME`) where both groups have one of the name
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Namespace of the service; otherwise the context's
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A service as it is in the cluster.
pub(super) struct Target {
    pub api: Api<DynamicObject>,
    pub client: kube::Client,
    pub namespace: String,
    pub name: String,
    /// `inferenceservice.fusioninfer.io/chat`
    pub title: String,
    pub service: Value,
}

/// Who writes what a person asked for by command.
const MANAGER: &str = "ostler";
/// How often others may write beside us: status, above all.
const TRIES: usize = 50;
const CONFLICT: u16 = 409;

impl TargetArgs {
    pub(super) async fn find(&self) -> Result<Target> {
        explain::service_kinds(&self.object)?;
        let connection = connect::connect(&self.connect).await?;
        let namespace = self.namespace.clone().unwrap_or(connection.namespace);
        let (kind, service) = explain::service_named(&connection.client, &namespace, &self.object).await?;
        let name = cluster::object::meta(&service, "name").to_owned();
        Ok(Target {
            api: Api::namespaced_with(connection.client.clone(), &namespace, &live::resource(kind)),
            client: connection.client,
            title: format!("{}.{}/{name}", kind.2.to_lowercase(), kind.0),
            namespace,
            name,
            service,
        })
    }
}

impl Target {
    /// Puts `spec` in place of the one that was read; refused where somebody has put another there since. What others write
    /// beside it, such as status, stays and is in nobody's way.
    pub(super) async fn respecify(&self, spec: &Value) -> Result<()> {
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let mut wanted = self.service.clone();
        for _ in 0..TRIES {
            wanted["spec"] = spec.clone();
            let object: DynamicObject = serde_json::from_value(wanted)?;
            match self.api.replace(&self.name, &params, &object).await {
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                sent => return sent.map(drop).with_context(|| self.title.clone()),
            }
            wanted = serde_json::to_value(self.api.get(&self.name).await.with_context(|| self.title.clone())?)?;
            if wanted["spec"] != self.service["spec"] {
                break;
            }
        }
        Err(hinted(
            format!("{} was changed meanwhile", self.title),
            "look at what it is now, and say again what it is to be",
        ))
    }
}

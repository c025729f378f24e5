//! The service that a command is about: `KIND/NAME`, found in the cluster.

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::Value;

use super::explain;
use crate::connect::{self, ConnectArgs};
use crate::live;

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
    /// Writes the service as `service` is; refused where somebody changed it since it was read.
    pub(super) async fn replace(&self, service: Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(service)?;
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        self.api.replace(&self.name, &params, &object).await.with_context(|| self.title.clone())?;
        Ok(())
    }
}

//! The service that a command applies to: `KIND/NAME`, read from the cluster.

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::Value;

use super::explain;
use crate::cluster_objects;
use crate::connect::{self, ConnectArgs};
use crate::report::errors::error_with_hint;

#[derive(clap::Args)]
pub(super) struct TargetArgs {
    /// Service: inferenceservice/NAME, or inferenceservice.GROUP/NAME if ambiguous
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Use this namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A service as read from the cluster.
pub(super) struct Target {
    pub api: Api<DynamicObject>,
    pub client: kube::Client,
    pub namespace: String,
    pub name: String,
    /// `inferenceservice.fusioninfer.io/chat`
    pub display_name: String,
    pub service: Value,
}

/// Field manager of changes by commands.
const FIELD_MANAGER: &str = "ostler";
/// Maximum number of attempts to update a service that others, such as the status writer, update concurrently.
const MAX_ATTEMPTS: usize = 50;
/// HTTP status of an update with an outdated resource version.
const CONFLICT: u16 = 409;

impl TargetArgs {
    /// Reads the service from the cluster.
    pub(super) async fn find(&self) -> Result<Target> {
        explain::service_kinds(&self.object)?;
        let connection = connect::connect(&self.connect).await?;
        let namespace = self.namespace.clone().unwrap_or(connection.namespace);
        let (kind, service) = explain::find_service(&connection.client, &namespace, &self.object).await?;
        let name = cluster::metadata_field(&service, "name").to_owned();
        Ok(Target {
            api: Api::namespaced_with(connection.client.clone(), &namespace, &cluster_objects::resource(kind)),
            client: connection.client,
            display_name: format!("{}.{}/{name}", kind.2.to_lowercase(), kind.0),
            namespace,
            name,
            service,
        })
    }
}

impl Target {
    /// Replaces the spec of the service. Concurrent changes outside the spec, such as status, are retained.
    ///
    /// # Errors
    /// Fails if the spec has changed since it was read.
    pub(super) async fn replace_spec(&self, spec: &Value) -> Result<()> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let mut desired = self.service.clone();
        for _ in 0..MAX_ATTEMPTS {
            desired["spec"] = spec.clone();
            let object: DynamicObject = serde_json::from_value(desired)?;
            match self.api.replace(&self.name, &params, &object).await {
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                result => return result.map(drop).with_context(|| self.display_name.clone()),
            }
            desired = serde_json::to_value(self.api.get(&self.name).await.with_context(|| self.display_name.clone())?)?;
            if desired["spec"] != self.service["spec"] {
                break;
            }
        }
        Err(error_with_hint(
            format!("{} was modified concurrently", self.display_name),
            "check the current spec and run the command again",
        ))
    }
}

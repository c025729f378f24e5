//! The service that a command applies to, read from the cluster.

use anyhow::{Context, Result};
use cluster::Kind;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::Value;

use super::object_reference::{AcceptedObjects, ObjectReference};
use crate::connect::{self, ConnectArgs};
use crate::report::errors::error_with_hint;

/// Arguments of commands that apply to a service of either group.
#[derive(clap::Args)]
pub(super) struct TargetArgs {
    /// Service: inferenceservice/NAME, or inferenceservice.GROUP/NAME if ambiguous
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Name of the service, if the first argument is only the kind
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The cluster and the namespace of the service.
#[derive(clap::Args)]
pub(super) struct ClusterArgs {
    /// Use this namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A service as read from the cluster.
pub(super) struct Target {
    pub kind: Kind,
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

// === impl TargetArgs ===

impl TargetArgs {
    /// Reads the service from the cluster.
    pub(super) async fn find(&self) -> Result<Target> {
        let reference = ObjectReference::parse(&self.object, self.name.as_deref(), AcceptedObjects::Services)?;
        Target::find(&reference, &self.cluster).await
    }
}

// === impl Target ===

impl Target {
    /// Reads the service from the cluster.
    pub(super) async fn find(reference: &ObjectReference, args: &ClusterArgs) -> Result<Self> {
        let connection = connect::connect(&args.connect).await?;
        let namespace = args.namespace.clone().unwrap_or(connection.namespace);
        let object = reference.read(&connection.client, &namespace).await?;
        let name = cluster::metadata_field(&object.value, "name").to_owned();
        Ok(Self {
            kind: object.kind.kind,
            api: object.kind.kind.api(connection.client.clone(), &namespace),
            client: connection.client,
            display_name: object.kind.qualified_name(&name),
            namespace,
            name,
            service: object.value,
        })
    }

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

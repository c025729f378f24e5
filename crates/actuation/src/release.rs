//! Ends all bindings before the controller is removed: without it, its finalizers would retain deleted Pods forever.

use std::time::Duration;

use api::dual_pods as names;
use apimachinery::object;
use cluster::{Error, GuardedWriter, NamespacedName, ObjectVersion, Stores, list_objects, read_object};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::call::{Call, Request, Target};
use crate::coordinator::POD;
use crate::http::perform;
use crate::names::FIELD_MANAGER;
use crate::ownership::{is_claimed_requester, is_own_provider};
use crate::requester::Requester;

/// Interval at which deleted Pods are read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of a call to a requester.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of requesters that are called at a time.
const MAX_CALLS: usize = 64;

/// What [`release`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseSummary {
    /// Number of deleted providers.
    pub providers: usize,
    /// Number of requesters whose finalizer was removed.
    pub requesters: usize,
    /// Requesters that did not respond, as namespace and name: if they are deleted, they wait until their grace period ends.
    pub unreachable: Vec<String>,
}

/// Why [`release`] failed. It can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// A request failed or was rejected.
    #[error(transparent)]
    Request(#[from] Error),
    /// Pods were not deleted in time.
    #[error("timed out waiting for the deletion of {}", .0.join(", "))]
    Timeout(Vec<String>),
}

/// Deletes all providers, and removes the finalizers of the controller from requesters, in some namespaces, or in all if there are
/// none. The requesters become not ready and may end, since they have no engine. No controller may run meanwhile.
///
/// # Errors
/// A request failed, or Pods were not deleted before `timeout`.
pub async fn release(client: Client, namespaces: &[String], timeout: Duration) -> Result<ReleaseSummary, ReleaseError> {
    let deadline = Instant::now().checked_add(timeout).unwrap_or_else(Instant::now);
    let stores = Stores::new(FIELD_MANAGER);
    let (is_provider, is_requester) =
        (|pod: &Value| is_own_provider(pod, &stores), |pod: &Value| is_claimed_requester(pod, &stores));
    let pods = list(&client, namespaces, |pod| is_provider(pod) || is_requester(pod)).await?;
    let (providers, requesters): (Vec<Value>, Vec<Value>) = pods.into_iter().partition(is_provider);
    let pods = Pods { writer: GuardedWriter::new(client.clone(), stores.clone(), FIELD_MANAGER), client };
    pods.delete(&providers, deadline).await?;
    let unreachable = release_requesters(&requesters).await;
    for pod in &requesters {
        pods.remove_finalizers(pod, deadline).await?;
    }
    Ok(ReleaseSummary { providers: providers.len(), requesters: requesters.len(), unreachable })
}

/// Informs requesters that they have no engine and may end. Returns the names of those that do not respond.
async fn release_requesters(requesters: &[Value]) -> Vec<String> {
    let mut unreachable = Vec::new();
    for requesters in requesters.chunks(MAX_CALLS) {
        let mut calls: JoinSet<_> = requesters
            .iter()
            .map(|pod| {
                let (requester, name) =
                    (Requester::from_pod(pod), format!("{}/{}", object::namespace(pod), object::name(pod)));
                async move { (name, release_requester(requester).await) }
            })
            .collect();
        while let Some(call) = calls.join_next().await {
            match call {
                Ok((name, is_released)) => unreachable.extend((!is_released).then_some(name)),
                Err(error) => tracing::error!(%error, "failed to call a requester"),
            }
        }
    }
    unreachable.sort();
    unreachable
}

/// The Pods of the cluster.
struct Pods {
    client: Client,
    writer: GuardedWriter,
}

// === impl Pods ===

impl Pods {
    /// Deletes Pods and waits until they are gone.
    async fn delete(&self, pods: &[Value], deadline: Instant) -> Result<(), ReleaseError> {
        for pod in pods {
            let version = ObjectVersion { resource_version: None, ..version(pod) };
            ignore_not_found(self.writer.delete(POD, &version, None).await)?;
        }
        for pod in pods {
            self.remove_finalizers(pod, deadline).await?;
        }
        let mut remaining = pods.to_vec();
        loop {
            let mut existing = Vec::new();
            for pod in remaining {
                existing.extend(self.read(&pod).await?);
            }
            match existing.is_empty() {
                true => return Ok(()),
                false if Instant::now() >= deadline => return Err(timed_out(&existing)),
                false => tokio::time::sleep(POLL_INTERVAL).await,
            }
            remaining = existing;
        }
    }

    /// Removes the finalizers of the controller. The admission policies permit no other change of its fields.
    async fn remove_finalizers(&self, pod: &Value, deadline: Instant) -> Result<(), ReleaseError> {
        loop {
            let Some(current) = self.read(pod).await?.filter(has_own_finalizer) else { return Ok(()) };
            let finalizers: Vec<&str> =
                object::finalizers(&current).into_iter().filter(|finalizer| !is_own_finalizer(finalizer)).collect();
            let patch = json!({"metadata": {"finalizers": finalizers}});
            match ignore_not_found(self.writer.merge(POD, &version(&current), &patch).await.map(drop)) {
                // Another client changed the Pod.
                Err(error) if error.is_conflict() && Instant::now() < deadline => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                result => return Ok(result?),
            }
        }
    }

    /// Returns the current state of a Pod; `None` if it is gone, also if there is another one of its name.
    async fn read(&self, pod: &Value) -> Result<Option<Value>, Error> {
        let current = read_object(&self.client, POD, object::namespace(pod), object::name(pod)).await?;
        Ok(current.filter(|current| object::uid(current) == object::uid(pod)))
    }
}

/// Returns the Pods that `is_relevant` selects, in some namespaces, or in all if there are none.
async fn list(
    client: &Client,
    namespaces: &[String],
    is_relevant: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>, Error> {
    if namespaces.is_empty() {
        return list_objects(client, POD, "", is_relevant).await;
    }
    let mut pods = Vec::new();
    for namespace in namespaces {
        pods.extend(list_objects(client, POD, namespace, &is_relevant).await?);
    }
    Ok(pods)
}

/// Informs a requester that it has no engine and may end. Returns whether it responds, or need not.
async fn release_requester(requester: Requester) -> bool {
    let (Some(ip), Ok(port)) = (requester.ip, requester.admin_port) else { return true };
    for request in [Request::Ready(false), Request::Release] {
        let target = Target::Requester(requester.pod.uid.clone());
        let call = Call { node: String::new(), target, ip: ip.clone(), port, request, timeout: CALL_TIMEOUT };
        if let Err(error) = perform(&call).await {
            tracing::debug!(pod = requester.pod.name, error = error.message, "the requester does not respond");
            return false;
        }
    }
    true
}

fn is_own_finalizer(finalizer: &str) -> bool {
    [names::REQUESTER_FINALIZER, names::PROVIDER_FINALIZER].contains(&finalizer)
}

fn has_own_finalizer(pod: &Value) -> bool {
    object::finalizers(pod).into_iter().any(is_own_finalizer)
}

fn version(pod: &Value) -> ObjectVersion {
    ObjectVersion {
        key: NamespacedName::new(object::namespace(pod), object::name(pod)),
        uid: object::uid(pod).to_owned(),
        resource_version: Some(object::resource_version(pod).to_owned()),
    }
}

fn ignore_not_found(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        result => result,
    }
}

fn timed_out(pods: &[Value]) -> ReleaseError {
    let name = |pod: &Value| format!("Pod {}/{}", object::namespace(pod), object::name(pod));
    ReleaseError::Timeout(pods.iter().map(name).collect())
}

//! Lists the objects of a cluster that a preview of the operator's changes depends on.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use cluster::{CUSTOM_RESOURCE_DEFINITION, Kind};
use kube::Client;
use operator::ClusterListing;

use crate::cluster_objects::{ListScope, forbidden_message, list_served};

/// Lists the objects in all namespaces, or only in `namespace` where the user may not list the others. Also returns a
/// description of what could not be listed, one line each.
pub(crate) async fn read(client: &Client, namespace: &str) -> Result<(ClusterListing, Vec<String>)> {
    let (mut listing, mut notes) = (ClusterListing::default(), Vec::new());
    let served_resources = served_resources(client).await?;
    let is_served = |kind: &Kind| kind.group.is_empty() || served_resources.contains(&resource(*kind));
    for kind in ClusterListing::kinds().into_iter().filter(is_served) {
        let cause = match list_served(client, kind, ListScope::All).await {
            Ok(objects) => {
                listing.objects.extend(objects.map(|objects| (kind, objects)));
                continue;
            }
            Err(error) => forbidden_message(&error).ok_or(error)?,
        };
        match list_in_namespace(client, kind, namespace).await? {
            Some(objects) => {
                listing.objects.extend(objects.map(|objects| (kind, objects)));
                notes.push(format!(
                    "{} objects outside of namespace `{namespace}` are not considered: {cause}",
                    kind.kind
                ));
            }
            None => {
                // The definitions that ostler ships replace those of the cluster.
                if kind != CUSTOM_RESOURCE_DEFINITION {
                    notes.push(format!("{} objects are not considered: {cause}", kind.kind));
                }
                listing.unreadable.insert(kind, cause);
            }
        }
    }
    Ok((listing, notes))
}

/// Returns the resources of the API groups of all kinds, as [`resource`] formats them. Every user may read them.
async fn served_resources(client: &Client) -> Result<BTreeSet<String>> {
    let failed = || "failed to read the API groups of the cluster";
    let groups = client.list_api_groups().await.with_context(failed)?.groups;
    let served_versions: BTreeSet<String> =
        groups.into_iter().flat_map(|group| group.versions).map(|version| version.group_version).collect();
    let api_versions: BTreeSet<String> = ClusterListing::kinds().iter().map(Kind::api_version).collect();
    let mut resources = BTreeSet::new();
    for api_version in api_versions.intersection(&served_versions) {
        let list = client.list_api_group_resources(api_version).await.with_context(failed)?;
        resources.extend(list.resources.into_iter().map(|resource| format!("{api_version}/{}", resource.name)));
    }
    Ok(resources)
}

fn resource(kind: Kind) -> String {
    format!("{}/{}", kind.api_version(), kind.plural)
}

/// Lists the objects in one namespace; `None` if the user may not list them either, or if the kind is cluster-scoped.
async fn list_in_namespace(
    client: &Client,
    kind: Kind,
    namespace: &str,
) -> Result<Option<Option<Vec<serde_json::Value>>>> {
    if !kind.namespaced {
        return Ok(None);
    }
    match list_served(client, kind, ListScope::Namespace(namespace)).await {
        Err(error) if forbidden_message(&error).is_some() => Ok(None),
        listed => listed.map(Some),
    }
}

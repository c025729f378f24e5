//! Unknown kinds and versions in the ostler API groups. Kinds of other API groups are not checked.

use super::finding::Finding;
use super::nearest_name::nearest_name;
use crate::crds;
use crate::manifest::Document;

/// Returns a finding if the API group is served by ostler, but the kind or version is not.
pub(super) fn check(document: &Document) -> Option<Finding> {
    let (group, version) = document.api_version().split_once('/')?;
    let served_kinds: Vec<_> =
        crds::kinds().filter(|(api_version, _)| api_version.split('/').next() == Some(group)).collect();
    if served_kinds.is_empty() {
        return None;
    }
    let Some(nearest) = nearest_name(document.kind(), served_kinds.iter().map(|(_, kind)| *kind)) else {
        let known: Vec<_> = served_kinds.iter().map(|(_, kind)| *kind).collect();
        let message = format!("unknown kind `{}` in API group {group}; it was not checked", document.kind());
        return Some(Finding::warning("kind", message).with_hint(format!("known kinds: {}", known.join(", "))));
    };
    let (served, _) = served_kinds.iter().find(|(_, kind)| *kind == nearest)?;
    if nearest == document.kind() {
        let message = format!("API group {group} does not serve version `{version}` of {nearest}");
        return Some(Finding::error("apiVersion", message).with_hint(format!("use {served}")));
    }
    let message = format!("unknown kind `{}` in {group}/{version}", document.kind());
    Some(Finding::error("kind", message).with_hint(format!("did you mean `{nearest}`?")))
}

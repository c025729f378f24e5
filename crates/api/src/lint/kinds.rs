//! A kind that is nearly one of ours is a mistake, another one of our groups may be; any other is somebody else's.

use crate::crds;
use crate::manifest::Document;

use super::{Finding, names};

/// A finding where the group is ours: a misspelt kind, a version that we do not serve, or a kind that others add.
pub(super) fn check(document: &Document) -> Option<Finding> {
    let (group, version) = document.api_version().split_once('/')?;
    let ours: Vec<_> = crds::kinds().filter(|(of, _)| of.split('/').next() == Some(group)).collect();
    if ours.is_empty() {
        return None;
    }
    let Some(nearest) = names::nearest(document.kind(), ours.iter().map(|(_, kind)| *kind)) else {
        let known: Vec<_> = ours.iter().map(|(_, kind)| *kind).collect();
        let message = format!("`{}` of {group} is not known here: nothing of it was checked", document.kind());
        return Some(Finding::warning("kind", message).hint(format!("known are {}", known.join(", "))));
    };
    let (served, _) = ours.iter().find(|(_, kind)| *kind == nearest)?;
    if nearest == document.kind() {
        let message = format!("{group} has no version `{version}` of {nearest}");
        return Some(Finding::error("apiVersion", message).hint(format!("write {served}")));
    }
    let message = format!("no kind `{}` in {group}/{version}", document.kind());
    Some(Finding::error("kind", message).hint(format!("did you mean `{nearest}`?")))
}

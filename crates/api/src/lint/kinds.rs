//! A kind that is nearly one of ours is a mistake; any other kind is somebody else's.

use crate::crds;
use crate::manifest::Document;

use super::{Finding, names};

/// A finding where group and kind are nearly ours: a misspelt kind, or a version that we do not serve.
pub(super) fn check(document: &Document) -> Option<Finding> {
    let (group, version) = document.api_version().split_once('/')?;
    let ours: Vec<_> = crds::kinds().filter(|(of, _)| of.split('/').next() == Some(group)).collect();
    let nearest = names::nearest(document.kind(), ours.iter().map(|(_, kind)| *kind))?;
    let (served, _) = ours.iter().find(|(_, kind)| *kind == nearest)?;
    if nearest == document.kind() {
        let message = format!("{group} has no version `{version}` of {nearest}");
        return Some(Finding::error("apiVersion", message).hint(format!("write {served}")));
    }
    let message = format!("no kind `{}` in {group}/{version}", document.kind());
    Some(Finding::error("kind", message).hint(format!("did you mean `{nearest}`?")))
}

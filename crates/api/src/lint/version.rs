//! Versions of model formats and frameworks.

use super::finding::Finding;
use crate::ome::VersionedName;
use crate::openapi;
use crate::version::Version;

/// Returns a finding if the version of `name`, the field at `path`, is not a version.
pub(super) fn check(name: &Option<VersionedName>, path: &str) -> Option<Finding> {
    let version = name.as_ref()?.version.as_deref()?;
    version.parse::<Version>().is_err().then(|| {
        let finding = Finding::error(format!("{path}.version"), format!("`{version}` is not a version"));
        finding.with_hint(openapi::VERSION.hint)
    })
}

//! Plans services that do not exist, to find out what would be selected for them.

use decide::{OUTRANKED, RuntimeCandidate};
use plan::{Service, ServicePlan, Snapshot};
use serde_json::Value;

use super::fields::text;
use crate::cluster_objects;
use crate::report::tree::Reason;

/// Plans an `ome.io` service and returns its name and plan; `None` for other services, which do not select a runtime.
pub(super) fn plan_ome_service(snapshot: &Snapshot, service: &Value) -> Option<(String, ServicePlan)> {
    let parsed = Service::from_document(&cluster_objects::document(service.clone())).ok().flatten()?;
    matches!(parsed, Service::Ome(_))
        .then(|| (text(service, "/metadata/name").to_owned(), plan::plan_service(snapshot, &parsed)))
}

/// Returns the outcome of a candidate: that it is selected or could serve, or why not.
pub(super) fn outcome_of(candidate: &RuntimeCandidate) -> Reason {
    match (&candidate.rejected, &candidate.outranked) {
        (Some(rejection), _) => Reason::new(rejection.code(), rejection.to_string()),
        (None, Some(criterion)) => Reason::new(OUTRANKED, criterion.to_string()),
        (None, None) if candidate.selected => Reason::message("selected"),
        (None, None) => Reason::message("could serve"),
    }
}

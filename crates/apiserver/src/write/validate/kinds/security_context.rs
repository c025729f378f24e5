//! Validation of security contexts: users and groups.

use apimachinery::StatusCause;

use super::field::Field;

/// Validates the users and groups of a Pod or container.
pub(super) fn causes(context: &Field<'_>) -> Vec<StatusCause> {
    let ids = ["fsGroup", "runAsUser", "runAsGroup"].map(|name| context.get(name)).into_iter();
    let ids = ids.chain(context.get("supplementalGroups").items());
    ids.filter_map(|id| id.check_in_range(0..=i64::from(i32::MAX))).collect()
}

//! Warns about Pods that no node could run.

use decide::{Inventory, Warning};

use crate::code;
use crate::role::Role;

/// Returns a warning for each role whose Pods none of the known nodes could run. The Pods of selected accelerator classes are those of
/// the decision, which checks the nodes itself.
pub(crate) fn warnings<'r>(roles: impl IntoIterator<Item = &'r Role>, inventory: &Inventory) -> Vec<Warning> {
    let warning = |role: &Role| {
        let templates = std::iter::once(&role.template).chain(&role.worker_template);
        let reason =
            templates.into_iter().find_map(|template| decide::unschedulable_reason(inventory.nodes(), template))?;
        let message = format!("No node could run the Pods of {}, so they stay pending: {reason}", role.name);
        Some(Warning::new(code::warning::PODS_UNSCHEDULABLE, message))
    };
    roles.into_iter().filter_map(warning).collect()
}

//! What one service may choose from, as `decide` reads it.

use std::sync::Arc;

use decide::inventory::Availability;
use decide::reason::Warning;
use decide::supply::{Class, Runtime, Supply};

use crate::claims::{self, Claim};
use crate::names;
use crate::snapshot::Snapshot;
use crate::topology::Owner;

/// Everything on offer, and what is left out because it cannot be read: one broken runtime does not stop the others.
/// The service's own pods and claim do not count against it; what others claim does, whether it runs yet or not.
pub(crate) fn supply(snapshot: &Snapshot, claims: &[Claim], owner: &Owner) -> (Supply, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut supply = Supply { accelerator_aware: snapshot.accelerator_aware, ..Supply::default() };
    for runtime in &snapshot.runtimes {
        let (name, created) = (&runtime.name, runtime.created.clone());
        match Runtime::from_api(name, runtime.scope, &runtime.namespace, created, &runtime.spec) {
            Ok(runtime) => supply.runtimes.push(runtime.into()),
            Err(error) => {
                let message = format!("runtime {name} is left out: {error}");
                warnings.push(Warning::new(decide::code::warning::INVALID_RUNTIME, message));
            }
        }
    }
    let mut classes = Vec::new();
    for class in &snapshot.classes {
        match Class::from_api(class, class.status.as_ref().map(Availability::from_status)) {
            Ok(class) => classes.push(class),
            Err(error) => {
                let name = class.metadata.name.as_deref().unwrap_or_default();
                warnings.push(Warning::new(
                    decide::code::warning::INVALID_CLASS,
                    format!("class {name} is left out: {error}"),
                ));
            }
        }
    }
    count_free(snapshot, claims, owner, &mut classes);
    supply.classes = classes.into_iter().map(Arc::new).collect();
    (supply, warnings)
}

/// What of each class is free to the service: from its nodes where any are known, else from what its status says.
fn count_free(snapshot: &Snapshot, claims: &[Claim], owner: &Owner, classes: &mut [Class]) {
    let others: Vec<&Claim> = claims.iter().filter(|claim| !claim.is_of(&owner.namespace, &owner.name)).collect();
    let inventory = &snapshot.inventory;
    if !inventory.has_nodes() {
        classes.iter_mut().for_each(|class| claims::book_on_status(&others, class));
        return;
    }
    let own = inventory.holdings(&owner.namespace, &names::label_value(&owner.name));
    let booked = claims::book(&others, classes, inventory, &own);
    for class in classes {
        class.availability = Some(match &booked {
            Some(nodes) => inventory.availability_on(class, nodes),
            None => inventory.availability(class, &own),
        });
    }
}

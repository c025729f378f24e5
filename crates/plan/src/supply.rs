//! The supply of a decision: runtimes, and classes with the capacity that is available to the service.

use std::sync::Arc;

use api::Code;
use decide::{Supply, Warning, WarningSubject, code::warning};

use crate::claims::{self, Claim};
use crate::names;
use crate::owner::Owner;
use crate::snapshot::Snapshot;

/// Returns the runtimes and classes for a decision, and a warning for each invalid one that the service could use, which is
/// ignored. The service's
/// own Pods and claim do not reduce its available capacity; claims of other services do.
pub(crate) fn read_supply(snapshot: &Snapshot, claims: &[Claim], owner: &Owner) -> (Supply, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut warn_invalid = |code: Code, message: String, subject: WarningSubject| {
        warnings.push(Warning::new(code, message).with_subject(subject));
    };
    let mut supply = Supply {
        nodes: snapshot.inventory.has_nodes().then(|| Arc::clone(&snapshot.inventory) as _),
        accelerator_aware: snapshot.accelerator_aware,
        ..Supply::default()
    };
    for runtime in &snapshot.runtimes {
        match runtime.parsed() {
            Ok(parsed) => supply.runtimes.push(Arc::clone(parsed)),
            Err(_) if !runtime.is_visible_in(&owner.namespace) => {}
            Err(error) => {
                let message = format!("Runtime {} is invalid and ignored: {error}", runtime.name);
                warn_invalid(warning::INVALID_RUNTIME, message, runtime.subject());
            }
        }
    }
    for class in &snapshot.classes {
        match &class.parsed {
            Ok(parsed) => supply.classes.push(Arc::clone(parsed)),
            Err(error) => {
                let message = format!("AcceleratorClass {} is invalid and ignored: {error}", class.name);
                warn_invalid(warning::INVALID_CLASS, message, class.subject());
            }
        }
    }
    decide::complete_partitions(&mut supply);
    set_availability(snapshot, claims, owner, &mut supply.classes);
    (supply, warnings)
}

/// Sets the capacity of each class that is available to the service: computed from Nodes if any are known, otherwise
/// from the status of the class.
fn set_availability(snapshot: &Snapshot, claims: &[Claim], owner: &Owner, classes: &mut [Arc<decide::Class>]) {
    let other_claims: Vec<&Claim> =
        claims.iter().filter(|claim| !claim.belongs_to(&owner.namespace, &owner.name)).collect();
    let inventory = &snapshot.inventory;
    if !inventory.has_nodes() {
        let claimed_classes = classes.iter_mut().filter(|class| claims::claims_class(&other_claims, &class.name));
        claimed_classes.for_each(|class| claims::reserve_on_status(&other_claims, Arc::make_mut(class)));
        return;
    }
    let usage = inventory.service_usage(&owner.namespace, &names::label_value(&owner.name));
    let reserved = claims::reserve_on_nodes(&other_claims, classes, inventory, &usage);
    for class in classes {
        let availability = match &reserved {
            Some(nodes) => inventory.availability_on(class, nodes),
            None => inventory.availability(class, &usage),
        };
        Arc::make_mut(class).availability = Some(availability);
    }
}

//! Runtimes and classes as they are offered: what `decide` works on is read once, when the object is added, and shared by
//! the plans of every service.

use std::sync::Arc;

use api::code::Code;
use api::ome::{AcceleratorClass, ServingRuntimeSpec};
use decide::code::warning;
use decide::inventory::Availability;
use decide::read::ReadError;
use decide::reason::Warning;
use decide::supply::{self, Scope, Supply};

use crate::claims::{self, Claim};
use crate::names;
use crate::snapshot::Snapshot;
use crate::topology::Owner;

/// A runtime of either scope, whole: `decide` reads facts of it, rendering its templates.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub name: String,
    pub scope: Scope,
    /// Empty for cluster scope.
    pub namespace: String,
    created: Option<String>,
    spec: ServingRuntimeSpec,
    facts: Result<Arc<supply::Runtime>, ReadError>,
}

impl Runtime {
    /// `created` in RFC 3339.
    pub(crate) fn read(
        name: String,
        scope: Scope,
        namespace: String,
        created: Option<String>,
        spec: ServingRuntimeSpec,
    ) -> Self {
        let facts = supply::Runtime::from_api(&name, scope, &namespace, created.clone(), &spec).map(Arc::new);
        Self { name, scope, namespace, created, spec, facts }
    }

    pub fn spec(&self) -> &ServingRuntimeSpec {
        &self.spec
    }

    /// What `decide` works on, or the field that cannot be understood.
    ///
    /// # Errors
    /// A version, size, condition or capability that cannot be understood, with its path.
    pub fn facts(&self) -> Result<&Arc<supply::Runtime>, &ReadError> {
        self.facts.as_ref()
    }

    /// The same runtime with another spec.
    pub fn edit(&mut self, change: impl FnOnce(&mut ServingRuntimeSpec)) {
        let mut spec = self.spec.clone();
        change(&mut spec);
        *self = Self::read(self.name.clone(), self.scope, self.namespace.clone(), self.created.clone(), spec);
    }
}

/// An accelerator class, with what its status says of its nodes.
#[derive(Debug, Clone)]
pub struct Class {
    pub(crate) name: String,
    pub(crate) facts: Result<Arc<supply::Class>, ReadError>,
}

impl Class {
    pub(crate) fn read(class: &AcceleratorClass) -> Self {
        let known = class.status.as_ref().map(Availability::from_status);
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            facts: supply::Class::from_api(class, known).map(Arc::new),
        }
    }
}

/// Everything on offer, and what is left out because it cannot be read: one broken runtime does not stop the others.
/// The service's own pods and claim do not count against it; what others claim does, whether it runs yet or not.
pub(crate) fn supply(snapshot: &Snapshot, claims: &[Claim], owner: &Owner) -> (Supply, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut left_out = |code: Code, what: &str, name: &str, error: &ReadError| {
        warnings.push(Warning::new(code, format!("{what} {name} is left out: {error}")));
    };
    let mut supply = Supply { accelerator_aware: snapshot.accelerator_aware, ..Supply::default() };
    for runtime in &snapshot.runtimes {
        match &runtime.facts {
            Ok(facts) => supply.runtimes.push(Arc::clone(facts)),
            Err(error) => left_out(warning::INVALID_RUNTIME, "runtime", &runtime.name, error),
        }
    }
    for class in &snapshot.classes {
        match &class.facts {
            Ok(facts) => supply.classes.push(Arc::clone(facts)),
            Err(error) => left_out(warning::INVALID_CLASS, "class", &class.name, error),
        }
    }
    count_free(snapshot, claims, owner, &mut supply.classes);
    (supply, warnings)
}

/// What of each class is free to the service: from its nodes where any are known, else from what its status says.
fn count_free(snapshot: &Snapshot, claims: &[Claim], owner: &Owner, classes: &mut [Arc<supply::Class>]) {
    let others: Vec<&Claim> = claims.iter().filter(|claim| !claim.is_of(&owner.namespace, &owner.name)).collect();
    let inventory = &snapshot.inventory;
    if !inventory.has_nodes() {
        let claimed = classes.iter_mut().filter(|class| claims::takes(&others, &class.name));
        claimed.for_each(|class| claims::book_on_status(&others, Arc::make_mut(class)));
        return;
    }
    let own = inventory.holdings(&owner.namespace, &names::label_value(&owner.name));
    let booked = claims::book(&others, classes, inventory, &own);
    for class in classes {
        let availability = match &booked {
            Some(nodes) => inventory.availability_on(class, nodes),
            None => inventory.availability(class, &own),
        };
        Arc::make_mut(class).availability = Some(availability);
    }
}

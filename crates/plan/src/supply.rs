//! Runtimes and accelerator classes. They are parsed once, when added to the snapshot, and shared by the plans of all services.

use std::sync::Arc;

use api::Code;
use api::ome::{AcceleratorClass, ServingRuntimeSpec};
use decide::{Availability, FieldError, Scope, Supply, Warning, WarningSubject, code::warning};

use crate::claims::{self, Claim};
use crate::names;
use crate::snapshot::Snapshot;
use crate::topology::Owner;

/// A ServingRuntime or ClusterServingRuntime: its spec for rendering, and the parsed form for decisions.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Name of the runtime.
    pub name: String,
    /// Namespace or cluster scope.
    pub scope: Scope,
    /// Namespace; empty for cluster scope.
    pub namespace: String,
    created: Option<String>,
    spec: ServingRuntimeSpec,
    parsed: Result<Arc<decide::Runtime>, FieldError>,
}

impl Runtime {
    /// Parses a runtime. `created` is its creation timestamp in RFC 3339.
    pub(crate) fn parse(
        name: String,
        scope: Scope,
        namespace: String,
        created: Option<String>,
        spec: ServingRuntimeSpec,
    ) -> Self {
        let parsed = decide::Runtime::from_api(&name, scope, &namespace, created.clone(), &spec).map(Arc::new);
        Self { name, scope, namespace, created, spec, parsed }
    }

    /// Returns the spec.
    pub fn spec(&self) -> &ServingRuntimeSpec {
        &self.spec
    }

    /// Returns the runtime as the subject of a warning.
    fn subject(&self) -> WarningSubject {
        let kind = match self.scope {
            Scope::Namespace => "ServingRuntime",
            Scope::Cluster => "ClusterServingRuntime",
        };
        WarningSubject::Object { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Returns the parsed runtime that decisions use.
    ///
    /// # Errors
    /// The path and the reason of an invalid version, size, condition or capability.
    pub fn parsed(&self) -> Result<&Arc<decide::Runtime>, &FieldError> {
        self.parsed.as_ref()
    }

    /// Changes the spec and parses the runtime again.
    pub fn update_spec(&mut self, change: impl FnOnce(&mut ServingRuntimeSpec)) {
        let mut spec = self.spec.clone();
        change(&mut spec);
        *self = Self::parse(self.name.clone(), self.scope, self.namespace.clone(), self.created.clone(), spec);
    }
}

/// An AcceleratorClass with the node availability of its status.
#[derive(Debug, Clone)]
pub struct Class {
    pub(crate) name: String,
    pub(crate) parsed: Result<Arc<decide::Class>, FieldError>,
}

impl Class {
    /// Parses a class.
    pub(crate) fn parse(class: &AcceleratorClass) -> Self {
        let availability = class.status.as_ref().map(Availability::from_status);
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            parsed: decide::Class::from_api(class, availability).map(Arc::new),
        }
    }

    /// Returns the class as the subject of a warning.
    fn subject(&self) -> WarningSubject {
        WarningSubject::Object { kind: "AcceleratorClass", namespace: String::new(), name: self.name.clone() }
    }
}

/// Returns the runtimes and classes for a decision, and a warning for each invalid one, which is ignored. The service's
/// own Pods and claim do not reduce its available capacity; claims of other services do.
pub(crate) fn read_supply(snapshot: &Snapshot, claims: &[Claim], owner: &Owner) -> (Supply, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut warn_invalid = |code: Code, message: String, subject: WarningSubject| {
        warnings.push(Warning::new(code, message).with_subject(subject));
    };
    let mut supply = Supply { accelerator_aware: snapshot.accelerator_aware, ..Supply::default() };
    for runtime in &snapshot.runtimes {
        match &runtime.parsed {
            Ok(parsed) => supply.runtimes.push(Arc::clone(parsed)),
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

//! An accelerator class. It is parsed once, when added to the snapshot, and shared by the plans of all services.

use std::sync::Arc;

use api::ome::AcceleratorClass;
use decide::{Availability, FieldError, WarningSubject};

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
    pub(crate) fn subject(&self) -> WarningSubject {
        WarningSubject::Object { kind: "AcceleratorClass", namespace: String::new(), name: self.name.clone() }
    }
}

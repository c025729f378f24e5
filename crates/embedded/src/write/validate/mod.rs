//! Refuses objects that are wrong, with every cause at once, in Kubernetes' words.

pub(crate) mod kinds;
mod metadata;
pub(crate) mod names;
mod owners;
mod schema;

use apimachinery::status::{Cause, Status};
use serde_json::Value;

use super::Face;
use crate::resources::Resource;
use crate::{crd, object};

/// # Errors
/// 422 with every cause, 400 for values of the wrong type in built-in kinds.
pub(super) fn create(resource: &Resource, object: &Value) -> Result<(), Status> {
    let mut causes = metadata::causes(resource, object);
    kinds::decodes(resource, object)?;
    causes.extend(schema::causes(resource, Face::Main, object)?);
    causes.extend(kinds::causes(resource, object));
    if resource.storage == crd::STORAGE {
        causes.extend(crd::causes(None, object));
    }
    verdict(resource, object, causes)
}

/// # Errors
/// 422 with every cause, 400 for values of the wrong type in built-in kinds.
pub(super) fn update(resource: &Resource, face: Face, current: &Value, object: &Value) -> Result<(), Status> {
    let mut causes = metadata::causes_of_change(resource, face, current, object);
    causes.extend(schema::causes(resource, face, object)?);
    if face == Face::Main {
        kinds::decodes(resource, object)?;
        causes.extend(kinds::causes_of_change(resource, current, object));
        if resource.storage == crd::STORAGE {
            causes.extend(crd::causes(Some(current), object));
        }
    }
    if face == Face::Status {
        causes.extend(kinds::causes_of_status(resource, object));
    }
    verdict(resource, object, causes)
}

fn verdict(resource: &Resource, object: &Value, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&resource.qualified_kind(), object::name(object), causes))
}

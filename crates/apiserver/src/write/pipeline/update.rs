//! Update of an object.

use std::sync::Arc;

use apimachinery::{Status, equal_ignoring_timestamps, object};
use serde_json::Value;

use super::create::create;
use crate::core::Core;
use crate::cpu_threads::offer_cpu;
use crate::store::{ObjectKey, depth};
use crate::transaction::{MAX_ATTEMPTS, Transaction};
use crate::write::{
    Committed, Proposal, ProposeFn, ProposeWithReadsFn, RequestBody, Subresource, Transition, WriteRequest,
    WriteResult, admit, allocate, current_definition, decode, default, is_removable, managed_fields, normalize,
    preconditions, prepare, prune, validate, validation_rules, warnings,
};

/// Updates an object. `propose` computes the new object and is called again after a conflict.
///
/// # Errors
/// 404 if the object does not exist and the write does not create it, 409 on a conflict, 422 if the object is invalid,
/// and the errors of `propose`.
pub(crate) fn modify(
    core: &Core,
    request: &WriteRequest<'_>,
    name: &str,
    propose: ProposeFn<'_>,
) -> Result<WriteResult, Status> {
    modify_with_reads(core, request, name, &|_, current| propose(current))
}

/// Like [`modify`], for a new object that depends on other objects.
///
/// # Errors
/// Those of [`modify`].
pub(crate) fn modify_with_reads(
    core: &Core,
    request: &WriteRequest<'_>,
    name: &str,
    propose: ProposeWithReadsFn<'_>,
) -> Result<WriteResult, Status> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(result) = try_modify(core, request, name, propose)? {
            return Ok(result);
        }
    }
    Err(Status::object_modified(&request.resource.group_resource(), name))
}

/// Tries to update an object. Returns `None` on a conflict with a concurrent write.
fn try_modify(
    core: &Core,
    request: &WriteRequest<'_>,
    name: &str,
    propose: ProposeWithReadsFn<'_>,
) -> Result<Option<WriteResult>, Status> {
    let transaction = Transaction::new(core);
    let WriteRequest { subresource, namespace, options, .. } = *request;

    // 1. The definition, the current object and the proposal.
    let resource = &current_definition::current_resource(&transaction, request.resource)?;
    let request = &WriteRequest { resource, ..*request };
    let key = resource.object_key(namespace, name);
    let Some(stored) = core.store.get(&key) else {
        return match create_on_update(core, request, name, propose(&transaction, None)?) {
            // The object was created concurrently.
            Err(status) if status.reason == "AlreadyExists" && core.store.get_stored(&key).is_some() => Ok(None),
            result => result.map(Some),
        };
    };
    offer_cpu();
    let current = default::with_current_schema(resource, &stored);
    let (mut object, is_applied) = propose(&transaction, Some(&current))?.into_parts();

    offer_cpu();
    // 2. Field types.
    decode::check_field_types(resource, &object).map_err(|error| error.into_status(options.body))?;
    normalize::normalize_integers(resource, &mut object);

    offer_cpu();
    // 3. Unknown fields.
    let mut warnings =
        prune::prune_unknown_fields(resource, &mut object, options).map_err(|error| error.into_status(options.body))?;

    offer_cpu();
    // 4. Preconditions, type and namespace.
    if options.body == RequestBody::Patch && subresource == Subresource::Status && resource.custom {
        object::copy_metadata_field(&mut object, "uid", &current);
    }
    preconditions::check_version(resource, name, &current, &object, options.body)?;
    prepare::set_type_and_namespace(resource, namespace, &mut object)?;
    preconditions::check_name(name, &object)?;

    // 5. Fields that this request cannot change.
    prepare::retain_server_fields(subresource, resource, &current, &mut object);

    offer_cpu();
    // 6. Defaults.
    default::apply_request_defaults(resource, subresource, &mut object, is_applied);
    prepare::default_pod_ips(resource, &mut object);
    normalize::normalize(resource, &mut object);

    offer_cpu();
    // 7. Field managers.
    if !is_applied {
        managed_fields::record_manager(request, core.now(), Some(&current), &mut object);
    }

    offer_cpu();
    // 8. Addresses and ports of Services.
    allocate::allocate_for_service(&transaction, resource, Some(&current), &mut object)?;

    // 9. Mutating admission plugins.
    if subresource == Subresource::Main {
        admit::mutate_update(&transaction, resource, &mut object)?;
    }

    // 10. Fields owned by the server.
    prepare::update_generation(resource, &current, &mut object);
    prepare::prepare_for_update(resource, &current, &mut object, core.now());

    offer_cpu();
    // 11. No change, no write. An applied object may equal the stored one only after defaulting.
    if object == *stored || is_applied && equal_ignoring_timestamps(&object, &stored) {
        return Ok(Some(not_stored(stored, warnings)));
    }

    offer_cpu();
    // 12. Validation.
    validate::update(request, &current, &object)?;
    warnings.extend(warnings::warnings_for(resource, Some(&current), &object));

    offer_cpu();
    // 13. Validation rules of custom resources.
    validation_rules::check(resource, &object, Some(&current))?;

    // 14. The admission port.
    warnings.extend(admit::review(core, resource, "UPDATE", Some(&object), Some(&current))?);

    // 15. Storage version of custom resource definitions.
    if subresource == Subresource::Main {
        prepare::record_storage_version(resource, &mut object);
    }

    offer_cpu();
    // 16. Commit.
    if options.dry_run {
        depth::check(&key.name, &object)?;
        return Ok(Some(not_stored(Arc::new(object), warnings)));
    }
    let Some((object, transition)) = commit(&transaction, request, &key, stored, object)? else { return Ok(None) };
    let committed = Some(Committed { resource: Arc::clone(resource), key, transition });
    Ok(Some(WriteResult { object, warnings, created: false, committed }))
}

/// Stores the updated object, or removes it if the update removes the last finalizer of a terminating object. Returns
/// the object after the update, or `None` on a conflict with a concurrent write.
fn commit(
    transaction: &Transaction<'_>,
    request: &WriteRequest<'_>,
    key: &ObjectKey,
    stored: Arc<Value>,
    object: Value,
) -> Result<Option<(Arc<Value>, Transition)>, Status> {
    if object::is_deleting(&object) && is_removable(request.resource, &object) {
        let removed = transaction.commit(key, Some(&stored), None)?;
        return Ok(removed.map(|_| (Arc::new(object), Transition::Removed { old: stored })));
    }
    let written = transaction.commit(key, Some(&stored), Some(object))?;
    Ok(written.map(|new| {
        let transition = Transition::Updated { subresource: request.subresource, old: stored, new: Arc::clone(&new) };
        (new, transition)
    }))
}

/// Creates an object through PUT or server-side apply.
fn create_on_update(
    core: &Core,
    request: &WriteRequest<'_>,
    name: &str,
    proposal: Proposal,
) -> Result<WriteResult, Status> {
    match proposal {
        Proposal::Apply(_) if request.subresource == Subresource::Main => create(core, request, proposal),
        Proposal::Update(mut object)
            if request.subresource == Subresource::Main && request.resource.allows_create_on_update() =>
        {
            let requested_version =
                object.pointer("/metadata/resourceVersion").cloned().filter(|_| request.options.dry_run);
            object::set_metadata_field(&mut object, "resourceVersion", None);
            let mut result = create(core, request, Proposal::Update(object))?;
            // Dry runs do not assign a resource version.
            if requested_version.is_some() {
                object::set_metadata_field(Arc::make_mut(&mut result.object), "resourceVersion", requested_version);
            }
            Ok(result)
        }
        _ => Err(Status::not_found(&request.resource.group_resource(), name)),
    }
}

/// Returns the result of an update that stores nothing.
fn not_stored(object: Arc<Value>, warnings: Vec<String>) -> WriteResult {
    WriteResult { object, warnings, created: false, committed: None }
}

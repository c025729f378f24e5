//! Creation of an object.

use std::sync::Arc;

use apimachinery::{Status, object};
use serde_json::Value;

use crate::core::Core;
use crate::reviews;
use crate::store::depth;
use crate::transaction::{MAX_ATTEMPTS, Transaction};
use crate::write::{
    Committed, Proposal, Transition, WriteRequest, WriteResult, admit, allocate, current_definition, decode, default,
    managed_fields, normalize, prepare, prune, validate, validation_rules, warnings,
};

/// Maximum number of generated names.
const MAX_GENERATED_NAMES: usize = 8;

/// Creates an object. If only `generateName` is set, the server generates the name.
///
/// # Errors
/// The errors of the stages, and 409 if an object with this name exists.
pub(crate) fn create(core: &Core, request: &WriteRequest<'_>, proposal: Proposal) -> Result<WriteResult, Status> {
    let (object, is_applied) = proposal.into_parts();
    if !object::name(&object).is_empty() {
        return create_after_conflicts(core, request, &object, is_applied);
    }
    let mut last_error = Status::internal_error("no name was generated");
    for _ in 0..MAX_GENERATED_NAMES {
        match create_after_conflicts(core, request, &object, is_applied) {
            Err(status) if status.reason == "AlreadyExists" => last_error = status,
            result => return result,
        }
    }
    Err(last_error)
}

/// Creates an object with the name that it has or with a newly generated one.
fn create_after_conflicts(
    core: &Core,
    request: &WriteRequest<'_>,
    object: &Value,
    is_applied: bool,
) -> Result<WriteResult, Status> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(result) = try_create(core, request, object.clone(), is_applied)? {
            return Ok(result);
        }
    }
    Err(Status::object_modified(&request.resource.group_resource(), object::name(object)))
}

/// Tries to create an object. Returns `None` on a conflict with a concurrent write.
fn try_create(
    core: &Core,
    request: &WriteRequest<'_>,
    mut object: Value,
    is_applied: bool,
) -> Result<Option<WriteResult>, Status> {
    let transaction = Transaction::new(core);
    let WriteRequest { subresource, namespace, options, .. } = *request;

    // 1. Definition, type, namespace and name.
    let resource = &current_definition::current_resource(&transaction, request.resource)?;
    let request = &WriteRequest { resource, ..*request };
    current_definition::check_creation(&transaction, resource)?;
    prepare::set_type_and_namespace(resource, namespace, &mut object)?;
    prepare::generate_name(&mut object, core.random.as_ref());

    // 2. Field types.
    decode::check_field_types(resource, &object).map_err(|error| error.into_status(options.body))?;
    normalize::normalize_integers(resource, &mut object);

    // 3. Unknown fields.
    let mut warnings =
        prune::prune_unknown_fields(resource, &mut object, options).map_err(|error| error.into_status(options.body))?;

    // 4. Defaults.
    default::apply_request_defaults(resource, subresource, &mut object, is_applied);
    prepare::default_pod_ips(resource, &mut object);
    normalize::normalize(resource, &mut object);

    // 5. Field managers: of the fields that the client wrote, not of those that later stages set.
    prepare::drop_status(resource, &mut object);
    if !is_applied {
        managed_fields::record_manager(request, core.now(), None, &mut object);
    }

    // 6. Reviews: evaluated instead of stored.
    if resource.create_only {
        validate::create(resource, &object)?;
        reviews::fill_status(resource, &mut object);
        return Ok(Some(not_stored(object, warnings)));
    }

    // 7. Fields owned by the server.
    prepare::initialize_metadata(resource, &mut object, &core.random.uuid(), core.now());
    prepare::prepare_for_create(resource, &mut object);

    // 8. Mutating admission plugins.
    admit::mutate(&transaction, resource, &mut object)?;
    normalize::normalize(resource, &mut object);

    // 9. Validation.
    validate::create(resource, &object)?;
    warnings.extend(warnings::warnings_for(resource, None, &object));

    // 10. The namespace.
    admit::check_namespace(&transaction, resource, namespace, &object)?;

    // 11. Validation rules of custom resources.
    validation_rules::check(resource, &object, None)?;

    // 12. Addresses and ports of Services.
    allocate::allocate_for_service(&transaction, resource, None, &mut object)?;

    // 13. The name.
    let key = resource.object_key(namespace, object::name(&object));
    if core.store.get_stored(&key).is_some() {
        return Err(Status::already_exists(&resource.group_resource(), &key.name));
    }

    // 14. The admission port.
    warnings.extend(admit::review(core, resource, "CREATE", Some(&object), None)?);

    // 15. Storage version of custom resource definitions.
    prepare::record_storage_version(resource, &mut object);

    // 16. Commit.
    if options.dry_run {
        depth::check(&key.name, &object)?;
        return Ok(Some(not_stored(object, warnings)));
    }
    let Some(new) = transaction.commit(&key, None, Some(object))? else { return Ok(None) };
    let transition = Transition::Created { new: Arc::clone(&new) };
    let committed = Some(Committed { resource: Arc::clone(resource), key, transition });
    Ok(Some(WriteResult { object: new, warnings, created: true, committed }))
}

/// Returns the result of a creation that stores nothing.
fn not_stored(object: Value, warnings: Vec<String>) -> WriteResult {
    WriteResult { object: Arc::new(object), warnings, created: true, committed: None }
}

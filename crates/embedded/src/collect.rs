//! Deletion: grace, finalizers, and what goes along with what (owners, namespaces, definitions).
//!
//! Owners are known by uid, never by name: an owner that was created again under its old name is another one. What
//! a real cluster's garbage collector does a moment later happens here in the same call.

use std::sync::Arc;

use apimachinery::status::Status;
use serde_json::{Value, json};

use crate::resources::Resource;
use crate::server::{Server, key};
use crate::store::{Key, Place, Scope};
use crate::write::{Face, Options, Proposal, admit};
use crate::{crd, object};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What becomes of the dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    /// They go after their owner.
    #[default]
    Background,
    /// They go first, as far as they block their owner.
    Foreground,
    /// They stay and lose the reference.
    Orphan,
}

/// What a client asks of a deletion.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    pub propagation: Propagation,
    /// Seconds; only Pods have any.
    pub grace: Option<i64>,
    /// Precondition.
    pub uid: Option<String>,
    /// Precondition.
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

/// What a deletion did.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// It is gone; the last state.
    Gone(Arc<Value>),
    /// Something has to happen first: a finalizer, a grace period, a namespace to empty.
    Going(Arc<Value>),
}

// === impl Server ===

impl Server {
    /// Deletes one object.
    ///
    /// # Errors
    /// 404, 409 for a failed precondition.
    pub fn delete_object(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let place = key(resource, namespace, name);
        loop {
            let current = self.store().get(&place).ok_or_else(|| Status::not_found(&resource.qualified(), name))?;
            check_preconditions(resource, name, &current, options)?;
            admit::check(self, resource, "DELETE", None, Some(&current))?;
            let mut object = Value::clone(&current);
            mark(self, resource, &mut object, options);
            let gone = may_go(resource, &object);
            if options.dry_run {
                let shown = if gone && resource.storage != "pods" { current } else { Arc::new(object) };
                return Ok(if gone { Deleted::Gone(shown) } else { Deleted::Going(shown) });
            }
            if !gone && object == *current {
                return Ok(Deleted::Going(current));
            }
            let written = if gone { None } else { Some(object.clone()) };
            let Some(committed) = self.store().attempt(&place, Some(&current), written)? else { continue };
            if gone {
                after_removal(self, resource, &committed);
                // What had no time to go never showed that it was going.
                let mut object = if resource.storage == "pods" { object } else { Value::clone(&current) };
                object::copy_metadata(&mut object, "resourceVersion", &committed);
                return Ok(Deleted::Gone(Arc::new(object)));
            }
            after_mark(self, resource, &place, &committed);
            return Ok(match self.store().get(&place) {
                Some(still) => Deleted::Going(still),
                None => Deleted::Gone(committed),
            });
        }
    }
}

/// Whether nothing holds back an object that is being deleted.
pub(crate) fn may_go(resource: &Resource, object: &Value) -> bool {
    let held = resource.storage == "namespaces" && object.pointer("/spec/finalizers/0").is_some();
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    !held && grace == 0 && object::finalizers(object).is_empty()
}

/// An object whose owners are all gone goes too.
pub(crate) fn after_create(server: &Server, place: &Key, object: &Value) {
    collect_if_orphaned(server, place, object);
}

/// A change may drop the last owner, or what an owner waits for.
pub(crate) fn after_update(server: &Server, place: &Key, old: &Value, new: &Value) {
    if old.pointer("/metadata/ownerReferences") == new.pointer("/metadata/ownerReferences") {
        return;
    }
    collect_if_orphaned(server, place, new);
    for owner in object::owner_references(old) {
        release_owner(server, object::text(owner, "/uid"));
    }
}

/// Goes on with what was begun when the process ended, or when a write was undone: owners that are gone, deletions that
/// wait for others.
pub(crate) fn resume(server: &Server) {
    for resource in server.store().resources() {
        let Some(resource) = server.registry().by_name(&resource) else { continue };
        let everywhere = Scope { resource: resource.storage.clone(), namespace: None };
        for (place, kept) in server.store().list(&everywhere).objects {
            let ((namespace, name), object) = (Place::clone(&place), kept.tree());
            let place = Key { resource: resource.storage.clone(), namespace, name };
            if object::is_deleting(&object) {
                after_mark(server, &resource, &place, &object);
            } else {
                collect_if_orphaned(server, &place, &object);
            }
        }
    }
}

/// What follows when an object is gone.
pub(crate) fn after_removal(server: &Server, resource: &Resource, last: &Value) {
    if resource.storage == crd::STORAGE {
        crd::uninstall(server, last);
        // Its names are free now.
        for other in server.list(crd::STORAGE) {
            crd::settle(server, object::name(&other));
        }
    }
    for (place, dependent) in server.store().dependents(object::uid(last)) {
        collect_if_orphaned(server, &place, &dependent);
    }
    for owner in object::owner_references(last) {
        release_owner(server, object::text(owner, "/uid"));
    }
    release_namespace(server, object::namespace(last));
    if resource.custom {
        release_definition(server, &resource.storage);
    }
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    current: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let checks = [
        ("UID", "deleted and then recreated", options.uid.as_deref(), object::uid(current)),
        ("ResourceVersion", "modified", options.resource_version.as_deref(), object::resource_version(current)),
    ];
    for (what, happened, wanted, is) in checks {
        if let Some(wanted) = wanted
            && wanted != is
        {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({is}). The object might have been {happened}"
            );
            return Err(Status::conflict(&resource.qualified_kind(), name, &why));
        }
    }
    Ok(())
}

/// Writes into the object that it is going, and what for.
fn mark(server: &Server, resource: &Resource, object: &mut Value, options: &DeleteOptions) {
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    finalizers.retain(|name| name != FOREGROUND && name != ORPHAN);
    let propagation = match options.propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    finalizers.extend(propagation.map(str::to_owned));
    if resource.storage == crd::STORAGE && !finalizers.iter().any(|name| name == crd::CLEANUP) {
        finalizers.push(crd::CLEANUP.to_owned());
    }
    object::set_metadata(object, "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));

    let grace = grace(resource, object, options);
    if !object::is_deleting(object) {
        let at = server.now() + jiff::SignedDuration::from_secs(grace);
        object::set_metadata(object, "deletionTimestamp", Some(json!(object::time(at))));
        // A namespace takes the time it needs.
        if resource.storage != "namespaces" {
            object::set_metadata(object, "deletionGracePeriodSeconds", Some(json!(grace)));
        }
        if resource.generation {
            let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
            object::set_metadata(object, "generation", Some(json!(generation + 1)));
        }
    } else if object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64) > Some(grace) {
        // A second deletion may only hurry.
        let at = server.now() + jiff::SignedDuration::from_secs(grace);
        object::set_metadata(object, "deletionTimestamp", Some(json!(object::time(at))));
        object::set_metadata(object, "deletionGracePeriodSeconds", Some(json!(grace)));
    }
    if resource.storage == "namespaces" {
        object::members(object).insert("status".to_owned(), json!({"phase": "Terminating"}));
    }
}

/// Pods that run somewhere get time; all else goes at once.
fn grace(resource: &Resource, object: &Value, options: &DeleteOptions) -> i64 {
    let over = matches!(object::text(object, "/status/phase"), "Succeeded" | "Failed");
    if resource.storage != "pods" || object::text(object, "/spec/nodeName").is_empty() || over {
        return 0;
    }
    let default = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    options.grace.unwrap_or(default).max(0)
}

/// What a marked object waits for, started.
fn after_mark(server: &Server, resource: &Resource, place: &Key, object: &Value) {
    if resource.storage == "namespaces" {
        empty_namespace(server, &place.name);
        return release_namespace(server, &place.name);
    }
    if resource.storage == crd::STORAGE {
        for instance in server.list(&place.name) {
            delete_quietly(server, &place.name, &instance);
        }
        return release_definition(server, &place.name);
    }
    let finalizers = object::finalizers(object);
    let uid = object::uid(object);
    if finalizers.contains(&ORPHAN) {
        for (dependent, _) in server.store().dependents(uid) {
            drop_reference(server, &dependent, uid);
        }
        drop_finalizer(server, place, ORPHAN);
    } else if finalizers.contains(&FOREGROUND) {
        for (dependent, object) in server.store().dependents(uid) {
            if !has_other_owner(server, &dependent, &object, uid) {
                delete_with(server, &dependent.resource, &object, Propagation::Foreground);
            }
        }
        release_owner(server, uid);
    }
}

fn collect_if_orphaned(server: &Server, place: &Key, object: &Value) {
    let mut owners = object::owner_references(object).peekable();
    if owners.peek().is_none() || owners.any(|owner| exists(server, &place.namespace, owner)) {
        return;
    }
    delete_quietly(server, &place.resource, object);
}

/// Owners are looked for in the dependent's namespace or in cluster scope. Kinds that are not served right now are
/// given the benefit of the doubt, as the real collector does.
fn exists(server: &Server, namespace: &str, owner: &Value) -> bool {
    let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
    if server.registry().by_kind(text("apiVersion"), text("kind")).is_none() {
        return true;
    }
    let found = server.store().by_uid(text("uid"));
    found.is_some_and(|(place, _)| place.namespace.is_empty() || place.namespace == namespace)
}

fn has_other_owner(server: &Server, place: &Key, object: &Value, uid: &str) -> bool {
    object::owner_references(object)
        .any(|owner| object::text(owner, "/uid") != uid && exists(server, &place.namespace, owner))
}

/// Lets an owner go that waited for its dependents, when the last blocking one is gone.
fn release_owner(server: &Server, uid: &str) {
    let Some((place, owner)) = server.store().by_uid(uid) else { return };
    if !object::is_deleting(&owner) || !object::finalizers(&owner).contains(&FOREGROUND) {
        return;
    }
    let blocked = server.store().dependents(uid).iter().any(|(_, dependent)| {
        object::owner_references(dependent)
            .any(|reference| object::text(reference, "/uid") == uid && reference["blockOwnerDeletion"] == json!(true))
    });
    if !blocked {
        drop_finalizer(server, &place, FOREGROUND);
    }
}

fn empty_namespace(server: &Server, namespace: &str) {
    for (place, object) in server.store().in_namespace(namespace) {
        delete_quietly(server, &place.resource, &object);
    }
}

/// Lets a namespace go when it is empty.
fn release_namespace(server: &Server, namespace: &str) {
    let Some(found) = server.get("namespaces", "", namespace) else { return };
    if !object::is_deleting(&found) || !server.store().in_namespace(namespace).is_empty() {
        return;
    }
    change(
        server,
        &Key { resource: "namespaces".into(), namespace: String::new(), name: namespace.into() },
        |object| {
            if let Some(spec) = object.get_mut("spec") {
                object::members(spec).remove("finalizers");
            }
        },
    );
}

/// Lets a definition go when its last object is gone.
fn release_definition(server: &Server, name: &str) {
    let Some(found) = server.get(crd::STORAGE, "", name) else { return };
    if object::is_deleting(&found) && server.list(name).is_empty() {
        let place = Key { resource: crd::STORAGE.into(), namespace: String::new(), name: name.into() };
        drop_finalizer(server, &place, crd::CLEANUP);
    }
}

fn drop_finalizer(server: &Server, place: &Key, finalizer: &str) {
    change(server, place, |object| {
        let rest: Vec<String> =
            object::finalizers(object).into_iter().filter(|name| *name != finalizer).map(str::to_owned).collect();
        object::set_metadata(object, "finalizers", (!rest.is_empty()).then(|| json!(rest)));
    });
}

fn drop_reference(server: &Server, place: &Key, uid: &str) {
    change(server, place, |object| {
        let rest: Vec<Value> =
            object::owner_references(object).filter(|owner| object::text(owner, "/uid") != uid).cloned().collect();
        object::set_metadata(object, "ownerReferences", (!rest.is_empty()).then(|| json!(rest)));
    });
}

fn change(server: &Server, place: &Key, edit: impl Fn(&mut Value)) {
    let Some(resource) = server.registry().by_name(&place.resource) else { return };
    let options = Options { manager: "kube-controller-manager".to_owned(), ..Options::default() };
    let propose = |current: Option<&Value>| {
        let mut object = current.cloned().unwrap_or_default();
        edit(&mut object);
        Ok(Proposal::Written(object))
    };
    let result = server.modify(&resource, Face::Main, &place.namespace, &place.name, &options, &propose);
    if let Err(error) = result
        && error.reason != "NotFound"
    {
        tracing::warn!(resource = place.resource, name = place.name, %error, "an object that is going stays");
    }
}

fn delete_quietly(server: &Server, resource: &str, object: &Value) {
    delete_with(server, resource, object, Propagation::Background);
}

fn delete_with(server: &Server, resource: &str, object: &Value, propagation: Propagation) {
    let Some(resource) = server.registry().by_name(resource) else { return };
    let options = DeleteOptions { propagation, uid: Some(object::uid(object).to_owned()), ..DeleteOptions::default() };
    let result = server.delete_object(&resource, object::namespace(object), object::name(object), &options);
    if let Err(error) = result
        && error.reason != "NotFound"
    {
        tracing::warn!(resource = resource.storage, name = object::name(object), %error, "not deleted");
    }
}

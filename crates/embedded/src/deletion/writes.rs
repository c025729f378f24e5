//! The writes of the collectors; what they cannot do is logged, for nobody waits for it.

use serde_json::{Value, json};

use super::{DeleteOptions, Propagation};
use crate::object;
use crate::server::Server;
use crate::store::Key;
use crate::write::{Face, Options, Proposal};

pub(super) fn change(server: &Server, place: &Key, edit: impl Fn(&mut Value)) {
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

pub(super) fn drop_finalizer(server: &Server, place: &Key, finalizer: &str) {
    change(server, place, |object| {
        let rest: Vec<String> =
            object::finalizers(object).into_iter().filter(|name| *name != finalizer).map(str::to_owned).collect();
        object::set_metadata(object, "finalizers", (!rest.is_empty()).then(|| json!(rest)));
    });
}

pub(super) fn delete_quietly(server: &Server, resource: &str, object: &Value) {
    delete_with(server, resource, object, Propagation::Background);
}

pub(super) fn delete_with(server: &Server, resource: &str, object: &Value, propagation: Propagation) {
    let Some(resource) = server.registry().by_name(resource) else { return };
    let options = DeleteOptions { propagation, uid: Some(object::uid(object).to_owned()), ..DeleteOptions::default() };
    let result = server.delete_object(&resource, object::namespace(object), object::name(object), &options);
    if let Err(error) = result
        && error.reason != "NotFound"
    {
        tracing::warn!(resource = resource.storage, name = object::name(object), %error, "not deleted");
    }
}

//! `/scale`: the replica counts of any scalable kind, as `autoscaling/v1` Scale.

use apimachinery::selector::LabelSelector;
use apimachinery::status::{Cause, Status};
use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use super::path::Target;
use super::{Call, patch, respond};
use crate::object;
use crate::resources::{Resource, ScalePaths};
use crate::server::{Server, key};
use crate::write::{Face, Options, Proposal, decode, rules};

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let Some(paths) = &target.resource.scale else { return Err(Status::no_such_path()) };
    let resource = &target.resource;
    let found = server.store().get(&key(resource, target.namespace(), target.name()));
    let found = found.ok_or_else(|| Status::not_found(&resource.qualified(), target.name()))?;
    if call.method == Method::GET {
        return Ok(respond::object(&view(resource, paths, &found)));
    }
    let propose = |current: Option<&Value>| {
        let current = current.ok_or_else(|| Status::not_found(&resource.qualified(), target.name()))?;
        let wanted = wanted(target, call, &view(resource, paths, current))?;
        let mut object = current.clone();
        let revision = object::resource_version(&wanted);
        if !revision.is_empty() {
            object::set_metadata(&mut object, "resourceVersion", Some(json!(revision)));
        }
        let replicas = wanted.pointer("/spec/replicas").cloned().unwrap_or(json!(0));
        if replicas.as_i64().is_some_and(|count| count < 0) {
            let cause = Cause::invalid("spec.replicas", &replicas, rules::NOT_NEGATIVE);
            return Err(Status::invalid("Scale.autoscaling", target.name(), vec![cause]));
        }
        put(&mut object, &paths.spec_replicas, replicas);
        Ok(Proposal::Written(object))
    };
    let options = Options { subresource: Some("scale"), ..call.query.write_options(&call.agent)? };
    let outcome = server.modify(resource, Face::Main, target.namespace(), target.name(), &options, &propose)?;
    Ok(respond::object(&view(resource, paths, &outcome.object)))
}

fn wanted(target: &Target, call: &Call, view: &Value) -> Result<Value, Status> {
    match call.method {
        Method::PUT => decode::body(&call.content_type, &call.body),
        Method::PATCH => patch::reader(target, call)?(view),
        _ => Err(Status::method_not_allowed()),
    }
}

fn view(resource: &Resource, paths: &ScalePaths, object: &Value) -> Value {
    let selector = paths.selector.as_ref().and_then(|path| object.pointer(path));
    let selector = match selector {
        Some(Value::String(text)) => text.clone(),
        Some(selector) if !resource.custom => {
            LabelSelector::from_json(selector).map(|selector| selector.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    };
    let metadata = &object["metadata"];
    let kept = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: Value = kept.iter().map(|field| ((*field).to_owned(), metadata[*field].clone())).collect();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": object.pointer(&paths.spec_replicas).cloned().unwrap_or(json!(0))},
        "status": {
            "replicas": object.pointer(&paths.status_replicas).cloned().unwrap_or(json!(0)),
            "selector": selector,
        },
    })
}

/// Sets the value at a JSON pointer, making the objects on the way.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        at = object::members(at).entry(part).or_insert(Value::Null);
    }
    *at = value;
}

//! What the schema of a kind refuses, and the counts of a scalable one.

use apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use crate::resources::Resource;
use crate::write::{Face, prune};

/// Kinds of which only the schema knows what they cannot do without.
const UNRULED: [&str; 3] = ["events", "persistentvolumes", "priorityclasses.scheduling.k8s.io"];

pub(super) fn causes(resource: &Resource, face: Face, object: &Value) -> Result<Vec<Cause>, Status> {
    let Some(schema) = resource.schema() else { return Ok(Vec::new()) };
    if resource.custom {
        let mut causes = custom(resource, &schema.validate(object));
        if face == Face::Status {
            causes.iter_mut().for_each(named_from_the_status);
        }
        causes.extend(counts(resource, face, object));
        return Ok(causes);
    }
    // In typed kinds, null is absence. Metadata is the server's own.
    let members = object.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata");
    let mut object: Value = members.map(|(name, value)| (name.clone(), value.clone())).collect();
    prune::drop_nulls(&mut object);
    let mut causes = schema.validate(&object);
    // Controllers here write statuses of built-in kinds; their types are wider than what a single machine knows. What is
    // required of a specification is in the rules, in the words of kube-apiserver.
    causes.retain(|cause| !cause.field.starts_with("status") && !cause.field.starts_with("metadata"));
    causes.retain(|cause| cause.reason != "FieldValueRequired" || UNRULED.contains(&resource.storage.as_str()));
    if face == Face::Status {
        return Ok(Vec::new());
    }
    let mistyped: Vec<String> =
        causes.iter().filter(|cause| cause.reason == "FieldValueTypeInvalid").map(Cause::to_string).collect();
    if mistyped.is_empty() {
        return Ok(causes);
    }
    Err(Status::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {}",
        resource.kind,
        resource.version,
        resource.kind,
        mistyped.join(", ")
    )))
}

/// A write of the status looks at nothing else, and names fields from there.
fn named_from_the_status(cause: &mut Cause) {
    if let Some(below) = cause.field.strip_prefix("status.") {
        cause.message = cause.message.replacen(&format!(": {} in body", cause.field), &format!(": {below} in body"), 1);
    }
}

/// Definitions may restrict only the name of metadata; the rest is the server's own. Where something is wrong already,
/// the rules have not been looked at, and that is said.
fn custom(resource: &Resource, causes: &[Cause]) -> Vec<Cause> {
    let ours = |cause: &&Cause| !cause.field.starts_with("metadata.") || cause.field == "metadata.name";
    let mut causes: Vec<Cause> = causes.iter().filter(ours).cloned().collect();
    let blocks = |cause: &Cause| {
        let reasons = ["Required", "TypeInvalid", "NotSupported", "TooLong", "TooMany"];
        reasons.iter().any(|reason| cause.reason == format!("FieldValue{reason}"))
    };
    if causes.iter().any(blocks) && resource.has_rules {
        let hint = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        causes.push(Cause::invalid("<nil>", &Value::Null, hint));
    }
    causes
}

/// The counts of a scalable custom resource are whole numbers, whatever its schema says. A status write leaves the
/// wanted count alone.
fn counts(resource: &Resource, face: Face, object: &Value) -> Vec<Cause> {
    let Some(paths) = resource.scale.as_ref().filter(|_| resource.custom) else { return Vec::new() };
    let wanted = (face == Face::Main).then_some(&paths.spec_replicas);
    let mut causes = Vec::new();
    for pointer in wanted.into_iter().chain([&paths.status_replicas]) {
        let Some(count) = object.pointer(pointer) else { continue };
        let field = pointer.replace('/', ".");
        match count.as_i64() {
            Some(count) if count < 0 => {
                causes.push(Cause::invalid(field, &json!(count), "should be a non-negative integer"));
            }
            Some(count) if count > i64::from(i32::MAX) => {
                let hint = format!("should be less than or equal to {}", i32::MAX);
                causes.push(Cause::invalid(field, &json!(count), &hint));
            }
            Some(_) => {}
            None => {
                let (shown, kind) = (apimachinery::go::plain(count), apimachinery::go::kind(count));
                let hint = format!("{field} accessor error: {shown} is of the type {kind}, expected int64");
                causes.push(Cause::invalid(field, &json!(0), &hint));
            }
        }
    }
    causes
}

//! The annotation `provider-owner`: the object with which Kubernetes deletes the provider, although a set owns its requester.

use api::dual_pods::{UserAnnotation, annotation};
use serde_json::{Map, Value};

use crate::problem::Problem;

const FIELDS: [&str; 4] = ["apiVersion", "kind", "name", "uid"];

/// Returns the owner reference of the provider, which does not make the owner its controller.
///
/// # Errors
/// The annotation is not a JSON object with exactly the fields of an owner reference.
pub(super) fn provider_owner(requester: &Value) -> Result<Option<Value>, Problem> {
    let Some(text) = annotation(requester, UserAnnotation::ProviderOwner) else { return Ok(None) };
    let invalid = |message: String| Problem::InvalidAnnotation { annotation: UserAnnotation::ProviderOwner, message };
    let reference: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| invalid(format!("not a JSON object: {error}")))?;
    if let Some(field) = reference.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(invalid(format!("unknown field \"{field}\"")));
    }
    let is_missing = |field: &&str| reference.get(*field).and_then(Value::as_str).is_none_or(str::is_empty);
    match FIELDS.iter().find(|field| is_missing(field)) {
        Some(field) => Err(invalid(format!("{field} must be a string that is not empty"))),
        None => Ok(Some(Value::Object(reference))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::reference(r#"{"apiVersion": "a/v1", "kind": "K", "name": "n", "uid": "u"}"#, None)]
    #[case::no_json("chat", Some("not a JSON object: "))]
    #[case::list("[]", Some("not a JSON object: "))]
    #[case::without_uid(r#"{"apiVersion": "a/v1", "kind": "K", "name": "n"}"#, Some("uid must be a string"))]
    #[case::controller(r#"{"controller": true}"#, Some("unknown field \"controller\""))]
    fn owner_is_parsed(#[case] text: &str, #[case] error: Option<&str>) {
        let pod = json!({"metadata": {"annotations": {"dual-pods.llm-d.ai/provider-owner": text}}});
        match (provider_owner(&pod), error) {
            (Ok(owner), None) => assert_eq!(owner.unwrap()["uid"], "u"),
            (Err(Problem::InvalidAnnotation { message, .. }), Some(error)) => {
                assert!(message.starts_with(error), "{message}");
            }
            (result, _) => panic!("{result:?}"),
        }
    }
}

//! RFC 6902 JSON patch, with the one liberty Kubernetes takes.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::bounds::{self, Spent};
use crate::status::Status;

/// `target` after every operation of `patch`.
///
/// # Errors
/// 400 if `patch` is no JSON patch or nests too deep, 422 if an operation does not fit the object, 413 for too many
/// operations, copies that grow too large or values that are moved too often.
pub fn apply(target: &Value, patch: &Value) -> Result<Value, Status> {
    if !patch.is_array() {
        return Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    }
    let Patch(operations) = serde_json::from_value(patch.clone())
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    bounds::count(&operations)?;
    let mut result = target.clone();
    let mut spent = Spent::default();
    for operation in operations {
        spent.on(&operation, &result)?;
        if is_test_of_absence(&operation, &result) {
            continue;
        }
        json_patch::patch_unsafe(&mut result, &[operation]).map_err(|_| Status::unprocessable())?;
    }
    Ok(result)
}

/// The API server accepts `test` of null at a path that is missing; kube-rs' finalizers rely on it.
fn is_test_of_absence(operation: &PatchOperation, target: &Value) -> bool {
    match operation {
        PatchOperation::Test(test) => test.value.is_null() && target.pointer(&test.path.to_string()).is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn test_of_null_holds_where_nothing_is() {
        let target = json!({"metadata": {}});
        let patch = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["a"]},
        ]);
        assert_eq!(apply(&target, &patch).unwrap(), json!({"metadata": {"finalizers": ["a"]}}));
    }

    #[test]
    fn failed_test_changes_nothing_and_is_422() {
        let patch = json!([{"op": "test", "path": "/a", "value": null}, {"op": "add", "path": "/b", "value": 1}]);
        let error = apply(&json!({"a": 1}), &patch).unwrap_err();
        assert_eq!((error.code, error.reason), (422, "Invalid"));
    }

    #[test]
    fn no_patch_is_400() {
        assert_eq!(apply(&json!({}), &json!({"op": "add"})).unwrap_err().code, 400);
    }
}

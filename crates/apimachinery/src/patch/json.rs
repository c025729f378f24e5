//! RFC 6902 JSON patch, with the one liberty Kubernetes takes.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::status::Status;

/// Most operations of one patch, and most bytes that its copies may make together; as kube-apiserver.
const OPERATIONS: usize = 10_000;
const COPIED: usize = 3 * 1024 * 1024;

/// `target` after every operation of `patch`.
///
/// # Errors
/// 400 if `patch` is no JSON patch, 422 if an operation does not fit the object, 413 for too many operations or copies
/// that grow too large.
pub fn apply(target: &Value, patch: &Value) -> Result<Value, Status> {
    if !patch.is_array() {
        return Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    }
    let Patch(operations) = serde_json::from_value(patch.clone())
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    if operations.len() > OPERATIONS {
        let count = operations.len();
        return Err(Status::too_large(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS}, got {count}"
        )));
    }
    let mut result = target.clone();
    let mut copied = 0;
    for operation in operations {
        if let PatchOperation::Copy(copy) = &operation {
            copied += result.pointer(&copy.from.to_string()).map_or(0, |value| value.to_string().len());
            if copied > COPIED {
                return Err(Status::too_large(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {COPIED}"
                )));
            }
        }
        if is_test_of_absence(&operation, &result) {
            continue;
        }
        json_patch::patch(&mut result, &[operation]).map_err(|_| Status::unprocessable())?;
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
    fn copies_have_a_bound() {
        let doubling = json!({"op": "copy", "from": "", "path": "/a/-"});
        let patch = Value::from(vec![doubling; 64]);
        assert_eq!(apply(&json!({"a": [], "k": "some text"}), &patch).unwrap_err().code, 413);
        let many = Value::from(vec![json!({"op": "test", "path": "/k", "value": 1}); OPERATIONS + 1]);
        assert_eq!(apply(&json!({"k": 1}), &many).unwrap_err().code, 413);
    }

    #[test]
    fn no_patch_is_400() {
        assert_eq!(apply(&json!({}), &json!({"op": "add"})).unwrap_err().code, 400);
    }
}

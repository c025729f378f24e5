//! JSON patch (RFC 6902), with Kubernetes' deviation for `test` of null.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::limits::{PatchUsage, check_operation_count};
use crate::status::Status;

/// Returns `target` with all operations of `patch` applied.
///
/// # Errors
/// 400 if `patch` is not a JSON patch or nests too deep, 422 if an operation cannot be applied, 413 if the patch exceeds
/// the limits on operations, copied bytes or moved values.
pub fn apply_json_patch(target: &Value, patch: &Value) -> Result<Value, Status> {
    if !patch.is_array() {
        return Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    }
    let Patch(operations) = serde_json::from_value(patch.clone())
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    check_operation_count(&operations)?;
    let mut result = target.clone();
    let mut usage = PatchUsage::default();
    for operation in operations {
        usage.charge(&operation, &result)?;
        if is_test_of_missing_path(&operation, &result) {
            continue;
        }
        json_patch::patch_unsafe(&mut result, &[operation]).map_err(|_| Status::unprocessable())?;
    }
    Ok(result)
}

/// Reports whether the operation tests a missing path for null, which the API server accepts; finalizers of kube-rs rely
/// on it.
fn is_test_of_missing_path(operation: &PatchOperation, target: &Value) -> bool {
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
    fn test_of_null_succeeds_on_missing_path() {
        let target = json!({"metadata": {}});
        let patch = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["a"]},
        ]);
        assert_eq!(apply_json_patch(&target, &patch).unwrap(), json!({"metadata": {"finalizers": ["a"]}}));
    }

    #[test]
    fn failed_test_returns_422() {
        let patch = json!([{"op": "test", "path": "/a", "value": null}, {"op": "add", "path": "/b", "value": 1}]);
        let error = apply_json_patch(&json!({"a": 1}), &patch).unwrap_err();
        assert_eq!((error.code, error.reason), (422, "Invalid"));
    }

    #[test]
    fn rejects_patch_that_is_not_a_list() {
        assert_eq!(apply_json_patch(&json!({}), &json!({"op": "add"})).unwrap_err().code, 400);
    }
}

//! JSON merge patch (RFC 7386).

use serde_json::Value;

/// Returns `target` with the JSON merge patch `patch` applied: null deletes a field, lists are replaced.
pub fn apply_merge_patch(target: &Value, patch: &Value) -> Value {
    let mut result = target.clone();
    json_patch::merge(&mut result, patch);
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_deletes_and_lists_replace() {
        let target = json!({"a": 1, "b": {"c": 1, "d": [1, 2]}});
        let patch = json!({"a": null, "b": {"d": [3], "e": {"x": null, "y": 1}}});
        assert_eq!(apply_merge_patch(&target, &patch), json!({"b": {"c": 1, "d": [3], "e": {"y": 1}}}));
    }
}

//! Limits on JSON patches: small operations can be expensive in combination.

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use crate::status::Status;

/// Maximum number of operations of a patch, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum bytes that all copy operations of a patch add, as in kube-apiserver.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// Maximum nesting of the result. Values are processed recursively, so unlimited nesting would overflow the stack.
const MAX_DEPTH: usize = 120;
/// Maximum number of values that all operations together may move. kube-apiserver has no such limit.
const MAX_MOVED_VALUES: usize = 20_000_000;

/// Resources used by the operations of one patch so far.
#[derive(Debug, Default)]
pub(super) struct PatchUsage {
    copied_bytes: usize,
    moved_values: usize,
}

/// Depth and number of values of a JSON value.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Extent {
    depth: usize,
    values: usize,
}

/// Rejects a patch with too many operations.
pub(super) fn check_operation_count(operations: &[PatchOperation]) -> Result<(), Status> {
    if operations.len() <= MAX_OPERATIONS {
        return Ok(());
    }
    let count = operations.len();
    Err(Status::request_entity_too_large(format!(
        "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
    )))
}

// === impl PatchUsage ===

impl PatchUsage {
    /// Charges one operation before it is applied to `target`.
    ///
    /// # Errors
    /// 413 if the operation exceeds a limit, 400 if the result would nest too deep.
    pub(super) fn charge(&mut self, operation: &PatchOperation, target: &Value) -> Result<(), Status> {
        match operation {
            PatchOperation::Add(add) => {
                self.charge_shift(&add.path, target);
                check_depth(&add.path, extent(&add.value))?;
            }
            PatchOperation::Replace(replace) => check_depth(&replace.path, extent(&replace.value))?,
            PatchOperation::Remove(remove) => self.charge_shift(&remove.path, target),
            PatchOperation::Move(movement) => {
                self.charge_shift(&movement.from, target);
                self.charge_shift(&movement.path, target);
                self.charge_move(&movement.from, &movement.path, target)?;
            }
            PatchOperation::Copy(copy) => {
                self.charge_copy(&copy.from, target)?;
                self.charge_shift(&copy.path, target);
                self.charge_move(&copy.from, &copy.path, target)?;
            }
            PatchOperation::Test(_) => {}
        }
        if self.moved_values <= MAX_MOVED_VALUES {
            return Ok(());
        }
        Err(Status::request_entity_too_large(format!(
            "the operations of the JSON patch move more than {MAX_MOVED_VALUES} values in total"
        )))
    }

    fn charge_copy(&mut self, from: &Pointer, target: &Value) -> Result<(), Status> {
        self.copied_bytes += target.pointer(from.as_str()).map_or(0, |value| value.to_string().len());
        if self.copied_bytes <= MAX_COPIED_BYTES {
            return Ok(());
        }
        let copied_bytes = self.copied_bytes;
        Err(Status::request_entity_too_large(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied_bytes}, exceeding the limit {MAX_COPIED_BYTES}"
        )))
    }

    /// Charges the list elements after `path`, which an insertion or removal shifts by one.
    fn charge_shift(&mut self, path: &Pointer, target: &Value) {
        let Some((parent, last)) = path.split_back() else { return };
        let Some(Value::Array(items)) = target.pointer(parent.as_str()) else { return };
        let index = last.decoded().parse().unwrap_or(items.len());
        self.moved_values += items.len().saturating_sub(index);
    }

    fn charge_move(&mut self, from: &Pointer, path: &Pointer, target: &Value) -> Result<(), Status> {
        let extent = target.pointer(from.as_str()).map(extent).unwrap_or_default();
        self.moved_values += extent.values;
        check_depth(path, extent)
    }
}

// === impl Extent ===

impl Extent {
    fn combine(self, other: Self) -> Self {
        Self { depth: self.depth.max(other.depth), values: self.values + other.values }
    }
}

fn check_depth(path: &Pointer, value: Extent) -> Result<(), Status> {
    if path.count() + value.depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(Status::bad_request(format!("the JSON patch nests deeper than {MAX_DEPTH} depth")))
}

fn extent(value: &Value) -> Extent {
    let nested: Extent = match value {
        Value::Object(fields) => fields.values().map(extent).fold(Extent::default(), Extent::combine),
        Value::Array(items) => items.iter().map(extent).fold(Extent::default(), Extent::combine),
        _ => return Extent { depth: 0, values: 1 },
    };
    Extent { depth: nested.depth + 1, values: nested.values + 1 }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::apply_json_patch;
    use super::*;

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({"x": inner}))
    }

    fn pointer(depth: usize) -> String {
        "/x".repeat(depth)
    }

    /// Returns a patch that repeatedly nests `/chain` below `depth` new levels by moving it.
    fn repeated_nesting(depth: usize, times: usize) -> Value {
        let step = [
            json!({"op": "add", "path": "/new", "value": nested(depth)}),
            json!({"op": "move", "from": "/chain", "path": format!("/new{}/x", pointer(depth))}),
            json!({"op": "move", "from": "/new", "path": "/chain"}),
        ];
        step.into_iter().cycle().take(3 * times).collect()
    }

    #[rstest]
    #[case::by_moving(repeated_nesting(100, 3000), 400)]
    #[case::by_copying((0..900).map(|_| json!({"op": "copy", "from": "/chain", "path": "/chain/x"})).collect(), 400)]
    #[case::by_adding(json!([{"op": "add", "path": "/chain/x", "value": nested(119)}]), 400)]
    #[case::by_replacing(json!([{"op": "replace", "path": "/chain", "value": nested(121)}]), 400)]
    #[case::by_inserting(vec![json!({"op": "add", "path": "/wide/0", "value": 1}); 9000].into(), 413)]
    #[case::by_removing(vec![json!({"op": "remove", "path": "/wide/0"}); 9000].into(), 413)]
    #[case::by_moving_many_values((0..9000).map(|n| match n % 2 {
        0 => json!({"op": "move", "from": "/wide", "path": "/there"}),
        _ => json!({"op": "move", "from": "/there", "path": "/wide"}),
    }).collect(), 413)]
    #[case::by_copying_many_bytes(vec![json!({"op": "copy", "from": "", "path": "/wide/-"}); 64].into(), 413)]
    #[case::by_operation_count(vec![json!({"op": "test", "path": "/chain", "value": 1}); MAX_OPERATIONS + 1].into(), 413)]
    fn rejects_patches_beyond_the_limits(#[case] patch: Value, #[case] code: u16) {
        let target = json!({"chain": {}, "wide": vec![0; 10_000]});
        assert_eq!(apply_json_patch(&target, &patch).unwrap_err().code, code);
    }

    #[test]
    fn accepts_typical_patches() {
        let target = json!({"wide": vec![0; 1000], "chain": nested(100)});
        let patch: Value = vec![json!({"op": "add", "path": "/wide/0", "value": 1}); 5000].into();
        assert_eq!(apply_json_patch(&target, &patch).unwrap()["wide"].as_array().unwrap().len(), 6000);
        let patch = json!([{"op": "move", "from": "/chain", "path": "/moved"}]);
        assert_eq!(apply_json_patch(&target, &patch).unwrap()["moved"], nested(100));
    }
}

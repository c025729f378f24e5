//! What a JSON patch may ask for: each operation is small, what they do together need not be.

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use crate::status::Status;

/// Most operations of one patch, and most bytes that its copies may make together; as kube-apiserver.
const OPERATIONS: usize = 10_000;
const COPIED: usize = 3 * 1024 * 1024;
/// Deepest place that an operation may write to. Values are read by recursion, so unbounded ones end the process.
const DEEPEST: usize = 120;
/// Most values that the operations may look at or shift together. kube-apiserver has no such bound.
const TOUCHED: usize = 20_000_000;

/// What the operations of one patch have used up.
#[derive(Debug, Default)]
pub(super) struct Spent {
    copied: usize,
    touched: usize,
}

/// How much of a value there is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Extent {
    levels: usize,
    values: usize,
}

/// Refuses a patch of too many operations.
pub(super) fn count(operations: &[PatchOperation]) -> Result<(), Status> {
    if operations.len() <= OPERATIONS {
        return Ok(());
    }
    let count = operations.len();
    Err(Status::too_large(format!("The allowed maximum operations in a JSON patch is {OPERATIONS}, got {count}")))
}

// === impl Spent ===

impl Spent {
    /// Counts one operation before it is done.
    ///
    /// # Errors
    /// 413 when it is one too many, 400 when it would nest too deep.
    pub(super) fn on(&mut self, operation: &PatchOperation, target: &Value) -> Result<(), Status> {
        match operation {
            PatchOperation::Add(add) => {
                self.shifts(&add.path, target);
                nests(&add.path, extent(&add.value))?;
            }
            PatchOperation::Replace(replace) => nests(&replace.path, extent(&replace.value))?,
            PatchOperation::Remove(remove) => self.shifts(&remove.path, target),
            PatchOperation::Move(each) => {
                self.shifts(&each.from, target);
                self.shifts(&each.path, target);
                self.carries(&each.from, &each.path, target)?;
            }
            PatchOperation::Copy(copy) => {
                self.copies(&copy.from, target)?;
                self.shifts(&copy.path, target);
                self.carries(&copy.from, &copy.path, target)?;
            }
            PatchOperation::Test(_) => {}
        }
        if self.touched <= TOUCHED {
            return Ok(());
        }
        Err(Status::too_large(format!("the operations of the JSON patch move more than {TOUCHED} values together")))
    }

    fn copies(&mut self, from: &Pointer, target: &Value) -> Result<(), Status> {
        self.copied += target.pointer(from.as_str()).map_or(0, |value| value.to_string().len());
        if self.copied <= COPIED {
            return Ok(());
        }
        let copied = self.copied;
        Err(Status::too_large(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {COPIED}"
        )))
    }

    /// What stands in a list behind the place moves by one.
    fn shifts(&mut self, path: &Pointer, target: &Value) {
        let Some((parent, last)) = path.split_back() else { return };
        let Some(Value::Array(items)) = target.pointer(parent.as_str()) else { return };
        let index = last.decoded().parse().unwrap_or(items.len());
        self.touched += items.len().saturating_sub(index);
    }

    fn carries(&mut self, from: &Pointer, path: &Pointer, target: &Value) -> Result<(), Status> {
        let extent = target.pointer(from.as_str()).map(extent).unwrap_or_default();
        self.touched += extent.values;
        nests(path, extent)
    }
}

fn nests(path: &Pointer, value: Extent) -> Result<(), Status> {
    if path.count() + value.levels <= DEEPEST {
        return Ok(());
    }
    Err(Status::bad_request(format!("the JSON patch nests deeper than {DEEPEST} levels")))
}

fn extent(value: &Value) -> Extent {
    let inside: Extent = match value {
        Value::Object(members) => members.values().map(extent).fold(Extent::default(), Extent::beside),
        Value::Array(items) => items.iter().map(extent).fold(Extent::default(), Extent::beside),
        _ => return Extent { levels: 0, values: 1 },
    };
    Extent { levels: inside.levels + 1, values: inside.values + 1 }
}

// === impl Extent ===

impl Extent {
    fn beside(self, other: Self) -> Self {
        Self { levels: self.levels.max(other.levels), values: self.values + other.values }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::json::apply;
    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({}), |inner, _| json!({"x": inner}))
    }

    fn pointer(levels: usize) -> String {
        "/x".repeat(levels)
    }

    /// Grows one chain by `levels` at a time, by moving it below a fresh one and back.
    fn deepening(levels: usize, times: usize) -> Value {
        let step = [
            json!({"op": "add", "path": "/new", "value": nested(levels)}),
            json!({"op": "move", "from": "/chain", "path": format!("/new{}/x", pointer(levels))}),
            json!({"op": "move", "from": "/new", "path": "/chain"}),
        ];
        step.into_iter().cycle().take(3 * times).collect()
    }

    #[rstest]
    #[case::by_moving(deepening(100, 3000), 400)]
    #[case::by_copying((0..900).map(|_| json!({"op": "copy", "from": "/chain", "path": "/chain/x"})).collect(), 400)]
    #[case::by_adding(json!([{"op": "add", "path": "/chain/x", "value": nested(119)}]), 400)]
    #[case::by_replacing(json!([{"op": "replace", "path": "/chain", "value": nested(121)}]), 400)]
    #[case::by_shifting(vec![json!({"op": "add", "path": "/wide/0", "value": 1}); 9000].into(), 413)]
    #[case::by_shifting_back(vec![json!({"op": "remove", "path": "/wide/0"}); 9000].into(), 413)]
    #[case::by_moving_much((0..9000).map(|n| match n % 2 {
        0 => json!({"op": "move", "from": "/wide", "path": "/there"}),
        _ => json!({"op": "move", "from": "/there", "path": "/wide"}),
    }).collect(), 413)]
    #[case::by_copying_much(vec![json!({"op": "copy", "from": "", "path": "/wide/-"}); 64].into(), 413)]
    #[case::by_their_number(vec![json!({"op": "test", "path": "/chain", "value": 1}); OPERATIONS + 1].into(), 413)]
    fn what_a_patch_asks_for_has_bounds(#[case] patch: Value, #[case] code: u16) {
        let target = json!({"chain": {}, "wide": vec![0; 10_000]});
        assert_eq!(apply(&target, &patch).unwrap_err().code, code);
    }

    #[test]
    fn what_people_patch_is_within_them() {
        let target = json!({"wide": vec![0; 1000], "chain": nested(100)});
        let patch: Value = vec![json!({"op": "add", "path": "/wide/0", "value": 1}); 5000].into();
        assert_eq!(apply(&target, &patch).unwrap()["wide"].as_array().unwrap().len(), 6000);
        let patch = json!([{"op": "move", "from": "/chain", "path": "/moved"}]);
        assert_eq!(apply(&target, &patch).unwrap()["moved"], nested(100));
    }
}

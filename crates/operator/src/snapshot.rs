//! What the stores hold, as the input of the pure core.

use cluster::Kind;
use serde_json::Value;

use crate::Operator;

impl Operator {
    /// The service's entry of `ostler plan -o json`, or what makes it unreadable.
    pub(crate) fn plan(&self, _kind: Kind, _service: &Value) -> Result<Value, String> {
        Err(String::new())
    }
}

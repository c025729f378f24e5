//! The selector of a Job.

use serde_json::{Value, json};

use super::default::{child, set, spec};
use crate::object;

/// A Job selects its Pods by its own uid, unless it selects by hand.
pub(super) fn select_own(job: &mut Value) {
    let (uid, name) = (object::uid(job).to_owned(), object::name(job).to_owned());
    let spec = spec(job);
    set(spec, "manualSelector", json!(false));
    if spec["manualSelector"] == true {
        return;
    }
    let labels = child(child(child(spec, "template"), "metadata"), "labels");
    for prefix in ["", "batch.kubernetes.io/"] {
        labels.insert(format!("{prefix}controller-uid"), json!(uid));
        labels.insert(format!("{prefix}job-name"), json!(name));
    }
    let labels = Value::Object(labels.clone());
    let selected = child(child(spec, "selector"), "matchLabels");
    selected.insert("batch.kubernetes.io/controller-uid".to_owned(), json!(uid));
    let own = object::members(object::metadata(job).entry("labels").or_insert_with(|| json!({})));
    for (label, value) in labels.as_object().into_iter().flatten() {
        set(own, label, value.clone());
    }
}

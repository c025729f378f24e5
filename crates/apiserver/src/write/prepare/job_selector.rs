//! Generated selector of Jobs.

use serde_json::{Value, json};

use apimachinery::object::{self, child_object, set_default, spec};

/// Generates the selector of a Job from its UID and adds the matching labels to the Job and its Pod template, unless
/// `manualSelector` is set.
pub(super) fn set_job_selector(job: &mut Value) {
    let (uid, name) = (object::uid(job).to_owned(), object::name(job).to_owned());
    let spec = spec(job);
    set_default(spec, "manualSelector", json!(false));
    if spec["manualSelector"] == true {
        return;
    }
    let template_labels = child_object(child_object(child_object(spec, "template"), "metadata"), "labels");
    for prefix in ["", "batch.kubernetes.io/"] {
        template_labels.insert(format!("{prefix}controller-uid"), json!(uid));
        template_labels.insert(format!("{prefix}job-name"), json!(name));
    }
    let template_labels = Value::Object(template_labels.clone());
    let match_labels = child_object(child_object(spec, "selector"), "matchLabels");
    match_labels.insert("batch.kubernetes.io/controller-uid".to_owned(), json!(uid));
    let job_labels = object::members(object::metadata(job).entry("labels").or_insert_with(|| json!({})));
    for (label, value) in template_labels.as_object().into_iter().flatten() {
        set_default(job_labels, label, value.clone());
    }
}

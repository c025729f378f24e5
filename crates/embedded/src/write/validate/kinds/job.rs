//! Jobs: their counts, and Pods that end.

use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::field::Field;
use super::workload;
use crate::object;

const COUNTS: [&str; 6] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "maxFailedIndexes",
];

pub(super) fn causes(job: &Value) -> Vec<Cause> {
    let spec = Field::of(job).get("spec");
    let mut causes = Vec::new();
    if !spec.get("selector").is_set() {
        causes.push(spec.get("selector").required());
    }
    causes.extend(chosen(job, &spec));
    causes.extend(COUNTS.iter().filter_map(|name| spec.get(name).not_negative()));
    let per_index = spec.get("backoffLimitPerIndex");
    causes.extend(per_index.not_negative());
    if spec.get("maxFailedIndexes").is_set() && !per_index.is_set() {
        causes.push(per_index.required_because("when maxFailedIndexes is specified"));
    }
    let mode = spec.get("completionMode");
    causes.extend(mode.one_of(&["NonIndexed", "Indexed"]));
    let completions = spec.get("completions");
    if mode.text() == "Indexed" && !completions.is_set() {
        causes.push(completions.required_because("when completion mode is Indexed"));
    }
    causes.extend(spec.get("podReplacementPolicy").one_of(&["Failed", "TerminatingOrFailed"]));
    causes.extend(workload::template(job));
    let policy = spec.get("template.spec.restartPolicy");
    match policy.text() {
        "OnFailure" | "Never" => {}
        "Always" => causes.push(policy.required_because("valid values: \"OnFailure\", \"Never\"")),
        _ => causes.push(policy.not_supported(&["OnFailure", "Never"])),
    }
    causes.extend(workload::selector_matches_template(job));
    causes
}

/// A Job selects by its own uid and nothing else, unless it says that it selects by hand.
fn chosen(job: &Value, spec: &Field<'_>) -> Option<Cause> {
    let selector = spec.get("selector");
    let own = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": object::uid(job)}});
    let is_told = *spec.get("manualSelector").value != true && selector.is_set() && *selector.value != own;
    is_told.then(|| selector.invalid("`selector` not auto-generated"))
}

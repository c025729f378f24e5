//! Validation of Jobs.

use apimachinery::{StatusCause, object};
use serde_json::{Value, json};

use super::field::Field;
use super::workload;

const NON_NEGATIVE_FIELDS: [&str; 6] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "maxFailedIndexes",
];

pub(super) fn causes(job: &Value) -> Vec<StatusCause> {
    let spec = Field::root(job).get("spec");
    let mut causes = Vec::new();
    if !spec.get("selector").is_set() {
        causes.push(spec.get("selector").required());
    }
    causes.extend(check_generated_selector(job, &spec));
    causes.extend(NON_NEGATIVE_FIELDS.iter().filter_map(|name| spec.get(name).check_not_negative()));
    let per_index = spec.get("backoffLimitPerIndex");
    causes.extend(per_index.check_not_negative());
    if spec.get("maxFailedIndexes").is_set() && !per_index.is_set() {
        causes.push(per_index.required_with_hint("when maxFailedIndexes is specified"));
    }
    let mode = spec.get("completionMode");
    causes.extend(mode.check_one_of(&["NonIndexed", "Indexed"]));
    let completions = spec.get("completions");
    if mode.text() == "Indexed" && !completions.is_set() {
        causes.push(completions.required_with_hint("when completion mode is Indexed"));
    }
    causes.extend(spec.get("podReplacementPolicy").check_one_of(&["Failed", "TerminatingOrFailed"]));
    causes.extend(workload::check_template(job));
    let policy = spec.get("template.spec.restartPolicy");
    match policy.text() {
        "OnFailure" | "Never" => {}
        "Always" => causes.push(policy.required_with_hint("valid values: \"OnFailure\", \"Never\"")),
        _ => causes.push(policy.not_supported(&["OnFailure", "Never"])),
    }
    causes.extend(workload::check_selector_matches_template(job));
    causes
}

/// Checks that the client did not specify a selector that differs from the generated one, unless `manualSelector` is
/// set.
fn check_generated_selector(job: &Value, spec: &Field<'_>) -> Option<StatusCause> {
    let selector = spec.get("selector");
    let generated_selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": object::uid(job)}});
    let is_custom =
        *spec.get("manualSelector").value != true && selector.is_set() && *selector.value != generated_selector;
    is_custom.then(|| selector.invalid("`selector` not auto-generated"))
}

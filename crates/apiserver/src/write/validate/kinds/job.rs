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
    if mode.text() == "Indexed" {
        if !completions.is_set() {
            causes.push(completions.required_with_hint("when completion mode is Indexed"));
        }
        causes.extend(check_index_limits(&spec));
    } else if ["", "NonIndexed"].contains(&mode.text()) {
        let limits = ["backoffLimitPerIndex", "maxFailedIndexes"].map(|name| spec.get(name));
        causes.extend(
            limits.iter().filter(|limit| limit.is_set()).map(|limit| limit.invalid("requires indexed completion mode")),
        );
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

/// Checks the limits of an indexed Job, which limit the length of lists of indexes in its status.
fn check_index_limits(spec: &Field<'_>) -> Vec<StatusCause> {
    const MAX_INDEXES: i64 = 100_000;
    const MAX_WITH_MANY_COMPLETIONS: i64 = 10_000;
    let [parallelism, completions, max_failed] =
        ["parallelism", "completions", "maxFailedIndexes"].map(|name| spec.get(name));
    let exceeds = |field: &Field<'_>, limit: i64| field.number().is_some_and(|number| number > limit);
    let mut causes = Vec::new();
    if exceeds(&parallelism, MAX_INDEXES) {
        let hint = format!("must be less than or equal to {MAX_INDEXES} when completion mode is Indexed");
        causes.push(parallelism.invalid(&hint));
    }
    if completions.number().is_some_and(|completions| exceeds(&max_failed, completions)) {
        causes.push(max_failed.invalid("must be less than or equal to completions"));
    }
    if exceeds(&max_failed, MAX_INDEXES) {
        causes.push(max_failed.invalid(&format!("must be less than or equal to {MAX_INDEXES}")));
    }
    if exceeds(&completions, MAX_INDEXES) && spec.get("backoffLimitPerIndex").is_set() {
        if !max_failed.is_set() {
            let hint = format!("must be specified when completions is above {MAX_INDEXES}");
            causes.push(max_failed.required_with_hint(&hint));
        }
        let hint = format!(
            "must be less than or equal to {MAX_WITH_MANY_COMPLETIONS} when completions are above {MAX_INDEXES} and used with backoff limit per index"
        );
        let limited = [parallelism, max_failed];
        let limited = limited.iter().filter(|field| exceeds(field, MAX_WITH_MANY_COMPLETIONS));
        causes.extend(limited.map(|field| field.invalid(&hint)));
    }
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

//! Table columns of Jobs.

use apimachinery::object;
use serde_json::{Value, json};

use super::age::human_age;
use super::cell::{age, column, container_values, items, number, selector};
use super::column::Column;

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Status", "string", 0, |job, _| json!(job_status(job))),
        column("Completions", "string", 0, |job, _| json!(job_completions(job))),
        column("Duration", "string", 0, |job, now| json!(job_duration(job, now))),
        age(),
        column("Containers", "string", 1, |job, _| json!(container_values(job, "name"))),
        column("Images", "string", 1, |job, _| json!(container_values(job, "image"))),
        column("Selector", "string", 1, |job, _| json!(selector(job))),
    ]
}

fn job_status(job: &Value) -> &'static str {
    let has_condition = |kind: &str| {
        items(job, "/status/conditions").any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let states = [("Complete", "Complete"), ("Failed", "Failed")];
    let finished = states.into_iter().find(|(kind, _)| has_condition(kind)).map(|(_, state)| state);
    let terminating = if object::is_deleting(job) { Some("Terminating") } else { None };
    let suspended = has_condition("Suspended").then_some("Suspended");
    let finishing = has_condition("FailureTarget")
        .then_some("FailureTarget")
        .or(has_condition("SuccessCriteriaMet").then_some("SuccessCriteriaMet"));
    finished.or(terminating).or(suspended).or(finishing).unwrap_or("Running")
}

fn job_completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if number(job, "/spec/parallelism") > 1 => {
            format!("{succeeded}/1 of {}", number(job, "/spec/parallelism"))
        }
        None => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: jiff::Timestamp) -> String {
    let start = object::text(job, "/status/startTime");
    if start.is_empty() {
        return String::new();
    }
    human_age(start, object::text(job, "/status/completionTime").parse().unwrap_or(now))
}

//! What is refused when an object is written, beyond what schemas and CEL can say: rules over several fields in text,
//! and rules between objects.
//!
//! One pure function, three users: the webhook that a cluster calls ([`webhook`]), the admission of the embedded API
//! server, and `ostler lint`, which has files in place of a cluster.

mod classes;
mod counts;
mod landscape;
mod layouts;
mod offers;
pub mod pickers;
mod set_names;
pub mod webhook;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::lint::{Finding, Severity};
use api::manifest::Document;
use apimachinery::status::Cause;
use cluster::{Kind, Stores};
use serde_json::Value;

pub use landscape::Landscape;

/// One write, as an AdmissionReview states it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// None where the object is deleted.
    pub object: Option<&'a Value>,
    /// None where it is created.
    pub old: Option<&'a Value>,
}

/// The answer: what refuses the write, and what its author should know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Empty: allowed.
    pub errors: Vec<Finding>,
    /// One line each.
    pub warnings: Vec<String>,
}

/// The objects that exist.
pub trait View {
    /// Every object of a kind.
    fn list(&self, kind: Kind) -> Vec<Arc<Value>>;
}

/// Warnings per write; API servers cut what is longer than a few lines.
const WARNINGS: usize = 8;
/// Characters per warning, as API servers recommend.
const WARNING_LENGTH: usize = 250;

/// What is wrong with a write. An object that stood with a fault may keep it: its author must be able to remove a
/// finalizer or correct another field first.
#[must_use]
pub fn review(request: &Request<'_>, view: &dyn View) -> Verdict {
    let Some(object) = request.object.filter(|object| concerns(object, request.old)) else {
        return Verdict::default();
    };
    let landscape = Landscape::around(object, view);
    let found = findings(object, &landscape);
    let stood: BTreeSet<(String, String)> = match request.old {
        Some(old) if !found.is_empty() => {
            findings(old, &landscape).into_iter().map(|finding| (finding.path, finding.message)).collect()
        }
        _ => BTreeSet::new(),
    };
    let (errors, tolerated): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|one| one.severity == Severity::Error && !stood.contains(&(one.path.clone(), one.message.clone())));
    Verdict { errors, warnings: tolerated.iter().take(WARNINGS).map(line).collect() }
}

fn findings(object: &Value, landscape: &Landscape) -> Vec<Finding> {
    let document = Document { source: String::new(), index: 1, value: object.clone() };
    let mut findings = api::lint::beyond_schema(&document);
    findings.extend(landscape.check(&document));
    findings.extend(pickers::check(&document));
    // What is wrong by itself need not be said again as what follows from it.
    if findings.iter().all(|finding| finding.severity != Severity::Error) {
        findings.extend(layouts::check(&document));
    }
    findings
}

/// Whether there is anything to check: a kind of ours that stays, and more of it changed than its status or labels.
fn concerns(object: &Value, old: Option<&Value>) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let same = |old: &Value| {
        old["spec"] == object["spec"] && old["metadata"]["annotations"] == object["metadata"]["annotations"]
    };
    api::crds::is_served(text("apiVersion"), text("kind"))
        && object["metadata"]["deletionTimestamp"].is_null()
        && !old.is_some_and(same)
}

/// `spec.x: what is wrong; what to do`.
fn line(finding: &Finding) -> String {
    let text = format!("{}: {}", finding.path, sentence(finding));
    match text.char_indices().nth(WARNING_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn sentence(finding: &Finding) -> String {
    match &finding.hint {
        Some(hint) => format!("{}; {hint}", finding.message),
        None => finding.message.clone(),
    }
}

// === impl Verdict ===

impl Verdict {
    /// Whether the write goes on.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.errors.is_empty()
    }

    /// What refuses the write, as a Status reports it.
    #[must_use]
    pub fn causes(&self) -> Vec<Cause> {
        let cause = |finding: &Finding| Cause::new(&finding.path, "FieldValueInvalid", sentence(finding));
        self.errors.iter().map(cause).collect()
    }
}

impl View for Stores {
    fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        Stores::list(self, kind)
    }
}

#[cfg(test)]
mod tests;

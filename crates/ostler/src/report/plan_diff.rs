//! Renders the changes of `ostler plan --diff`: unified diffs per object, and the Pods that would restart.

use cluster::{ApplyOutcome, ObjectOwner, ObjectPreview, PreviewOutcome};
use operator::{ServicePreview, WorkloadRestart};
use plan::ServicePlan;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::names::format_count;

/// Lines of context around a change.
const CONTEXT_LINES: usize = 3;
/// Fields of metadata that the API server sets.
const SERVER_METADATA: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];
/// Annotation of `kubectl apply` that repeats the manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Output of `ostler plan --diff -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanDiff {
    /// Always `PlanDiff`.
    kind: &'static str,
    /// Changes of the applied manifests.
    manifests: Vec<ObjectDiff>,
    /// Changes by the operator, per service.
    services: Vec<ServiceDiff>,
}

/// Changes of the objects of one service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServiceDiff {
    api_version: String,
    kind: &'static str,
    namespace: String,
    name: String,
    feasible: bool,
    /// Reason of the plan.
    reason: String,
    message: String,
    /// Objects that change, and objects that cannot be applied.
    objects: Vec<ObjectDiff>,
    restarts: Vec<Restart>,
}

/// Change of one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectDiff {
    change: Change,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    /// Unified diff of the objects as YAML, without status and without metadata that the API server sets.
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
    /// Why the object is not applied.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Change {
    Created,
    Updated,
    Deleted,
    NotApplied,
}

/// Workload whose Pods restart.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Restart {
    kind: String,
    namespace: String,
    name: String,
    pods: u64,
    /// Whether all Pods stop before new ones start.
    recreates: bool,
    /// Whether a workload of another kind or name replaces it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replaced: bool,
}

// === impl PlanDiff ===

impl PlanDiff {
    pub(crate) fn new(manifests: &[ObjectPreview], services: Vec<ServicePreview>) -> Self {
        Self {
            kind: "PlanDiff",
            manifests: manifests.iter().filter_map(ObjectDiff::new).collect(),
            services: services.into_iter().map(ServiceDiff::new).collect(),
        }
    }

    /// Returns whether all services are feasible.
    pub(crate) fn is_feasible(&self) -> bool {
        self.services.iter().all(|service| service.feasible)
    }

    /// Renders the manifests, a section per service that changes or is not feasible, and a summary.
    pub(crate) fn render(&self) -> String {
        let manifests = self.manifests.iter().map(ObjectDiff::render);
        let services = self.services.iter().filter_map(ServiceDiff::render);
        let sections: Vec<String> = manifests.chain(services).chain([format!("{}\n", self.summary())]).collect();
        sections.join("\n")
    }

    fn summary(&self) -> String {
        let objects = || self.manifests.iter().chain(self.services.iter().flat_map(|service| &service.objects));
        let changes = [(Change::Created, "created"), (Change::Updated, "updated"), (Change::Deleted, "deleted")];
        let counts: Vec<String> = changes
            .into_iter()
            .map(|(change, verb)| (objects().filter(|object| object.change == change).count(), verb))
            .filter(|(count, _)| *count > 0)
            .map(|(count, verb)| format!("{} would be {verb}", format_count(count, "object")))
            .collect();
        if counts.is_empty() {
            return format!("Nothing would change ({}).", format_count(self.services.len(), "service"));
        }
        let restarts: Vec<&Restart> = self.services.iter().flat_map(|service| &service.restarts).collect();
        let pods = restarts.iter().map(|restart| usize::try_from(restart.pods).unwrap_or(usize::MAX)).sum();
        let restarts = match restarts.len() {
            0 => "no Pod would restart".to_owned(),
            count => format!("{} of {} would restart", format_count(pods, "Pod"), format_count(count, "workload")),
        };
        format!("{}; {restarts}.", counts.join(", "))
    }
}

// === impl ServiceDiff ===

impl ServiceDiff {
    fn new(preview: ServicePreview) -> Self {
        let api_version = preview.kind.api_version();
        let plan = preview.plan.unwrap_or_else(|message| ServicePlan {
            reason: "NotPlanned".to_owned(),
            message,
            ..ServicePlan::default()
        });
        Self {
            api_version,
            kind: preview.kind.kind,
            namespace: preview.key.namespace,
            name: preview.key.name,
            feasible: plan.feasible,
            reason: plan.reason,
            message: plan.message,
            objects: preview.objects.iter().filter_map(ObjectDiff::new).collect(),
            restarts: preview.restarts.into_iter().map(Restart::new).collect(),
        }
    }

    /// Renders the service; `None` if it is feasible and nothing changes.
    fn render(&self) -> Option<String> {
        if self.feasible && self.objects.is_empty() {
            return None;
        }
        let group = self.api_version.split('/').next().unwrap_or_default();
        let group = if group == "ome.io" { String::new() } else { format!(".{group}") };
        let outcome = match self.feasible {
            true => self.message.clone(),
            false => format!("not feasible: {}: {}; existing objects are retained", self.reason, self.message),
        };
        let mut text = format!("inferenceservice{group} {}/{} — {outcome}\n", self.namespace, self.name);
        let (not_applied, changed): (Vec<_>, Vec<_>) =
            self.objects.iter().partition(|object| object.change == Change::NotApplied);
        let restarts = self.restarts.iter().map(Restart::render);
        let not_applied = not_applied.into_iter().map(ObjectDiff::render);
        not_applied.chain(restarts).for_each(|line| text.push_str(&format!("  {line}")));
        changed.into_iter().for_each(|object| text.push_str(&object.render()));
        Some(text)
    }
}

// === impl ObjectDiff ===

impl ObjectDiff {
    /// Returns the change of an object; `None` if nothing changes.
    fn new(preview: &ObjectPreview) -> Option<Self> {
        let (change, message) = match &preview.outcome {
            PreviewOutcome::Unchanged => return None,
            PreviewOutcome::Created => (Change::Created, String::new()),
            PreviewOutcome::Updated => (Change::Updated, String::new()),
            PreviewOutcome::Deleted => (Change::Deleted, String::new()),
            PreviewOutcome::NotApplied(outcome) => (Change::NotApplied, obstacle(outcome)),
        };
        let mut diff = Self {
            change,
            api_version: preview.api_version.clone(),
            kind: preview.kind.clone(),
            namespace: preview.key.namespace.clone(),
            name: preview.key.name.clone(),
            diff: String::new(),
            message,
        };
        if change != Change::NotApplied {
            diff.diff = diff.unified(preview);
        }
        // An apply may change only metadata that the diff omits, such as the managed fields.
        (change != Change::Updated || !diff.diff.is_empty()).then_some(diff)
    }

    fn unified(&self, preview: &ObjectPreview) -> String {
        let (live, planned) = (preview.live.as_ref(), preview.planned.as_ref());
        let header = |object: Option<&Value>, side: &str| match object {
            Some(_) => format!("{side}/{}", self.display_name()),
            None => "/dev/null".to_owned(),
        };
        let (old, new) = (to_yaml(live), to_yaml(planned));
        TextDiff::from_lines(&old, &new)
            .unified_diff()
            .context_radius(CONTEXT_LINES)
            .header(&header(live, "live"), &header(planned, "planned"))
            .to_string()
    }

    fn display_name(&self) -> String {
        let separator = if self.namespace.is_empty() { "" } else { "/" };
        format!("{} {}{separator}{}", self.kind, self.namespace, self.name)
    }

    fn render(&self) -> String {
        match self.change {
            Change::NotApplied => format!("{} is not applied: {}\n", self.display_name(), self.message),
            Change::Created | Change::Updated | Change::Deleted => self.diff.clone(),
        }
    }
}

/// Renders an object as YAML without status and without metadata that the API server sets.
fn to_yaml(object: Option<&Value>) -> String {
    let Some(object) = object else { return String::new() };
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        SERVER_METADATA.iter().for_each(|field| drop(metadata.remove(*field)));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    serde_saphyr::to_string(&object).unwrap_or_default()
}

/// Returns why an object is not applied.
fn obstacle(outcome: &ApplyOutcome) -> String {
    match outcome {
        ApplyOutcome::Terminating => "it is being deleted, and is created again afterwards".to_owned(),
        ApplyOutcome::NotOwned(ObjectOwner::Controller { kind, name }) => format!("{kind} {name} controls it"),
        ApplyOutcome::NotOwned(ObjectOwner::FieldManager) => "another client created it".to_owned(),
        ApplyOutcome::KindNotServed => "the cluster does not serve its kind".to_owned(),
        ApplyOutcome::KindNotListed(Some(cause)) => format!("the live object is unknown: {cause}"),
        ApplyOutcome::KindNotListed(None) => "the live object is unknown".to_owned(),
        ApplyOutcome::Rejected(message) => message.clone(),
        ApplyOutcome::Deferred => "the rollout is paused".to_owned(),
        ApplyOutcome::Unchanged | ApplyOutcome::Created | ApplyOutcome::Updated => String::new(),
    }
}

// === impl Restart ===

impl Restart {
    fn new(restart: WorkloadRestart) -> Self {
        let WorkloadRestart { kind, key, pods, recreates, replaced } = restart;
        Self { kind, namespace: key.namespace, name: key.name, pods, recreates, replaced }
    }

    fn render(&self) -> String {
        let pods = format_count(usize::try_from(self.pods).unwrap_or(usize::MAX), "Pod");
        let (verb, interruption) = match (self.replaced, self.recreates) {
            (false, false) => ("restarts", ""),
            (false, true) => ("restarts", "; it is unavailable until a new Pod is ready"),
            (true, false) => ("is replaced", "; it serves until its replacement is ready"),
            (true, true) => ("is replaced", "; the service is unavailable until its replacement is ready"),
        };
        format!("{} {}/{} {verb}: {pods}{interruption}\n", self.kind, self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// `kubectl apply` of a manifest that `ostler up -f` applied before changes only its annotation.
    #[rstest]
    #[case::annotation(json!({LAST_APPLIED: "{}"}), "Nothing would change (0 services).\n")]
    #[case::label(json!({"a": "b"}), "1 object would be updated; no Pod would restart.\n")]
    fn change_without_a_diff_is_no_update(#[case] annotations: Value, #[case] expected: &str) {
        let object = |annotations: Value| {
            json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "chat", "namespace": "n", "annotations": annotations}})
        };
        let preview = ObjectPreview::new(Some(object(annotations)), Some(object(json!({}))));
        let text = PlanDiff::new(&[preview], Vec::new()).render();
        assert!(text.ends_with(expected), "{text}");
        assert_eq!(text.contains("---"), !expected.starts_with("Nothing"), "{text}");
    }

    #[rstest]
    #[case::only_last_applied(json!({LAST_APPLIED: "{}"}), "metadata:\n  name: chat\n")]
    #[case::others(json!({LAST_APPLIED: "{}", "a": "b"}), "metadata:\n  annotations:\n    a: b\n  name: chat\n")]
    fn omits_last_applied(#[case] annotations: Value, #[case] expected: &str) {
        let object = json!({"metadata": {"name": "chat", "annotations": annotations, "uid": "u"}, "status": {}});
        assert_eq!(to_yaml(Some(&object)), expected);
    }
}

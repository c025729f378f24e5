//! Why a runtime is or is not chosen; and which runtimes serve a model.

use decide::decision::Candidate;
use decide::outranked::OUTRANKED;
use decide::supply::Scope;
use jiff::Timestamp;
use plan::{Service, ServicePlan, Snapshot};
use serde_json::{Value, json};

use super::{Explanation, text};
use crate::live::{self, Live};
use crate::report::tree::{Branch, counted, grouped, listed};

const LINES: usize = 8;

/// A ServingRuntime or ClusterServingRuntime: its place for every service, and for every model that could be served.
pub(crate) fn runtime(object: &Value, live: &Live, now: Timestamp) -> Explanation {
    let mut found = Explanation::of(object, now);
    let snapshot = live.snapshot();
    let who = Who { name: found.name.clone(), namespace: found.namespace.clone() };
    let services: Vec<(String, ServicePlan)> = live
        .services
        .iter()
        .filter_map(|service| planned(&snapshot, service))
        .filter(|(_, plan)| who.sees(plan))
        .collect();
    let models: Vec<(String, ServicePlan)> =
        questions(&snapshot, &who, None).iter().filter_map(|service| planned(&snapshot, service)).collect();

    let chosen_by = chosen(&who, &services);
    let chosen_for = chosen(&who, &models);
    found.message = match (chosen_by.len(), chosen_for.len()) {
        (0, 0) => "chosen by no service, and for no model".to_owned(),
        (0, count) => format!("chosen by no service; would be for {count} of {}", counted(models.len(), "model")),
        (count, _) => format!("chosen by {count} of {}", counted(services.len(), "service")),
    };
    found.ready = !chosen_by.is_empty() || !chosen_for.is_empty();
    found.tree.extend(branch("services", verdicts(&who, &services)));
    found.tree.extend(branch("models", verdicts(&who, &models)));
    if !found.ready {
        found.remedies = ways(&snapshot, &who);
    }
    found
}

/// A BaseModel or ClusterBaseModel: what a service that names only the model would get, and against whom.
pub(crate) fn model(object: &Value, live: &Live, now: Timestamp) -> Explanation {
    let mut found = Explanation::of(object, now);
    let snapshot = live.snapshot();
    let namespace = if found.namespace.is_empty() { "default" } else { &found.namespace };
    let question = question(namespace, &found.name, None);
    let Some((_, plan)) = planned(&snapshot, &question) else {
        found.message = "cannot be read".to_owned();
        return found;
    };
    found.ready = plan.feasible;
    let is_decided = plan.feasible || plan.candidates.iter().any(|one| one.selected);
    found.message = if is_decided { plan.message.clone() } else { "no runtime serves it".to_owned() };
    let row = |one: &Candidate| (one.runtime.clone(), place(one));
    found.tree.extend(branch("runtimes", plan.candidates.iter().map(row).collect()));
    let users = live.services.iter().filter(|service| service["spec"]["model"]["name"] == *found.name);
    let name =
        |one: &Value| (format!("{}/{}", text(one, "/metadata/namespace"), text(one, "/metadata/name")), String::new());
    found.tree.extend(branch("services that use it", users.map(name).collect()));
    if !plan.feasible {
        let service = Service::read(&live::document(question)).ok().flatten();
        let remedies = service.iter().flat_map(|service| plan::remedies(&snapshot, service));
        found.remedies = remedies.map(|remedy| remedy.to_string()).collect();
    }
    found
}

/// A runtime as candidates name it.
struct Who {
    name: String,
    /// Empty for the cluster's.
    namespace: String,
}

impl Who {
    fn is(&self, candidate: &Candidate) -> bool {
        candidate.runtime == self.name && (candidate.scope == Scope::Cluster) == self.namespace.is_empty()
    }

    /// Runtimes of a namespace are seen by its services only.
    fn sees(&self, plan: &ServicePlan) -> bool {
        self.namespace.is_empty() || plan.namespace == self.namespace
    }
}

fn branch(title: &str, rows: Vec<(String, String)>) -> Option<Branch> {
    let below = grouped("", rows, LINES);
    (!below.is_empty()).then(|| Branch::new(title, below))
}

/// The plan of an `ome.io` service, by name; other services choose no runtime.
fn planned(snapshot: &Snapshot, service: &Value) -> Option<(String, ServicePlan)> {
    let read = Service::read(&live::document(service.clone())).ok().flatten()?;
    matches!(read, Service::Ome(_))
        .then(|| (text(service, "/metadata/name").to_owned(), plan::plan_service(snapshot, &read)))
}

fn chosen(who: &Who, plans: &[(String, ServicePlan)]) -> Vec<String> {
    let is_chosen = |plan: &ServicePlan| plan.candidates.iter().any(|one| one.selected && who.is(one));
    plans.iter().filter(|(_, plan)| is_chosen(plan)).map(|(name, _)| name.clone()).collect()
}

/// The runtime's place in each plan: chosen ones first, then those it came near to.
fn verdicts(who: &Who, plans: &[(String, ServicePlan)]) -> Vec<(String, String)> {
    let verdict = |plan: &ServicePlan| match plan.candidates.iter().find(|one| who.is(one)) {
        Some(candidate) => (order(candidate), place(candidate)),
        None => (u8::MAX, "was not asked: another runtime is named, or the model is unknown".to_owned()),
    };
    let mut rows: Vec<((u8, String), String)> =
        plans.iter().map(|(name, plan)| (verdict(plan), name.clone())).collect();
    rows.sort_by_key(|((order, _), _)| *order);
    rows.into_iter().map(|((_, why), name)| (name, why)).collect()
}

fn order(candidate: &Candidate) -> u8 {
    match &candidate.rejected {
        None => u8::from(!candidate.selected),
        Some(rejection) => 100 - rejection.stage(),
    }
}

fn place(candidate: &Candidate) -> String {
    match (&candidate.rejected, &candidate.outranked) {
        (Some(rejection), _) => format!("{}: {rejection}", rejection.code()),
        (None, Some(step)) => format!("{OUTRANKED}: {step}"),
        (None, None) if candidate.selected => "chosen".to_owned(),
        (None, None) => "could serve".to_owned(),
    }
}

/// Models that a service could be given instead of its own: each is tried in its place.
pub(crate) fn other_models(snapshot: &Snapshot, service: &Value) -> Option<String> {
    let namespace = text(service, "/metadata/namespace");
    let visible =
        snapshot.models.iter().filter(|model| model.namespace.as_deref().is_none_or(|other| other == namespace));
    let serves = |model: &&plan::Model| {
        let mut changed = service.clone();
        changed["spec"]["model"] = json!({"name": model.name});
        planned(snapshot, &changed).is_some_and(|(_, plan)| plan.feasible)
    };
    let mut names: Vec<String> = visible.filter(serves).map(|model| model.name.clone()).collect();
    (!names.is_empty()).then(|| format!("name another model in spec.model.name; served here: {}", listed(&mut names)))
}

/// A service per model that the runtime could see, naming a runtime or none.
fn questions(snapshot: &Snapshot, who: &Who, runtime: Option<&str>) -> Vec<Value> {
    let namespace = if who.namespace.is_empty() { "default" } else { &who.namespace };
    let visible = snapshot.models.iter().filter(|model| match (&model.namespace, who.namespace.is_empty()) {
        (None, _) | (Some(_), true) => true,
        (Some(other), false) => *other == who.namespace,
    });
    visible.map(|model| question(model.namespace.as_deref().unwrap_or(namespace), &model.name, runtime)).collect()
}

/// The smallest service that asks for a model.
fn question(namespace: &str, model: &str, runtime: Option<&str>) -> Value {
    let mut service = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": model, "namespace": namespace}, "spec": {"model": {"name": model}},
    });
    if let Some(runtime) = runtime {
        service["spec"]["runtime"] = json!({"name": runtime});
    }
    service
}

/// What would get the runtime chosen: being switched on, or being named. Each is tried on every model.
fn ways(snapshot: &Snapshot, who: &Who) -> Vec<String> {
    let mut ways = Vec::new();
    let is_it = |one: &plan::Runtime| one.name == who.name && one.namespace == who.namespace;
    let mut enabled = snapshot.clone();
    let disabled = enabled.runtimes.iter_mut().find(|one| is_it(one)).filter(|one| one.spec().disabled == Some(true));
    let change = if let Some(runtime) = disabled {
        runtime.edit(|spec| spec.disabled = None);
        let plans: Vec<_> = questions(&enabled, who, None).iter().filter_map(|one| planned(&enabled, one)).collect();
        let mut models = chosen(who, &plans);
        if !models.is_empty() {
            ways.push(format!("remove spec.disabled: it would be chosen for {}", listed(&mut models)));
        }
        "remove spec.disabled and name"
    } else {
        "name"
    };
    let named = questions(&enabled, who, Some(&who.name));
    let plans: Vec<_> = named.iter().filter_map(|one| planned(&enabled, one)).collect();
    let mut models = chosen(who, &plans);
    if !models.is_empty() {
        let name = &who.name;
        ways.push(format!(
            "{change} it in a service, spec.runtime.name: {name}: it could serve {}",
            listed(&mut models)
        ));
    }
    ways
}

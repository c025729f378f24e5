//! The router in front of the engines: on CPU nodes, never touched by accelerators (seed 000, Story 5).

use std::collections::BTreeMap;

use api::ome::Component;
use decide::demand::ComponentDemand;
use decide::merge::origin::{Origin, Setting};
use decide::reason::Warning;
use decide::supply::RuntimeComponent;
use serde_json::{Value, json};

use super::replicas::Scaling;
use super::{Decided, ROUTER, ReplicaSet, metadata, pod_spec, selector};
use crate::code;
use crate::names;
use crate::pod;
use crate::probe;
use crate::roles::queue_name;
use crate::runner::{self, Layers};
use crate::topology::{Owner, Refusal, Role, Workload};

/// The router's role, if runtime or service has one.
pub(super) fn role(owner: &Owner, decided: &Decided<'_>, warnings: &mut Vec<Warning>) -> Result<Option<Role>, Refusal> {
    let of_runtime = decided.runtime.and_then(|runtime| runtime.spec.router_config.as_ref());
    if of_runtime.is_none() && decided.service.router.is_none() {
        return Ok(None);
    }
    let runtime = configured(of_runtime.cloned().unwrap_or_default());
    let service = configured(decided.service.router.clone().unwrap_or_default());
    let (offer, demand) = own_placement(&runtime, &service);
    let layers = Layers { runtime: &runtime, service: &service, offer: &offer, demand: &demand, accelerators: None };
    let merged = runner::container(&layers, warnings);
    let (mut container, mut settings) = (merged.container, merged.settings);
    complete(&mut container, owner, &mut settings, warnings)?;
    let port = pod_spec::answer(&mut container, |_, port| probe::tcp(port));
    pod_spec::last_words(&mut container);
    let placed = pod_spec::placed(&layers, &mut settings, warnings)?;
    let spec = pod_spec::around(container, placed, owner, warnings);
    let selector = selector(owner, ROUTER);
    let mut labels = selector.clone();
    labels.extend(queue_name(owner));
    let nothing = ReplicaSet::default();
    let scaling = Scaling {
        owner,
        spec: decided.service,
        runtime: &runtime,
        service: &service,
        component: ROUTER,
        workload: names::component(&owner.name, ROUTER),
        engine: None,
        autoscalers: decided.autoscalers,
    };
    Ok(Some(Role {
        name: ROUTER.to_owned(),
        component: ROUTER.to_owned(),
        workload: Workload::Deployment,
        replicas: scaling.replicas(warnings),
        disruption: Some(scaling.disruption()),
        nodes: 1,
        worker: None,
        gang: false,
        spread: false,
        template: json!({"metadata": metadata::of(decided, &runtime, &service, &nothing, &selector), "spec": spec}),
        service: Some(selector.clone()),
        selector,
        labels,
        port,
        strategy: service.deployment_strategy.clone().or_else(|| runtime.deployment_strategy.clone()),
        settings,
    }))
}

/// `config` becomes variables of the container, sorted by name; what `runner.env` says of one counts more.
fn configured(mut router: Component) -> Component {
    if router.config.is_empty() {
        return router;
    }
    let mut runner = router.runner.take().unwrap_or_else(|| json!({}));
    for (name, value) in &router.config {
        pod::add_if_absent(&mut runner, "env", "name", json!({"name": name, "value": value}));
    }
    Component { runner: Some(runner), ..router }
}

/// A router's own node selector and affinity are all it has.
fn own_placement(runtime: &Component, service: &Component) -> (RuntimeComponent, ComponentDemand) {
    let offer = RuntimeComponent {
        node_selector: runtime.node_selector.clone(),
        affinities: runtime.affinity.iter().cloned().collect(),
        ..RuntimeComponent::default()
    };
    let demand = ComponentDemand {
        node_selector: service.node_selector.clone(),
        affinity: service.affinity.clone(),
        ..ComponentDemand::default()
    };
    (offer, demand)
}

fn complete(
    container: &mut Value,
    owner: &Owner,
    settings: &mut Vec<Setting>,
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    if container["image"].as_str().is_none_or(str::is_empty) {
        let message = "neither runtime nor service gives the router an image: set router.runner.image, or name a runtime with routerConfig";
        return Err(Refusal::new(code::refusal::NO_ROUTER_CONTAINER, message));
    }
    if container["name"].as_str().is_none_or(str::is_empty) {
        container["name"] = json!(ROUTER);
    }
    pod::substitute(container, owner, warnings);
    let variables = BTreeMap::from([("INFERENCESERVICE_NAME", &owner.name), ("NAMESPACE", &owner.namespace)]);
    for (name, value) in variables {
        if pod::add_if_absent(container, "env", "name", json!({"name": name, "value": value})) {
            settings.push(Setting::new(format!("env {name}"), value, Origin::Ostler));
        }
    }
    Ok(())
}

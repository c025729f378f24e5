//! The router of a service. It runs on CPU nodes and is independent of accelerator classes (seed 000, Story 5).

use std::collections::BTreeMap;

use api::ome::Component;
use decide::{ComponentDemand, Origin, RuntimeComponent, Setting, SettingField, Warning};
use serde_json::{Value, json};

use super::default_router;
use super::layout_input::{LayoutInput, ReplicaSet};
use super::metadata::{self, selector};
use super::pod_spec;
use super::scaling::ScalingInput;
use crate::code;
use crate::launch::variables;
use crate::names;
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::pod;
use crate::probe;
use crate::role::{Role, Workload};
use crate::runner::{self, Layers};

/// Name of the component and its role.
pub(crate) const ROUTER: &str = "router";

/// Returns the role of the router, if runtime or service has one.
pub(super) fn router_role(
    owner: &Owner,
    input: &LayoutInput<'_>,
    engines: &[Role],
    warnings: &mut Vec<Warning>,
) -> Result<Option<Role>, PlanError> {
    let runtime_router = input.runtime.and_then(|runtime| runtime.spec.router_config.as_ref());
    if runtime_router.is_none() && input.service.router.is_none() {
        return Ok(None);
    }
    let runtime = with_config_env(runtime_router.cloned().unwrap_or_default());
    let service = with_config_env(input.service.router.clone().unwrap_or_default());
    let (runtime_component, demand) = router_placement(&runtime, &service);
    let layers = Layers {
        runtime: &runtime,
        service: &service,
        runtime_component: &runtime_component,
        demand: &demand,
        accelerators: None,
    };
    let merged = runner::merge_container(&layers, warnings);
    let (mut container, mut settings) = (merged.container, merged.settings);
    if container["image"].as_str().is_none_or(str::is_empty) {
        let Some(default) = default_router::container(owner, engines) else {
            warnings.push(no_router_container());
            return Ok(None);
        };
        container = with_defaults(default, container, &mut settings);
    }
    complete_container(&mut container, owner, &mut settings, warnings);
    pod_spec::check_variables(&container, ROUTER, false)?;
    let port = pod_spec::complete_port_and_probe(&mut container, |_, port| probe::tcp(port));
    pod_spec::default_termination_message_policy(&mut container);
    let spec = pod_spec::merge_fields(&layers, &mut settings, warnings)?;
    let spec = pod_spec::assemble(container, spec, owner, warnings);
    pod_spec::check_ports(&spec, &layers, ROUTER, input.runtime.map(|runtime| runtime.name))?;
    let selector = selector(owner, ROUTER);
    let mut labels = selector.clone();
    labels.extend(owner.queue_label());
    let replica_set = ReplicaSet::default();
    let scaling = ScalingInput {
        owner,
        spec: input.service,
        runtime: &runtime,
        service: &service,
        component: ROUTER,
        workload: names::component(&owner.name, ROUTER),
        engine: None,
        autoscaler_support: input.autoscaler_support,
        uses_dual_pods: false,
        activation_obstacle: Some("is not possible for a router, which receives the requests"),
    };
    Ok(Some(Role {
        name: ROUTER.to_owned(),
        component: ROUTER.to_owned(),
        workload: Workload::Deployment,
        replicas: scaling.replicas(warnings)?,
        disruption: Some(scaling.disruption()),
        nodes: 1,
        worker_template: None,
        in_gang: false,
        spread_over_hosts: false,
        template: json!({"metadata": metadata::pod_metadata(input, &runtime, &service, &replica_set, &selector), "spec": spec}),
        service_selector: Some(selector.clone()),
        selector,
        labels,
        port,
        strategy: service.deployment_strategy.clone().or_else(|| runtime.deployment_strategy.clone()),
        settings,
        requesters: None,
    }))
}

/// Adds the entries of `config` as environment variables, sorted by name. Variables in `runner.env` take precedence.
fn with_config_env(mut router: Component) -> Component {
    if router.config.is_empty() {
        return router;
    }
    let mut runner = router.runner.take().unwrap_or_else(|| json!({}));
    for (name, value) in &router.config {
        pod::add_if_absent(&mut runner, "env", "name", json!({"name": name, "value": value}));
    }
    Component { runner: Some(runner), ..router }
}

/// Returns the placement of the router, merged from its node selectors and affinities in runtime and service.
fn router_placement(runtime: &Component, service: &Component) -> (RuntimeComponent, ComponentDemand) {
    let runtime_component = RuntimeComponent {
        node_selector: runtime.node_selector.clone(),
        affinities: runtime.affinity.iter().cloned().collect(),
        ..RuntimeComponent::default()
    };
    let demand = ComponentDemand {
        node_selector: service.node_selector.clone(),
        affinity: service.affinity.clone(),
        ..ComponentDemand::default()
    };
    (runtime_component, demand)
}

/// Returns the container of the service over the default router. Arguments of the service follow the default ones, unless it sets
/// a command.
fn with_defaults(mut default: Value, container: Value, settings: &mut Vec<Setting>) -> Value {
    let image = default["image"].as_str().unwrap_or_default().to_owned();
    settings.push(Setting::new(SettingField::named("image"), image, Origin::Ostler));
    let has_command = container["command"].as_array().is_some_and(|words| !words.is_empty());
    if has_command {
        default = json!({"image": default["image"]});
    }
    let args = [&default["args"], &container["args"]].map(|args| args.as_array().cloned().unwrap_or_default()).concat();
    pod::overlay(&mut default, &container);
    if !args.is_empty() {
        default["args"] = Value::Array(args);
    }
    default
}

fn no_router_container() -> Warning {
    let message = "No router is created: the service and the runtime set no image for it, and the default router supports only \
                   SGLang and, without a decoder, vLLM; set spec.router.runner.image, or use a runtime with routerConfig";
    Warning::new(code::warning::NO_ROUTER_CONTAINER, message)
}

/// Completes the name, template variables and the standard environment variables.
fn complete_container(container: &mut Value, owner: &Owner, settings: &mut Vec<Setting>, warnings: &mut Vec<Warning>) {
    if container["name"].as_str().is_none_or(str::is_empty) {
        container["name"] = json!(ROUTER);
    }
    pod::substitute_container(container, owner, warnings);
    let variables = BTreeMap::from([("INFERENCESERVICE_NAME", &owner.name), ("NAMESPACE", &owner.namespace)]);
    for (name, value) in variables {
        if variables::add_if_absent(container, name, value) {
            settings.push(Setting::new(SettingField::Env(name.into()), value, Origin::Ostler));
        }
    }
}

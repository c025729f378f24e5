//! Engine and decoder: containers on accelerators, with the model's files.

use decide::demand;
use decide::merge::origin::{Origin, Setting};
use decide::reason::Warning;
use serde_json::{Value, json};

use super::{Decided, Granted, ReplicaSet, Stated, metadata, pod_spec, replicas, selector};
use crate::labels;
use crate::launch;
use crate::model_files::{self, ModelFiles};
use crate::names;
use crate::pod;
use crate::probe;
use crate::roles::queue_name;
use crate::runner::{self, Layers};
use crate::topology::{Owner, Refusal, Role, Workload};

/// Name of the main container where neither runtime nor service gives one.
pub(super) const CONTAINER: &str = "ome-container";

/// One role per replica set: `engine`, or `engine-{class}` where several classes share the requests.
pub(super) fn roles(
    owner: &Owner,
    decided: &Decided<'_>,
    component: demand::Component,
    stated: &Stated,
    granted: &Granted,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<Role>, Refusal> {
    let mut roles = Vec::new();
    for (index, set) in granted.sets.iter().enumerate() {
        let part = Part { owner, decided, component: component.as_str(), stated, granted, set };
        let mut role = part.role(warnings)?;
        role.service = role.service.filter(|_| index == 0);
        roles.push(role);
    }
    Ok(roles)
}

/// Everything that one replica set is made from.
struct Part<'a> {
    owner: &'a Owner,
    decided: &'a Decided<'a>,
    component: &'static str,
    stated: &'a Stated,
    granted: &'a Granted,
    set: &'a ReplicaSet,
}

impl Part<'_> {
    fn role(&self, warnings: &mut Vec<Warning>) -> Result<Role, Refusal> {
        let Self { owner, stated, set, .. } = self;
        let layers = self.layers();
        let merged = runner::container(&layers, warnings);
        let (mut container, mut settings) = (merged.container, merged.settings);
        self.complete(&mut container, &mut settings, warnings)?;
        let port = pod_spec::answer(&mut container, |container, port| probe::readiness(&launch::read(container), port));
        let mut placed = pod_spec::placed(&layers, &mut settings, warnings)?;
        self.mount_model(&mut placed, &mut container);
        let spec = pod_spec::around(container, placed, owner, warnings);
        let shared = selector(owner, self.component);
        let mut own = shared.clone();
        own.extend(self.variant_class().map(|class| (labels::ACCELERATOR_CLASS.to_owned(), class)));
        let mut object_labels = own.clone();
        object_labels.extend(queue_name(owner));
        Ok(Role {
            name: self.name(),
            component: self.component.to_owned(),
            workload: Workload::Deployment,
            replicas: replicas::of(&stated.runtime, &stated.service, self.component, warnings),
            nodes: 1,
            worker: None,
            gang: false,
            spread: false,
            template: json!({
                "metadata": metadata::of(self.decided, &stated.runtime, &stated.service, set, &own),
                "spec": spec,
            }),
            selector: own,
            labels: object_labels,
            service: Some(shared),
            port,
            strategy: stated.service.deployment_strategy.clone().or_else(|| stated.runtime.deployment_strategy.clone()),
            settings,
        })
    }

    fn layers(&self) -> Layers<'_> {
        Layers {
            runtime: &self.stated.runtime,
            service: &self.stated.service,
            offer: &self.granted.offer,
            demand: &self.granted.demand,
            accelerators: self.set.accelerators.as_ref(),
        }
    }

    /// The class, where it tells this set from another of the same component.
    fn variant_class(&self) -> Option<String> {
        self.set.request_tokens?;
        let class = self.set.accelerators.as_ref()?;
        Some(names::label_value(&class.class.name))
    }

    fn name(&self) -> String {
        match self.variant_class() {
            Some(class) => format!("{}-{}", self.component, class.to_ascii_lowercase().replace(['.', '_'], "-")),
            None => self.component.to_owned(),
        }
    }

    /// Name, image, template variables and the variables that every engine may count on.
    fn complete(
        &self,
        container: &mut Value,
        settings: &mut Vec<Setting>,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), Refusal> {
        if container["image"].as_str().is_none_or(str::is_empty) {
            let component = self.component;
            let message = format!(
                "neither runtime nor service gives the {component} an image: set {component}.runner.image, or name a runtime"
            );
            return Err(Refusal::new(decide::code::outcome::NO_ENGINE_CONTAINER, message));
        }
        if container["name"].as_str().is_none_or(str::is_empty) {
            container["name"] = json!(CONTAINER);
        }
        pod::substitute(container, self.owner, warnings);
        let files = self.model();
        let parallelism = runner::parallelism(container, self.set.accelerators.as_ref());
        let variables = [
            ("MODEL_PATH", files.map(|files| files.path)),
            ("INFERENCESERVICE_NAME", Some(self.owner.name.clone())),
            ("NAMESPACE", Some(self.owner.namespace.clone())),
            ("PARALLELISM_SIZE", Some(parallelism.to_string())),
            ("SERVED_MODEL_NAME", Some(self.owner.name.clone())),
        ];
        for (name, value) in variables {
            let Some(value) = value else { continue };
            if pod::add_if_absent(container, "env", "name", json!({"name": name, "value": value})) {
                settings.push(Setting::new(format!("env {name}"), value, Origin::Ostler));
            }
        }
        Ok(())
    }

    fn model(&self) -> Option<ModelFiles> {
        model_files::of(self.decided.model?.spec.storage.as_ref())
    }

    /// The model's directory, read-only, unless the user mounts something there.
    fn mount_model(&self, spec: &mut Value, container: &mut Value) {
        let Some(model) = self.decided.model else { return };
        let Some((mut volume, path)) = self.model().and_then(|files| files.volume) else { return };
        let name = model_files::volume_name(model.name);
        volume["name"] = json!(name);
        pod::add_if_absent(spec, "volumes", "name", volume);
        let mount = json!({"name": name, "mountPath": path, "readOnly": true});
        pod::add_if_absent(container, "volumeMounts", "mountPath", mount);
    }
}

//! Roles of engine and decoder: their containers use accelerators and the model's files.

use api::dual_pods::OME_ACTUATION;
use decide::{Origin, ParallelismSettings, PodRole, Setting, SettingField, Warning};
use serde_json::{Value, json};

use super::component_input::ComponentInput;
use super::layout_input::{LayoutInput, ReplicaSet};
use super::metadata::{self, selector};
use super::pod_spec;
use super::scaling::ScalingInput;
use crate::accelerator_request::requested_accelerators;
use crate::adapters;
use crate::code;
use crate::dual_pods;
use crate::gang::{self, VOLCANO};
use crate::labels::{self, Labels};
use crate::launch;
use crate::launch::variables::{self, MODEL_PATH};
use crate::model_files::{self, CLAIM_MOUNT, ModelFiles, StorageError};
use crate::multinode::{self, Rendezvous};
use crate::names;
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::pod;
use crate::probe;
use crate::role::{Role, Workload};
use crate::runner::{self, Layers};

/// Default name of the main container.
pub(super) const CONTAINER: &str = "ome-container";

/// Returns the image that the shipped runtimes of an engine use.
fn default_image(engine: &str) -> Option<&'static str> {
    match engine {
        "sglang" => Some("docker.io/lmsysorg/sglang:v0.5.23"),
        "vllm" => Some("docker.io/vllm/vllm-openai:v0.32.0"),
        _ => None,
    }
}

/// Builds the role of one replica set.
struct RoleBuilder<'a> {
    owner: &'a Owner,
    input: &'a LayoutInput<'a>,
    component_input: &'a ComponentInput<'a>,
    replica_set: &'a ReplicaSet,
    /// Number of Pods of one replica.
    nodes: u32,
    gang: bool,
}

/// Pod template of the leader or the workers of a replica.
struct PodTemplate {
    template: Value,
    /// Serving port; unused for workers.
    port: u16,
    settings: Vec<Setting>,
}

/// Returns one role per replica set: `engine`, or `engine-{class}` if several classes share the requests. In a gang every
/// replica is a group of a LeaderWorkerSet, because Volcano recognizes replicas by the group index.
pub(super) fn roles(
    owner: &Owner,
    input: &LayoutInput<'_>,
    component_input: &ComponentInput<'_>,
    gang: bool,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<Role>, PlanError> {
    let mut roles = Vec::new();
    for (index, replica_set) in component_input.selection.replica_sets.iter().enumerate() {
        let nodes = component_input.nodes(replica_set);
        let mut role = RoleBuilder { owner, input, component_input, replica_set, nodes, gang }.role(warnings)?;
        role.service_selector = role.service_selector.filter(|_| index == 0);
        roles.push(role);
    }
    Ok(roles)
}

// === impl RoleBuilder ===

impl RoleBuilder<'_> {
    fn role(&self, warnings: &mut Vec<Warning>) -> Result<Role, PlanError> {
        let ComponentInput { specs, .. } = self.component_input;
        let leader = self.pod_template(PodRole::Leader, warnings)?;
        let mut settings = leader.settings;
        let worker = (self.nodes > 1).then(|| self.pod_template(PodRole::Worker, warnings)).transpose()?;
        let worker = worker.map(|worker| {
            settings = merge_worker_settings(std::mem::take(&mut settings), worker.settings);
            worker.template
        });
        self.warn_if_not_joined(&leader.template, worker.as_ref(), warnings);
        let pod_selector = self.selector();
        let mut object_labels = pod_selector.clone();
        object_labels.extend(self.owner.queue_label());
        let scaling = self.scaling(&leader.template);
        let strategy = specs.service.deployment_strategy.as_ref().or(specs.runtime.deployment_strategy.as_ref());
        let workload = if self.gang || specs.has_workers() { Workload::LeaderWorkerSet } else { Workload::Deployment };
        if let (Workload::LeaderWorkerSet, Some(_)) = (workload, strategy) {
            let message = format!("The {}'s deploymentStrategy has no effect on a LeaderWorkerSet", self.component());
            warnings.push(Warning::new(code::warning::FIELD_IGNORED, message));
        }
        Ok(Role {
            name: self.name(),
            component: self.component().to_owned(),
            workload,
            replicas: scaling.replicas(warnings)?,
            disruption: Some(scaling.disruption()),
            nodes: self.nodes,
            worker_template: worker,
            in_gang: self.gang,
            spread_over_hosts: false,
            template: leader.template,
            selector: pod_selector,
            labels: object_labels,
            service_selector: Some(selector(self.owner, self.component())),
            port: leader.port,
            strategy: strategy.cloned(),
            settings,
            requesters: None,
        })
    }

    fn scaling(&self, leader: &Value) -> ScalingInput<'_> {
        ScalingInput {
            owner: self.owner,
            spec: self.input.service,
            runtime: &self.component_input.specs.runtime,
            service: &self.component_input.specs.service,
            component: self.component(),
            workload: names::component(&self.owner.name, &self.name()),
            engine: launch::inspect(&leader["spec"]["containers"][0]).engine,
            autoscaler_support: self.input.autoscaler_support,
            uses_dual_pods: dual_pods::is_requested(self.owner, OME_ACTUATION),
            activation_obstacle: self.activation_obstacle(),
        }
    }

    /// Returns why the gateway cannot scale the replica set from zero, if so. It scales one workload, whose Pods receive its requests.
    fn activation_obstacle(&self) -> Option<&'static str> {
        let has_router = self.input.service.router.is_some()
            || self.input.runtime.is_some_and(|runtime| runtime.spec.router_config.is_some());
        if has_router {
            Some("is not possible with a router, which receives the requests")
        } else if self.input.components.len() > 1 {
            Some("is not possible for a service with a decoder")
        } else if self.component_input.selection.replica_sets.len() > 1 {
            Some("is not possible for a service on several accelerator classes")
        } else if self.gang {
            Some("is not possible with gang scheduling")
        } else {
            None
        }
    }

    fn component(&self) -> &'static str {
        self.component_input.component.as_str()
    }

    /// Returns the labels that select the Pods of this replica set.
    fn selector(&self) -> Labels {
        let mut labels = selector(self.owner, self.component());
        labels.extend(self.variant_class().map(|class| (labels::ACCELERATOR_CLASS.to_owned(), class)));
        labels
    }

    fn pod_template(&self, role: PodRole, warnings: &mut Vec<Warning>) -> Result<PodTemplate, PlanError> {
        let Self { owner, replica_set, component_input, .. } = self;
        let specs = component_input.specs.for_role(role);
        let placement = component_input.specs.placement(component_input.selection, role);
        let layers = Layers {
            runtime: &specs.runtime,
            service: &specs.service,
            runtime_component: &placement.runtime_component,
            demand: &placement.demand,
            accelerators: replica_set.accelerators.as_ref(),
        };
        let merged = runner::merge_container(&layers, warnings);
        let (mut container, mut settings) = (merged.container, merged.settings);
        self.complete_container(&mut container, &mut settings, warnings)?;
        if role == PodRole::Leader
            || component_input.specs.workers_inherit_leader()
            || launch::starts_engine(&container)
        {
            adapters::add_flags(&mut container, &self.input.adapters, self.component())?;
            self.use_all_accelerators(&mut container, &mut settings, warnings);
        }
        let port = self.complete_port(&mut container, role);
        pod_spec::default_termination_message_policy(&mut container);
        if self.nodes > 1
            && component_input.specs.workers_inherit_leader()
            && !multinode::configures_rendezvous(&container)
        {
            self.join_nodes(&mut container, role)?;
        }
        let mut spec = pod_spec::merge_fields(&layers, &mut settings, warnings)?;
        if let Some(resource) = self.accelerator_resource(&container) {
            pod_spec::tolerate_resource(&mut spec, &resource);
        }
        self.mount_model(&mut spec, &mut container);
        adapters::mount(&mut spec, &mut container, &self.input.adapters);
        let spec = pod_spec::assemble(container, spec, owner, warnings);
        let runtime = self.input.runtime.map(|runtime| runtime.name);
        pod_spec::check_ports(&spec, &layers, self.component(), runtime)?;
        let metadata =
            metadata::pod_metadata(self.input, &specs.runtime, &specs.service, replica_set, &self.selector());
        warnings.extend(metadata::overridden_labels_warning(&specs.service, self.component(), &metadata));
        let mut template = json!({"metadata": metadata, "spec": spec});
        self.set_scheduler(&mut template)?;
        Ok(PodTemplate { template, port, settings })
    }

    /// Returns the accelerator resource that the container requests.
    fn accelerator_resource(&self, container: &Value) -> Option<String> {
        let class = self.replica_set.accelerators.as_ref().and_then(|accelerators| accelerators.class.resource_name());
        let requested = || requested_accelerators(&container["resources"]).map(|(resource, _)| resource);
        class.map(str::to_owned).or_else(requested)
    }

    /// Returns the serving port, and completes port and probe of leaders. Workers keep the probes of their specification.
    fn complete_port(&self, container: &mut Value, role: PodRole) -> u16 {
        match role {
            PodRole::Leader => pod_spec::complete_port_and_probe(container, |container, port| {
                probe::readiness(&launch::inspect(container), port)
            }),
            PodRole::Worker => launch::port(container, launch::default_port(container).unwrap_or(pod_spec::PORT)),
        }
    }

    /// Adds the arguments that join the nodes of a replica to a command that leader and workers share.
    fn join_nodes(&self, container: &mut Value, role: PodRole) -> Result<(), PlanError> {
        let with_component = |error: PlanError| {
            let message = format!("{}, {}", self.component(), error.message);
            PlanError { message, ..error }
        };
        Rendezvous::for_container(container, self.nodes, None)
            .and_then(|rendezvous| rendezvous.configure(container, role))
            .map_err(with_component)
    }

    /// Warns if leader and workers have separate commands that do not join them: they would run as independent engines.
    fn warn_if_not_joined(&self, leader: &Value, worker: Option<&Value>, warnings: &mut Vec<Warning>) {
        let joins_nodes = |template: &Value| multinode::configures_rendezvous(&template["spec"]["containers"][0]);
        if worker.is_none_or(|worker| joins_nodes(leader) || joins_nodes(worker)) {
            return;
        }
        let component = self.component();
        let message = format!(
            "The commands of the {component}'s leader and worker do not join the nodes: use $(LWS_LEADER_ADDRESS) and $(LWS_WORKER_INDEX), or omit command and args of {component}.worker.runner"
        );
        warnings.push(Warning::new(code::warning::NODES_NOT_JOINED, message));
    }

    fn set_scheduler(&self, template: &mut Value) -> Result<(), PlanError> {
        gang::set_scheduler(template, self.gang.then_some(VOLCANO)).map_err(|scheduler| {
            let (component, gang) = (self.component(), labels::GANG);
            let message = format!(
                "{component}.schedulerName: {scheduler} conflicts with {VOLCANO}, which schedules the gang; remove the field, or set the annotation {gang} to \"false\""
            );
            PlanError::new(code::error::SCHEDULER_CONFLICT, message)
        })
    }

    /// Returns the class of a replica set if the component has one replica set per class.
    fn variant_class(&self) -> Option<String> {
        self.replica_set.request_tokens?;
        let class = self.replica_set.accelerators.as_ref()?;
        Some(names::label_value(&class.class.name))
    }

    fn name(&self) -> String {
        match self.variant_class() {
            Some(class) => format!("{}-{}", self.component(), class.to_ascii_lowercase().replace(['.', '_'], "-")),
            None => self.component().to_owned(),
        }
    }

    /// Completes the name, template variables and the standard environment variables, and checks the image.
    fn complete_container(
        &self,
        container: &mut Value,
        settings: &mut Vec<Setting>,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), PlanError> {
        if container["image"].as_str().is_none_or(str::is_empty) {
            let component = self.component();
            if let Some(image) = launch::inspect(container).engine.and_then(default_image) {
                let message = format!(
                    "The {component} sets no image; its command starts an engine for which {image} is used; set spec.{component}.runner.image"
                );
                warnings.push(Warning::new(code::warning::ENGINE_IMAGE_UNSET, message));
                settings.push(Setting::new(SettingField::named("image"), image, Origin::Ostler));
                container["image"] = json!(image);
            }
        }
        if container["image"].as_str().is_none_or(str::is_empty) {
            let component = self.component();
            let remedy = match self.input.runtime.map(|runtime| runtime.name) {
                Some(runtime) => format!("spec.{component}Config.runner.image of runtime {runtime}"),
                None => "spec.runtime.name".to_owned(),
            };
            let message =
                format!("No container image for the {component}: set spec.{component}.runner.image, or {remedy}");
            return Err(PlanError::new(decide::code::outcome::NO_ENGINE_CONTAINER, message));
        }
        if container["name"].as_str().is_none_or(str::is_empty) {
            container["name"] = json!(CONTAINER);
        }
        pod::substitute_container(container, self.owner, warnings);
        let model_path = self.model_path(container, warnings)?;
        let parallelism = runner::tensor_parallelism(container, self.replica_set.accelerators.as_ref(), self.nodes);
        let variables = [
            (MODEL_PATH, model_path),
            ("INFERENCESERVICE_NAME", Some(self.owner.name.clone())),
            ("NAMESPACE", Some(self.owner.namespace.clone())),
            ("PARALLELISM_SIZE", Some(parallelism.to_string())),
            ("SERVED_MODEL_NAME", Some(self.owner.name.clone())),
        ];
        for (name, value) in variables {
            let Some(value) = value else { continue };
            if variables::add_if_absent(container, name, &value) {
                settings.push(Setting::new(SettingField::Env(name.into()), value, Origin::Ostler));
            }
        }
        pod_spec::check_variables(container, self.component(), true)
    }

    /// Adds flags to a command that does not state the parallelism, because vLLM and SGLang otherwise use one accelerator: those of the
    /// variables that state a size, and that of tensor parallelism. Warns if the command is a script.
    fn use_all_accelerators(&self, container: &mut Value, settings: &mut Vec<Setting>, warnings: &mut Vec<Warning>) {
        let parallelism = ParallelismSettings::of_container(container);
        let size = runner::tensor_parallelism(container, self.replica_set.accelerators.as_ref(), self.nodes);
        let is_unstated = size > 1 && !parallelism.determines_tensor();
        if launch::starts_known_server(container) {
            let by_variable = parallelism.unread_variables().map(|(flag, name)| (flag, format!("$({name})")));
            let tensor = is_unstated.then(|| ("tensor-parallel-size", size.to_string()));
            for (flag, value) in by_variable.chain(tensor) {
                let flag = format!("--{flag}");
                launch::append_args(container, [flag.as_str(), value.as_str()]);
                settings.push(Setting::new(SettingField::Flag(flag), value, Origin::Ostler));
            }
            return;
        }
        let is_engine = matches!(launch::inspect(container).engine, Some("vllm" | "sglang"));
        let is_script = launch::flag_recipient(container).is_none();
        if is_unstated && is_engine && is_script && launch::starts_engine(container) {
            let message = format!(
                "The command of the {} does not set --tensor-parallel-size, so that the engine uses one accelerator of {size}; add \
                 --tensor-parallel-size $PARALLELISM_SIZE",
                self.component()
            );
            warnings.push(Warning::new(decide::code::warning::PARALLELISM_MISMATCH, message));
        }
    }

    fn model_files(&self) -> Option<Result<ModelFiles, StorageError>> {
        let model = self.input.model.as_ref()?;
        Some(model_files::from_storage(model.spec.storage.as_ref(), &self.owner.namespace, CLAIM_MOUNT))
    }

    /// Returns the value of `MODEL_PATH`, and adds the revision of a model that the engine downloads. `None` without a model, or if its
    /// files have no path and the container does not require one.
    ///
    /// # Errors
    /// The command refers to the variable, but the files of the model have no path.
    fn model_path(&self, container: &mut Value, warnings: &mut Vec<Warning>) -> Result<Option<String>, PlanError> {
        let (Some(model), Some(files)) = (&self.input.model, self.model_files()) else { return Ok(None) };
        let is_required = variables::requires(container, MODEL_PATH) && !variables::is_defined(container, MODEL_PATH);
        let may_be_defined = variables::has_unknown_variables(container);
        match files {
            Ok(ModelFiles { path, revision, .. }) => {
                if let (Some(revision), true) = (revision, is_required) {
                    self.add_revision(container, &revision)?;
                }
                Ok(Some(path))
            }
            Err(_) if may_be_defined => Ok(None),
            Err(StorageError::Unset) => {
                if is_required {
                    let message = format!(
                        "Model {} states no storage, so the engine loads it by this name; set spec.storage.storageUri of the model",
                        model.name
                    );
                    warnings.push(Warning::new(code::warning::MODEL_STORAGE_UNSET, message));
                }
                Ok(Some(model.name.to_owned()))
            }
            Err(error) if is_required => {
                let component = self.component();
                let message = format!(
                    "{component}: the command refers to {MODEL_PATH}, but {error}; set spec.storage.storageUri of model {} to \
                     hf://ORG/NAME or to pvc://CLAIM/PATH, or spec.storage.path to a directory on the nodes, or define {MODEL_PATH} \
                     in spec.{component}.runner.env",
                    model.name
                );
                Err(PlanError::new(code::error::STORAGE_UNSUPPORTED, message))
            }
            Err(_) => Ok(None),
        }
    }

    /// Adds the flag with which vLLM (docs.vllm.ai, Engine Arguments) and SGLang (docs.sglang.io, Server Arguments) select the revision
    /// of a Hugging Face model, unless the command contains it.
    ///
    /// # Errors
    /// The command is a script or starts another engine.
    fn add_revision(&self, container: &mut Value, revision: &str) -> Result<(), PlanError> {
        const FLAG: &str = "--revision";
        if launch::mentions(container, FLAG) {
            return Ok(());
        }
        if !matches!(launch::flag_recipient(container), Some("vllm" | "sglang")) {
            let message = format!(
                "{}: the storage of the model states revision {revision}, which cannot be added to this command; add `{FLAG} {revision}` \
                 to the command",
                self.component()
            );
            return Err(PlanError::new(code::error::STORAGE_UNSUPPORTED, message));
        }
        launch::append_args(container, [FLAG, revision]);
        Ok(())
    }

    /// Mounts the model's directory read-only, unless the user has a volume mount at this path. If a model agent labels the
    /// Nodes with the model, restricts the Pods to these Nodes.
    fn mount_model(&self, spec: &mut Value, container: &mut Value) {
        let Some(model) = &self.input.model else { return };
        let Some((mut volume, path)) = self.model_files().and_then(Result::ok).and_then(|files| files.volume) else {
            return;
        };
        if let (Some(label), false) = (&model.node_label, volume["hostPath"].is_null()) {
            spec["nodeSelector"][label] = json!(model_files::READY);
        }
        let name = model_files::volume_name(model.name);
        volume["name"] = json!(name);
        pod::add_if_absent(spec, "volumes", "name", volume);
        let mount = json!({"name": name, "mountPath": path, "readOnly": true});
        pod::add_if_absent(container, "volumeMounts", "mountPath", mount);
    }
}

/// Appends the settings of workers that differ from those of the leader.
fn merge_worker_settings(mut leader: Vec<Setting>, worker: Vec<Setting>) -> Vec<Setting> {
    let differs_from_leader = |setting: &Setting| {
        !leader
            .iter()
            .any(|leader_setting| leader_setting.field == setting.field && leader_setting.value == setting.value)
    };
    let worker_settings: Vec<Setting> = worker.into_iter().filter(differs_from_leader).collect();
    leader.extend(
        worker_settings
            .into_iter()
            .map(|setting| Setting { field: SettingField::Worker(Box::new(setting.field)), ..setting }),
    );
    leader
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_images_are_those_of_the_catalog() {
        let catalog = [
            ("sglang", include_str!("../../../../catalog/runtimes/sglang/llama-3.yaml")),
            ("vllm", include_str!("../../../../catalog/runtimes/vllm/llama-3.yaml")),
        ];
        for (engine, runtimes) in catalog {
            assert!(runtimes.contains(&format!("image: {}\n", default_image(engine).unwrap())), "{engine}");
        }
    }
}

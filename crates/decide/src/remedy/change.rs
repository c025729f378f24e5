//! A single change, with the value to set.

use std::fmt;

use crate::compute_request::format_amount;
use crate::reason::{MissingField, field_assignments};
use crate::size::{DisplayCount, SizeRange};
use crate::taint::Taint;

/// One change of a manifest, the model or the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum ProposedChange {
    // Changes of the service.
    /// Corrects an unknown runtime name.
    CorrectRuntimeName {
        /// The unknown name.
        from: String,
        /// The existing name.
        to: String,
    },
    /// Removes the runtime name, so that a runtime is selected.
    RemoveRuntimeName(String),
    /// Names a runtime that is not selected automatically.
    SetRuntimeName(String),
    /// Corrects an unknown class name.
    CorrectClassName {
        /// The unknown name.
        from: String,
        /// The existing name.
        to: String,
        /// The field or annotation that names the class.
        source: String,
    },
    /// Adds preferred classes.
    PreferClasses {
        /// The classes to add.
        classes: Vec<String>,
        /// The field or annotation that lists the classes.
        source: String,
    },
    /// Prefers one class instead of the current ones.
    UseClass {
        /// The class.
        class: String,
    },
    /// Removes classes from `excludedClasses`.
    AllowClasses(Vec<String>),
    /// Adds architecture families.
    AllowFamilies(Vec<String>),
    /// Sets the protocol.
    SetProtocol(String),
    /// Tolerates a taint.
    AddToleration(Taint),
    /// Lowers the CPU or memory that the engine container requests.
    LowerRequest {
        /// `cpu` or `memory`.
        resource: &'static str,
        /// Thousandths of a CPU, or MiB.
        amount: u32,
    },
    // Changes of the service or a runtime.
    /// Relaxes a required capability.
    RelaxCapability {
        /// The manifest that requires the capability.
        source: ConstraintSource,
        /// The new value.
        capability: CapabilityChange,
    },
    /// Removes a key of a node selector.
    RemoveNodeSelector {
        /// The manifest that sets the node selector.
        source: ConstraintSource,
        /// Label key.
        key: String,
        /// Label value.
        value: String,
    },
    /// Removes the node affinity.
    RemoveAffinity(ConstraintSource),
    /// Requests `per_node` accelerators on each of `nodes` nodes.
    SetAcceleratorCount {
        /// The manifest that sets the number.
        source: ConstraintSource,
        /// Accelerators per node.
        per_node: u32,
        /// Nodes per replica.
        nodes: u32,
        /// Groups that share them: the stated pipeline stages × copies of the model.
        groups: u32,
    },
    /// Sets the number of nodes per replica.
    SetNodes {
        /// The manifest that sets the number.
        source: ConstraintSource,
        /// Nodes per replica.
        nodes: u32,
    },
    // Changes of a runtime.
    /// Enables a disabled runtime.
    EnableRuntime(String),
    /// Adds supported classes.
    SupportClasses {
        /// The runtime.
        runtime: String,
        /// The classes to add.
        classes: Vec<String>,
    },
    /// Changes a field of the runtime, or of a copy of it.
    AdaptRuntime {
        /// The runtime.
        runtime: String,
        /// Whether the service names the runtime. If so, the runtime is changed in place instead of copied.
        is_named: bool,
        /// The field with its new value.
        field: RuntimeField,
    },
    /// Adds leader and worker, so that a replica spans several nodes.
    AddLeaderAndWorker {
        /// The runtime.
        runtime: String,
        /// Nodes per replica.
        nodes: u32,
    },
    // Changes of the model.
    /// Corrects an unknown model name.
    CorrectModelName {
        /// The unknown name.
        from: String,
        /// The existing name.
        to: String,
    },
    /// Uses a smaller model.
    SmallerModel {
        /// Name of the smaller model.
        to: String,
        /// Its number of parameters.
        parameters: Option<u64>,
        /// Its quantization.
        quantization: Option<String>,
    },
    /// Enables a disabled model.
    EnableModel(String),
    /// Sets fields of the model that a runtime requires.
    SetModelFields {
        /// The model.
        model: String,
        /// The fields with the required values.
        fields: Vec<MissingField>,
        /// The runtime that requires them.
        runtime: String,
    },
    /// Uses a quantized variant of the model.
    Quantize(&'static str),
    // Changes of the cluster.
    /// Uncordons nodes.
    Uncordon {
        /// Names of the nodes.
        nodes: Vec<String>,
    },
    /// Makes nodes ready.
    RepairNodes {
        /// Names of the nodes.
        nodes: Vec<String>,
    },
    /// Adds nodes of a class.
    AddNodes {
        /// The class.
        class: String,
        /// Number of nodes.
        nodes: u32,
        /// Accelerators per node.
        per_node: u32,
    },
    /// Frees accelerators of a class.
    FreeAccelerators {
        /// The class.
        class: String,
        /// Number of accelerators.
        count: u32,
    },
}

/// The manifest that sets a constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstraintSource {
    /// `acceleratorSelector` of the service, for all components.
    Selector,
    /// A component of the service.
    Service,
    /// The runtime of this name.
    Runtime(String),
}

/// A required capability with its new value; `None` removes it.
#[derive(Clone, Debug, PartialEq)]
pub enum CapabilityChange {
    /// Bytes per accelerator.
    Memory(Option<u64>),
    /// Maximum bytes per accelerator.
    MaxMemory(Option<u64>),
    /// Compute capability.
    ComputeCapability(Option<String>),
    /// Features that are no longer required.
    Features(Vec<String>),
    /// GB/s.
    Bandwidth(Option<f64>),
    /// Throughput at a precision.
    Performance {
        /// Such as `fp16`.
        precision: &'static str,
        /// TFLOPS.
        tflops: Option<f64>,
    },
}

/// A field of a runtime with the value that matches the model or the service.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeField {
    /// `modelFormat.name`.
    Format(String),
    /// `modelFormat.version`.
    FormatVersion(String),
    /// `modelFramework.name`.
    Framework(String),
    /// `modelFramework.version`.
    FrameworkVersion(String),
    /// `modelArchitecture`.
    Architecture(String),
    /// `quantization`; `None` removes it.
    Quantization(Option<String>),
    /// `diffusionPipeline` of the model.
    Pipeline,
    /// `modelSizeRange`.
    Size {
        /// Number of parameters of the model.
        parameters: u64,
        /// The range to set.
        range: SizeRange,
        /// Whether the runtime also needs leader and worker.
        multi_node: bool,
    },
    /// An entry of `protocolVersions`.
    Protocol(String),
}

// === impl ProposedChange ===

impl ProposedChange {
    /// Whether editing existing manifests suffices, without additional hardware or different model weights.
    #[must_use]
    pub fn is_manifest_edit(&self) -> bool {
        !self.is_change_of_nodes() && !matches!(self, Self::Quantize(_))
    }

    /// Whether the change affects only nodes and the accelerators that are free on them.
    #[must_use]
    pub fn is_change_of_nodes(&self) -> bool {
        matches!(
            self,
            Self::Uncordon { .. } | Self::RepairNodes { .. } | Self::AddNodes { .. } | Self::FreeAccelerators { .. }
        )
    }
}

impl fmt::Display for ProposedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CorrectRuntimeName { from, to } => write!(f, "change spec.runtime.name from {from} to {to}"),
            Self::RemoveRuntimeName(name) => {
                write!(f, "remove spec.runtime.name ({name}) to select a runtime automatically")
            }
            Self::SetRuntimeName(name) => write!(f, "set spec.runtime.name to {name}, whose autoSelect is off"),
            Self::CorrectClassName { from, to, source } => write!(f, "replace {from} with {to} in {source}"),
            Self::PreferClasses { classes, source } => write!(f, "add {} to {source}", classes.join(", ")),
            Self::UseClass { class } => write!(f, "set spec.acceleratorSelector.preferredClasses to [{class}]"),
            Self::AllowClasses(classes) => write!(f, "remove {} from excludedClasses", classes.join(", ")),
            Self::AllowFamilies(families) => {
                write!(f, "add {} to constraints.architectureFamilies", families.join(", "))
            }
            Self::SetProtocol(protocol) => write!(f, "set spec.model.protocolVersion to {protocol}"),
            Self::RelaxCapability { source, capability } => {
                write!(f, "{capability} in {}", source.capabilities_field())
            }
            Self::RemoveNodeSelector { source, key, value } => {
                write!(f, "remove {key}: {value} from {}, or add the label to nodes", source.node_selector_field())
            }
            Self::RemoveAffinity(source) => write!(f, "remove the node affinity of {}", source.object()),
            Self::AddToleration(taint) => {
                write!(f, "add to spec.engine.tolerations: {{key: {}", taint.key)?;
                if !taint.value.is_empty() {
                    // Quoted: YAML reads `true` and numbers as other types, which the API server rejects.
                    write!(f, ", value: {:?}", taint.value)?;
                }
                let exists = if taint.value.is_empty() { ", operator: Exists" } else { "" };
                write!(f, "{exists}, effect: {}}}", taint.effect)
            }
            Self::LowerRequest { resource, amount } => {
                let amount = format_amount(resource, *amount);
                write!(f, "lower requests.{resource} in spec.engine.runner.resources to at most {amount}")
            }
            Self::SetAcceleratorCount { source, per_node, nodes, groups } => {
                let (count, object) = (pluralize(*per_node, "accelerator"), source.object());
                let tensor = match groups {
                    0 | 1 => String::new(),
                    groups => format!(" {}", per_node.saturating_mul(*nodes) / groups),
                };
                write!(f, "request {count} per node in {object} (by --tensor-parallel-size{tensor} or resources)")
            }
            Self::SetNodes { source, nodes } => {
                write!(f, "set worker.size to {} in {}", nodes.saturating_sub(1), source.object())
            }
            Self::EnableRuntime(name) => write!(f, "remove spec.disabled from runtime {name}"),
            Self::SupportClasses { runtime, classes } => {
                write!(f, "add {} to acceleratorRequirements.supportedClasses of runtime {runtime}", classes.join(", "))
            }
            Self::AdaptRuntime { runtime, is_named: true, field } => write!(f, "in runtime {runtime}, {field}"),
            Self::AdaptRuntime { runtime, is_named: false, field } => {
                write!(f, "add a runtime for {}, such as a copy of {runtime}: {field}", field.target())
            }
            Self::AddLeaderAndWorker { runtime, nodes } => {
                write!(f, "add leader and worker (worker.size {}) to runtime {runtime}", nodes.saturating_sub(1))
            }
            Self::CorrectModelName { from, to } => write!(f, "change spec.model.name from {from} to {to}"),
            Self::SmallerModel { to, parameters, quantization } => {
                let properties = [parameters.map(|count| DisplayCount(count).to_string()), quantization.clone()];
                let properties: Vec<String> = properties.into_iter().flatten().collect();
                write!(f, "use a smaller model: set spec.model.name to {to} ({})", properties.join(", "))
            }
            Self::EnableModel(name) => write!(f, "remove spec.disabled from model {name}"),
            Self::SetModelFields { model, fields, runtime } => {
                let fields = field_assignments(fields);
                write!(f, "set the fields of model {model} that runtime {runtime} requires, if they apply: {fields}")
            }
            Self::Quantize(kind) => write!(f, "use the model quantized to {kind}, with a runtime that supports it"),
            Self::Uncordon { nodes } => {
                let object = if nodes.len() == 1 { "the node" } else { "the nodes" };
                write!(f, "uncordon {object}: `kubectl uncordon {}`", nodes.join(" "))
            }
            Self::RepairNodes { nodes } => {
                write!(f, "make {0} ready (`kubectl describe node {0}` shows why it is not)", nodes.join(" "))
            }
            Self::AddNodes { class, nodes, per_node } => write!(
                f,
                "add {} with {per_node} × {class}{}",
                pluralize(*nodes, "node"),
                if *nodes == 1 { "" } else { " each" }
            ),
            Self::FreeAccelerators { class, count } => {
                write!(f, "free {} of class {class}", pluralize(*count, "more accelerator"))
            }
        }
    }
}

// === impl ConstraintSource ===

impl ConstraintSource {
    fn object(&self) -> String {
        match self {
            Self::Selector => "spec.acceleratorSelector".to_owned(),
            Self::Service => "the service".to_owned(),
            Self::Runtime(name) => format!("runtime {name}"),
        }
    }

    fn capabilities_field(&self) -> String {
        match self {
            Self::Selector | Self::Service => "spec.acceleratorSelector".to_owned(),
            Self::Runtime(name) => format!("acceleratorRequirements of runtime {name}"),
        }
    }

    fn node_selector_field(&self) -> String {
        match self {
            Self::Selector => "spec.acceleratorSelector.nodeSelector".to_owned(),
            Self::Service => "the nodeSelector of the service".to_owned(),
            Self::Runtime(name) => format!("the nodeSelector of runtime {name}"),
        }
    }
}

// === impl CapabilityChange ===

impl fmt::Display for CapabilityChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = |bytes: &u64| *bytes as f64 / f64::from(1 << 30);
        match self {
            Self::Memory(Some(bytes)) => write!(f, "lower the required memory to {:.0}Gi", gibibytes(bytes).floor()),
            Self::Memory(None) => f.write_str("remove the required memory"),
            Self::MaxMemory(Some(bytes)) => write!(f, "raise maxMemory to {:.0} GiB", gibibytes(bytes).ceil()),
            Self::MaxMemory(None) => f.write_str("remove maxMemory"),
            Self::ComputeCapability(Some(version)) => {
                write!(f, "lower the required compute capability to \"{version}\"")
            }
            Self::ComputeCapability(None) => f.write_str("remove the required compute capability"),
            Self::Features(names) => write!(f, "remove {} from the required features", names.join(", ")),
            Self::Bandwidth(Some(speed)) => write!(f, "lower memoryBandwidthGBps to \"{speed}\""),
            Self::Bandwidth(None) => f.write_str("remove memoryBandwidthGBps"),
            Self::Performance { precision, tflops: Some(tflops) } => {
                write!(f, "lower the required {precision} performance to {tflops}")
            }
            Self::Performance { precision, tflops: None } => write!(f, "remove the required {precision} performance"),
        }
    }
}

// === impl RuntimeField ===

impl RuntimeField {
    /// Returns the models or the protocol that a runtime with this field value serves, for messages.
    fn target(&self) -> String {
        match self {
            Self::Format(name) => format!("{name} models"),
            Self::FormatVersion(version) => format!("format version {version}"),
            Self::Framework(name) => format!("{name} models"),
            Self::FrameworkVersion(version) => format!("framework version {version}"),
            Self::Architecture(name) => format!("{name} models"),
            Self::Quantization(Some(name)) => format!("{name} models"),
            Self::Quantization(None) => "unquantized models".to_owned(),
            Self::Pipeline => "the model's diffusion pipeline".to_owned(),
            Self::Size { parameters, .. } => format!("{} models", DisplayCount(*parameters)),
            Self::Protocol(name) => format!("protocol {name}"),
        }
    }
}

impl fmt::Display for RuntimeField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(name) => write!(f, "set modelFormat.name to {name}"),
            Self::FormatVersion(version) => write!(f, "set modelFormat.version to \"{version}\""),
            Self::Framework(name) => write!(f, "set modelFramework.name to {name}"),
            Self::FrameworkVersion(version) => write!(
                f,
                "set modelFramework.version to \"{version}\", or to a later version with operator GreaterThanOrEqual"
            ),
            Self::Architecture(name) => write!(f, "set modelArchitecture to {name}"),
            Self::Quantization(Some(name)) => write!(f, "set quantization to {name}"),
            Self::Quantization(None) => f.write_str("remove quantization"),
            Self::Pipeline => f.write_str("set diffusionPipeline to that of the model"),
            Self::Size { range, multi_node, .. } => {
                let min = range.min.map(|count| format!("min: {}", DisplayCount(count)));
                let max = range.max.map(|count| format!("max: {}", DisplayCount(count)));
                let bounds: Vec<String> = min.into_iter().chain(max).collect();
                write!(f, "set modelSizeRange to {}", bounds.join(", "))?;
                f.write_str(if *multi_node { ", and add leader and worker to use several nodes" } else { "" })
            }
            Self::Protocol(name) => write!(f, "add {name} to protocolVersions"),
        }
    }
}

fn pluralize(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

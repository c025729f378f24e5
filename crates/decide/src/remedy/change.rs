//! One change, with the value to write.

use std::fmt;

use crate::reason::{Count, Unstated, to_state};
use crate::supply::SizeRange;

/// A constraint lifted, as the value that would be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    // in the service
    RuntimeName {
        from: String,
        to: String,
    },
    DropRuntimeName(String),
    NameRuntime(String),
    ClassName {
        from: String,
        to: String,
        source: String,
    },
    PreferClasses {
        classes: Vec<String>,
        source: String,
    },
    UseClass {
        class: String,
    },
    AllowClasses(Vec<String>),
    AllowFamilies(Vec<String>),
    SpeakProtocol(String),
    // in the service or a runtime
    Require {
        layer: Layer,
        requirement: Requirement,
    },
    DropNodeSelector {
        layer: Layer,
        key: String,
        value: String,
    },
    DropAffinity(Layer),
    /// `per_node` accelerators on each of `nodes` instead of what the layer fixes.
    SetCount {
        layer: Layer,
        per_node: u32,
        nodes: u32,
    },
    SetNodes {
        layer: Layer,
        nodes: u32,
    },
    // in a runtime
    EnableRuntime(String),
    SupportClasses {
        runtime: String,
        classes: Vec<String>,
    },
    Adapt {
        runtime: String,
        named: bool,
        field: Field,
    },
    AddLeaderAndWorker {
        runtime: String,
        nodes: u32,
    },
    // in the model
    ModelName {
        from: String,
        to: String,
    },
    SmallerModel {
        to: String,
        parameters: Option<u64>,
        quantization: Option<String>,
    },
    EnableModel(String),
    StateInModel {
        model: String,
        fields: Vec<Unstated>,
        runtime: String,
    },
    Quantize(&'static str),
    // in the cluster
    AddNodes {
        class: String,
        nodes: u32,
        per_node: u32,
    },
    FreeAccelerators {
        class: String,
        count: u32,
    },
}

/// Who states a constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// `acceleratorSelector`, for all components.
    Selector,
    /// The service's component.
    Service,
    Runtime(String),
}

/// A required capability, as low as it must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Requirement {
    /// Bytes; `None` drops it.
    Memory(Option<u64>),
    /// Bytes, an upper bound.
    MaxMemory(Option<u64>),
    Compute(Option<String>),
    /// Features that are no longer required.
    Features(Vec<String>),
    /// GB/s.
    Bandwidth(Option<f64>),
    Performance {
        precision: &'static str,
        tflops: Option<f64>,
    },
}

/// A field of a runtime's format entry, or of the runtime, with the value that makes it match.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Format(String),
    FormatVersion(String),
    Framework(String),
    FrameworkVersion(String),
    Architecture(String),
    /// `None`: unset it.
    Quantization(Option<String>),
    Pipeline,
    Size {
        parameters: u64,
        range: SizeRange,
        several_nodes: bool,
    },
    Protocol(String),
}

impl Change {
    /// Whether an edit of manifests that exist is all there is to do: no hardware, no other weights.
    #[must_use]
    pub fn is_an_edit(&self) -> bool {
        !matches!(self, Self::AddNodes { .. } | Self::FreeAccelerators { .. } | Self::Quantize(_))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RuntimeName { from, to } => write!(f, "set spec.runtime.name to {to} (not {from})"),
            Self::DropRuntimeName(name) => write!(f, "remove spec.runtime.name ({name}), so that a runtime is chosen"),
            Self::NameRuntime(name) => write!(f, "set spec.runtime.name to {name}, which is not chosen by itself"),
            Self::ClassName { from, to, source } => write!(f, "write {to} instead of {from} in {source}"),
            Self::PreferClasses { classes, source } => write!(f, "add {} to {source}", classes.join(", ")),
            Self::UseClass { class } => write!(f, "set spec.acceleratorSelector.preferredClasses to [{class}]"),
            Self::AllowClasses(classes) => write!(f, "take {} out of excludedClasses", classes.join(", ")),
            Self::AllowFamilies(families) => {
                write!(f, "add {} to constraints.architectureFamilies", families.join(", "))
            }
            Self::SpeakProtocol(protocol) => write!(f, "set spec.model.protocolVersion to {protocol}"),
            Self::Require { layer, requirement } => write!(f, "{requirement} in {}", layer.capabilities()),
            Self::DropNodeSelector { layer, key, value } => {
                write!(f, "remove {key}: {value} from {}, or label nodes so", layer.node_selector())
            }
            Self::DropAffinity(layer) => write!(f, "remove the node affinity of {}", layer.owner()),
            Self::SetCount { layer, per_node, .. } => {
                let (what, owner) = (counted(*per_node, "accelerator"), layer.owner());
                write!(f, "ask for {what} per node in {owner} (--tensor-parallel-size and its like, or else resources)")
            }
            Self::SetNodes { layer, nodes } => {
                write!(f, "set worker.size to {} in {}", nodes.saturating_sub(1), layer.owner())
            }
            Self::EnableRuntime(name) => write!(f, "remove spec.disabled from runtime {name}"),
            Self::SupportClasses { runtime, classes } => {
                write!(f, "add {} to acceleratorRequirements.supportedClasses of {runtime}", classes.join(", "))
            }
            Self::Adapt { runtime, named: true, field } => write!(f, "in runtime {runtime}, {field}"),
            Self::Adapt { runtime, named: false, field } => {
                write!(f, "add a runtime for {}, such as a copy of {runtime}: {field}", field.what())
            }
            Self::AddLeaderAndWorker { runtime, nodes } => {
                write!(f, "add leader and worker (worker.size {}) to {runtime}", nodes.saturating_sub(1))
            }
            Self::ModelName { from, to } => write!(f, "set spec.model.name to {to} (not {from})"),
            Self::SmallerModel { to, parameters, quantization } => {
                let facts = [parameters.map(|count| Count(count).to_string()), quantization.clone()];
                let facts: Vec<String> = facts.into_iter().flatten().collect();
                write!(f, "serve a smaller model: set spec.model.name to {to} ({})", facts.join(", "))
            }
            Self::EnableModel(name) => write!(f, "remove spec.disabled from model {name}"),
            Self::StateInModel { model, fields, runtime } => {
                let fields = to_state(fields);
                write!(f, "fill in what model {model} is, if it is what runtime {runtime} is for: {fields}")
            }
            Self::Quantize(kind) => write!(f, "serve the model quantized to {kind}, with a runtime for it"),
            Self::AddNodes { class, nodes, per_node } => write!(
                f,
                "add {} with {per_node} × {class}{}",
                counted(*nodes, "node"),
                if *nodes == 1 { "" } else { " each" }
            ),
            Self::FreeAccelerators { class, count } => write!(f, "free {count} more × {class}"),
        }
    }
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Layer {
    fn owner(&self) -> String {
        match self {
            Self::Selector => "spec.acceleratorSelector".to_owned(),
            Self::Service => "the service".to_owned(),
            Self::Runtime(name) => format!("runtime {name}"),
        }
    }

    fn capabilities(&self) -> String {
        match self {
            Self::Selector | Self::Service => "spec.acceleratorSelector".to_owned(),
            Self::Runtime(name) => format!("acceleratorRequirements of runtime {name}"),
        }
    }

    fn node_selector(&self) -> String {
        match self {
            Self::Selector => "spec.acceleratorSelector.nodeSelector".to_owned(),
            Self::Service => "the service's nodeSelector".to_owned(),
            Self::Runtime(name) => format!("the nodeSelector of runtime {name}"),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: &u64| *bytes as f64 / f64::from(1 << 30);
        match self {
            Self::Memory(Some(bytes)) => write!(f, "lower the required memory to {:.0}Gi", gib(bytes).floor()),
            Self::Memory(None) => f.write_str("drop the required memory"),
            Self::MaxMemory(Some(bytes)) => write!(f, "raise maxMemory to {:.0} GiB", gib(bytes).ceil()),
            Self::MaxMemory(None) => f.write_str("drop maxMemory"),
            Self::Compute(Some(version)) => write!(f, "lower the compute capability to \"{version}\""),
            Self::Compute(None) => f.write_str("drop the compute capability"),
            Self::Features(names) => write!(f, "no longer require {}", names.join(", ")),
            Self::Bandwidth(Some(speed)) => write!(f, "lower memoryBandwidthGBps to \"{speed}\""),
            Self::Bandwidth(None) => f.write_str("drop memoryBandwidthGBps"),
            Self::Performance { precision, tflops: Some(tflops) } => {
                write!(f, "lower the required {precision} performance to {tflops}")
            }
            Self::Performance { precision, tflops: None } => write!(f, "drop the required {precision} performance"),
        }
    }
}

impl Field {
    /// What a runtime with the field would be for.
    fn what(&self) -> String {
        match self {
            Self::Format(name) => format!("{name} models"),
            Self::FormatVersion(version) => format!("format version {version}"),
            Self::Framework(name) => format!("{name} models"),
            Self::FrameworkVersion(version) => format!("framework version {version}"),
            Self::Architecture(name) => format!("{name} models"),
            Self::Quantization(Some(name)) => format!("{name} models"),
            Self::Quantization(None) => "unquantized models".to_owned(),
            Self::Pipeline => "the model's diffusion pipeline".to_owned(),
            Self::Size { parameters, .. } => format!("{} models", Count(*parameters)),
            Self::Protocol(name) => format!("protocol {name}"),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(name) => write!(f, "set modelFormat.name to {name}"),
            Self::FormatVersion(version) => write!(f, "set modelFormat.version to \"{version}\""),
            Self::Framework(name) => write!(f, "set modelFramework.name to {name}"),
            Self::FrameworkVersion(version) => write!(
                f,
                "set modelFramework.version to \"{version}\", or a later one with operator GreaterThanOrEqual"
            ),
            Self::Architecture(name) => write!(f, "set modelArchitecture to {name}"),
            Self::Quantization(Some(name)) => write!(f, "set quantization to {name}"),
            Self::Quantization(None) => f.write_str("remove quantization"),
            Self::Pipeline => f.write_str("set diffusionPipeline to the model's"),
            Self::Size { range, several_nodes, .. } => {
                f.write_str("set modelSizeRange to ")?;
                let bound = |f: &mut fmt::Formatter<'_>, name: &str, bound: Option<u64>, end: &str| match bound {
                    Some(count) => write!(f, "{name}: {}{end}", Count(count)),
                    None => Ok(()),
                };
                bound(f, "min", range.min, if range.max.is_some() { ", " } else { "" })?;
                bound(f, "max", range.max, "")?;
                f.write_str(if *several_nodes { ", and give it leader and worker for several nodes" } else { "" })
            }
            Self::Protocol(name) => write!(f, "add {name} to protocolVersions"),
        }
    }
}

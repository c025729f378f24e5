//! Every code of a decision, with what it means and what to do about it.

/// What came out.
pub mod outcome {
    api::codes! {
        SELECTED = "Selected": "Runtime and classes are chosen.", "";
        KEPT = "Kept": "The choice in force may still serve and is kept.", "";
        NO_COMPATIBLE_RUNTIME = "NoCompatibleRuntime":
            "No runtime serves the model; the message names the one that came nearest. As a warning: the service's own engine runs as it is.",
            "Follow the nearest runtime's code; `ostler explain` tells which one change helps. Or apply a runtime for the model.";
        MODEL_NOT_FOUND = "ModelNotFound":
            "The service names a model that exists neither in its namespace nor in the cluster.",
            "Correct spec.model.name, or apply a BaseModel or ClusterBaseModel.";
        MODEL_DISABLED = "ModelDisabled": "The model is switched off.", "Remove spec.disabled from the model, or name another one.";
        RUNTIME_NOT_FOUND = "RuntimeNotFound":
            "The service names a runtime that exists neither in its namespace nor in the cluster.",
            "Correct spec.runtime.name, or remove it: a runtime is then selected.";
        NO_ENGINE_CONTAINER = "NoEngineContainer":
            "Neither runtime nor service says which image to run.",
            "Name a model or a runtime, or set spec.engine.runner.image.";
    }
}

/// Why a runtime cannot serve, in the order of the checks.
pub mod runtime {
    api::codes! {
        DISABLED = "Disabled": "The runtime is switched off.", "Remove spec.disabled from it, or name another one.";
        FORMAT_MISMATCH = "FormatMismatch":
            "The runtime lists no entry in supportedModelFormats with the model's format.",
            "Add an entry, or correct the model's modelFormat.";
        FORMAT_VERSION_MISMATCH = "FormatVersionMismatch":
            "The versions of the format differ.",
            "Correct modelFormat.version of one of them, or state no version in the runtime.";
        FRAMEWORK_MISMATCH = "FrameworkMismatch":
            "The model's framework is another one.", "Correct modelFramework of one of them.";
        FRAMEWORK_VERSION_MISMATCH = "FrameworkVersionMismatch":
            "The versions of the framework differ.",
            "Correct modelFramework.version of one of them, or state no version in the runtime.";
        ARCHITECTURE_MISMATCH = "ArchitectureMismatch":
            "The runtime is for another model architecture.",
            "Add an entry for the architecture, or correct modelArchitecture.";
        QUANTIZATION_MISMATCH = "QuantizationMismatch":
            "The runtime is for another quantization.", "Name a model with that quantization, or add an entry to the runtime.";
        PIPELINE_MISMATCH = "PipelineMismatch":
            "The runtime is for another diffusion pipeline.", "Add an entry for the pipeline, or correct the model.";
        SIZE_OUT_OF_RANGE = "SizeOutOfRange":
            "The model has more or fewer parameters than the runtime is made for, by its modelSizeRange or by the size in its name.",
            "Use a runtime for that size, or state the range in modelSizeRange.";
        PROTOCOL_UNSUPPORTED = "ProtocolUnsupported":
            "The runtime does not speak the protocol that is asked for.",
            "Ask for another protocol, or add it to the runtime's protocolVersions.";
        AUTO_SELECT_DISABLED = "AutoSelectDisabled":
            "The runtime matches and is used only where it is named.",
            "Name it in spec.runtime.name, or set autoSelect in the runtime.";
        NO_ELIGIBLE_ACCELERATOR = "NoEligibleAccelerator":
            "The runtime fits and no accelerator class does; each class has a code of its own.",
            "Follow the nearest class's code; `ostler explain` tells which one change helps.";
    }
}

/// How a class stands for one component, in the order of the checks.
pub mod class {
    api::codes! {
        ELIGIBLE = "Eligible": "The class can carry the component.", "";
        UNKNOWN_CLASS = "UnknownClass":
            "There is no AcceleratorClass of that name.", "Correct the name; `kubectl get acceleratorclasses` lists them.";
        NOT_SUPPORTED_BY_RUNTIME = "NotSupportedByRuntime":
            "The runtime names the classes that it supports, and this is none of them.",
            "Add it to acceleratorRequirements.supportedClasses of the runtime, or name another runtime.";
        NOT_PREFERRED = "NotPreferred":
            "The service asks for other classes.", "Name it in acceleratorSelector, or remove the selection.";
        EXCLUDED_CLASS = "ExcludedClass":
            "The service excludes the class, by name, family or memory.", "Remove the constraint from acceleratorSelector.";
        NO_MATCHING_NODES = "NoMatchingNodes":
            "No node belongs to the class, or none that the service's node selector takes.",
            "Add a node, correct spec.discovery of the class, or relax the node selector.";
        RESOURCE_UNKNOWN = "ResourceUnknown":
            "The class does not say which resource Pods request, and its vendor is none whose device plugin is known.",
            "State resources of the class, such as `resources: [{name: acme.com/npu}]`; `kubectl describe node` shows the name.";
        INSUFFICIENT_MEMORY = "InsufficientMemory":
            "One accelerator has less memory than is asked for.", "Ask for less, or use a class with more.";
        COMPUTE_CAPABILITY_TOO_LOW = "ComputeCapabilityTooLow":
            "The class's compute capability is lower than is asked for.", "Use a newer class, or lower the requirement.";
        MISSING_FEATURE = "MissingFeature":
            "The class lacks a feature that is asked for.",
            "Use a class that has it, add it to capabilities.features where the hardware has it, or drop the requirement.";
        BANDWIDTH_TOO_LOW = "BandwidthTooLow":
            "The class's memory bandwidth is lower than is asked for, or not stated.", "Lower the requirement, or state the class's bandwidth.";
        PERFORMANCE_TOO_LOW = "PerformanceTooLow":
            "The class computes less than is asked for, or does not state it.", "Lower the requirement, or state the class's performance.";
        TOO_MANY_PER_NODE = "TooManyPerNode":
            "Runtime or service fix a number of accelerators per node that no node of the class has; waiting does not help.",
            "Ask for fewer: --tensor-parallel-size and its like, or resources. Or spread the model over nodes, with leader and worker.";
        MODEL_DOES_NOT_FIT = "ModelDoesNotFit":
            "Weights and cache need more memory than the accelerators have that may be used together.",
            "Allow more accelerators or nodes, use a class with more memory, or a quantized or smaller model.";
        NODE_SELECTOR_CONFLICT = "NodeSelectorConflict":
            "No node of the class satisfies node selector and affinity of class, runtime and service together.",
            "Relax the service's node selector or affinity, or label a node.";
    }
}

/// What was done nonetheless, and what its owner should know.
pub mod warning {
    api::codes! {
        ACCELERATOR_NOT_CONSIDERED = "AcceleratorNotConsidered":
            "No class was looked at: neither runtime nor service uses an accelerator field, or there is no class.",
            "Give the service an acceleratorSelector or the runtime acceleratorRequirements, if a class is wanted.";
        AMBIGUOUS_RUNTIMES = "AmbiguousRuntimes":
            "Several runtimes fit equally well and have equal priority; the choice among them is nobody's.",
            "Give one a higher priority, or name one in spec.runtime.name.";
        DECISION_STALE = "DecisionStale":
            "The service keeps its choice; another one would be taken today.", "`ostler redecide KIND/NAME` accepts it.";
        ACCELERATOR_RESOURCE_REPLACED = "AcceleratorResourceReplaced":
            "Service or runtime ask for accelerators by another resource name than the chosen class has; the class's is requested.",
            "Name a class in spec.acceleratorSelector.preferredClasses to choose the vendor.";
        MODEL_UNSTATED = "ModelUnstated":
            "The service names a runtime and no model: format, size and memory were not checked.",
            "Name the model in spec.model, if there is an object for it.";
        MODEL_SIZE_UNSTATED = "ModelSizeUnstated":
            "The model does not say how many parameters it has: size ranges were not compared, and memory was not checked.",
            "State spec.modelParameterSize of the model, such as `7B`.";
        PARALLELISM_MISMATCH = "ParallelismMismatch":
            "Flags or variables split the model over another number of accelerators than the Pods request.",
            "Make --tensor-parallel-size and its like agree with resources.";
        AVAILABILITY_UNKNOWN = "AvailabilityUnknown":
            "Nothing is known of the nodes of the class.", "Plan with nodes (`ostler plan --nodes`, `--cluster` or `--context`), or wait until the class has a status.";
        NO_FREE_CAPACITY = "NoFreeCapacity":
            "The class is chosen and its accelerators are in use; the service waits for them.",
            "Free accelerators or add nodes; `ostler explain` tells who holds them.";
        COST_THRESHOLD_EXCEEDED = "CostThresholdExceeded":
            "No class is as cheap as is asked for; the cheapest suitable one is used.", "Raise the annotation ome.io/cost-threshold, or state prices of classes.";
        SCORE_TERM_DROPPED = "ScoreTermDropped":
            "A number that ranks classes is not stated by every eligible class, so it counts for none.", "State it in all classes.";
        PRICE_KINDS_DIFFER = "PriceKindsDiffer":
            "Classes state prices of different kinds, which cannot be compared.", "State the same kind in all classes.";
        NODE_SELECTOR_OVERRIDDEN = "NodeSelectorOverridden":
            "Two sources give one node label different values; the nearer one to the service wins.", "Remove one, if that was not meant.";
        SERVICE_ARGS_NOT_READ = "ServiceArgsNotRead":
            "The runtime's command is a script that reads no arguments; the service's have no effect.",
            "State engine.runner.command in the service too.";
        ACCELERATOR_ARGS_NOT_APPLIED = "AcceleratorArgsNotApplied":
            "Arguments of an accelerator configuration cannot be added to a command of the service or to a script.",
            "Write them into that command.";
        ANNOTATION_OVERRIDDEN = "AnnotationOverridden":
            "spec.annotations and metadata.annotations differ; the latter win.", "Remove one of them.";
        INVALID_RUNTIME = "InvalidRuntime": "A runtime cannot be read and takes part in no choice.", "Correct the field that the message names.";
        INVALID_CLASS = "InvalidClass": "A class cannot be read and takes part in no choice.", "Correct the field that the message names.";
        INVALID_MODEL = "InvalidModel": "A model cannot be read and takes part in no choice.", "Correct the field that the message names.";
        DEPRECATED_FIELD = "DeprecatedField": "An old field name was read.", "Rename it as the message says.";
    }
}

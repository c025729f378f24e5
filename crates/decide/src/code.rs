//! Decision codes; each documents its cause and remedy.

/// Outcomes of a decision.
pub mod outcome {
    api::codes! {
        SELECTED = "Selected": "A runtime and accelerator classes are selected.", "";
        KEPT = "Kept": "The current selection is still eligible and is retained.", "";
        NO_COMPATIBLE_RUNTIME = "NoCompatibleRuntime":
            "No runtime can serve the model; the message names the closest one. As a warning: the service runs its own engine without a runtime.",
            "Resolve the rejection of the closest runtime, or create a runtime for the model. `ostler explain` shows which single change helps.";
        MODEL_NOT_FOUND = "ModelNotFound":
            "The model that the service names exists neither in its namespace nor in the cluster.",
            "Correct spec.model.name, or create a BaseModel or ClusterBaseModel with this name.";
        MODEL_DISABLED = "ModelDisabled": "The model is disabled.", "Remove spec.disabled from the model, or use another model.";
        RUNTIME_NOT_FOUND = "RuntimeNotFound":
            "The runtime that the service names exists neither in its namespace nor in the cluster.",
            "Correct spec.runtime.name, or remove it to select a runtime automatically.";
        NO_ENGINE_CONTAINER = "NoEngineContainer":
            "No container image: neither the runtime nor the service sets one for the engine or the decoder.",
            "Set spec.model.name or spec.runtime.name, or the image of the component that the message names, such as spec.engine.runner.image.";
    }
}

/// Reasons why a runtime cannot serve. The order of the list is the order of the checks.
pub mod runtime {
    api::codes! {
        DISABLED = "Disabled": "The runtime is disabled.", "Remove spec.disabled from the runtime, or use another runtime.";
        FORMAT_MISMATCH = "FormatMismatch":
            "No entry of supportedModelFormats has the model's format.",
            "Add an entry for the format, or correct modelFormat of the model.";
        FORMAT_VERSION_MISMATCH = "FormatVersionMismatch":
            "The runtime supports another version of the model's format.",
            "Correct modelFormat.version of the model or the runtime, or remove it from the runtime.";
        FRAMEWORK_MISMATCH = "FrameworkMismatch":
            "The runtime supports another model framework.", "Correct modelFramework of the model or the runtime.";
        FRAMEWORK_VERSION_MISMATCH = "FrameworkVersionMismatch":
            "The runtime supports another version of the model's framework.",
            "Correct modelFramework.version of the model or the runtime, or remove it from the runtime.";
        ARCHITECTURE_MISMATCH = "ArchitectureMismatch":
            "The runtime supports another model architecture.",
            "Add an entry for the architecture to supportedModelFormats, or correct modelArchitecture of the model.";
        QUANTIZATION_MISMATCH = "QuantizationMismatch":
            "The runtime supports another quantization.",
            "Add an entry for the quantization to supportedModelFormats, or use a model with a supported quantization.";
        PIPELINE_MISMATCH = "PipelineMismatch":
            "The runtime supports another diffusion pipeline.",
            "Add an entry for the pipeline to supportedModelFormats, or correct diffusionPipeline of the model.";
        SIZE_OUT_OF_RANGE = "SizeOutOfRange":
            "The model's number of parameters is outside the runtime's modelSizeRange or, without a range, contradicts the size in the runtime's name.",
            "Use a runtime for this model size, or adjust modelSizeRange.";
        PROTOCOL_UNSUPPORTED = "ProtocolUnsupported":
            "The runtime does not support the protocol that the service requires.",
            "Change spec.model.protocolVersion, or add the protocol to protocolVersions of the runtime.";
        TASK_UNSUPPORTED = "TaskUnsupported":
            "The model computes embeddings or scores, and the runtime's engine only generates text.",
            "Use a runtime whose engine has flags such as --runner=pooling, or correct modelCapabilities of the model.";
        ADAPTERS_UNSUPPORTED = "AdaptersUnsupported":
            "The service has fineTunedWeights, and ostler cannot configure LoRA adapters of the runtime's engine.",
            "Use a runtime with vLLM or SGLang, or remove spec.model.fineTunedWeights.";
        ENGINE_CANNOT_SLEEP = "EngineCannotSleep":
            "The service requests dual pods, and the runtime's engine cannot sleep.",
            "Use a runtime with vLLM, or remove the annotation `ome.io/actuation`.";
        AUTO_SELECT_DISABLED = "AutoSelectDisabled":
            "The runtime matches, but autoSelect is off: it only serves services that name it.",
            "Set spec.runtime.name, or set autoSelect in the runtime.";
        NO_ELIGIBLE_ACCELERATOR = "NoEligibleAccelerator":
            "The runtime is compatible, but no accelerator class is eligible; each class has its own code.",
            "Resolve the rejection of the first class. `ostler explain` shows which single change helps.";
        ACCELERATOR_UNAVAILABLE = "AcceleratorUnavailable":
            "Neither the runtime nor the service selects a class, and no known node has the accelerators that the Pods request.",
            "Add nodes with the resource, request fewer accelerators, or set spec.acceleratorSelector to select a class that exists.";
    }
}

/// Results of the checks of a class for one component. The order of the list is the order of the checks.
pub mod class {
    api::codes! {
        ELIGIBLE = "Eligible": "The class can run the component.", "";
        UNKNOWN_CLASS = "UnknownClass":
            "No AcceleratorClass has this name.", "Correct the name; `kubectl get acceleratorclasses` lists the classes.";
        NOT_SUPPORTED_BY_RUNTIME = "NotSupportedByRuntime":
            "The runtime restricts its classes, and this class is not one of them.",
            "Add the class to acceleratorRequirements.supportedClasses of the runtime, or use another runtime.";
        NOT_PREFERRED = "NotPreferred":
            "The service restricts its classes, and this class is not one of them.",
            "Add the class to spec.acceleratorSelector.preferredClasses, or remove the field.";
        EXCLUDED_CLASS = "ExcludedClass":
            "The service excludes the class by name, architecture family or memory.", "Remove the constraint from spec.acceleratorSelector.";
        NO_MATCHING_NODES = "NoMatchingNodes":
            "No node belongs to the class, or none matches the node selector of the service.",
            "Add a node, correct spec.discovery of the class, or relax the node selector.";
        RESOURCE_UNKNOWN = "ResourceUnknown":
            "The class declares no resources, and the device plugin of its vendor is unknown, so Pods cannot request accelerators.",
            "Set spec.resources of the class, for example `resources: [{name: acme.com/npu}]`; `kubectl describe node` shows the name.";
        INSUFFICIENT_MEMORY = "InsufficientMemory":
            "An accelerator of the class has less memory than required, or the class does not declare it.",
            "Lower the requirement, or use a class with more memory.";
        COMPUTE_CAPABILITY_TOO_LOW = "ComputeCapabilityTooLow":
            "The compute capability of the class is lower than required, or the class does not declare it.",
            "Lower the requirement, or use a newer class.";
        MISSING_FEATURE = "MissingFeature":
            "The class lacks a required feature.",
            "Use a class with the feature, add it to capabilities.features if the hardware has it, or remove the requirement.";
        BANDWIDTH_TOO_LOW = "BandwidthTooLow":
            "The memory bandwidth of the class is lower than required, or the class does not declare it.",
            "Lower the requirement, or set capabilities.memoryBandwidthGBps of the class.";
        PERFORMANCE_TOO_LOW = "PerformanceTooLow":
            "The class provides less compute than required, or does not declare its performance.",
            "Lower the requirement, or set capabilities.performance of the class.";
        TOO_MANY_PER_NODE = "TooManyPerNode":
            "The runtime or the service requests more accelerators per node than any node of the class has, or several partitions of a device for one copy of the model. Freeing accelerators does not help.",
            "Lower --tensor-parallel-size or resources, or set leader and worker to use several nodes.";
        MODEL_DOES_NOT_FIT = "ModelDoesNotFit":
            "The model requires more accelerator memory than the largest possible shape provides.",
            "Allow more accelerators or nodes, use a class with more memory, set a shorter --max-model-len, or use a quantized or smaller model.";
        NODE_SELECTOR_CONFLICT = "NodeSelectorConflict":
            "No node of the class satisfies the merged node selectors and affinities of class, runtime and service.",
            "Relax the node selector or affinity of the service, or label a node.";
        TAINT_NOT_TOLERATED = "TaintNotTolerated":
            "All nodes of the class that the placement allows have a taint that the Pods do not tolerate. The taint of the accelerator resource, such as nvidia.com/gpu, is always tolerated.",
            "Add the toleration to spec.engine.tolerations of the service or to engineConfig.tolerations of the runtime, or remove the taint.";
        INSUFFICIENT_NODE_RESOURCES = "InsufficientNodeResources":
            "A Pod requests more CPU or memory than any node of the class has, even if nothing runs on it.",
            "Lower requests.cpu or requests.memory of the service or the runtime, or add larger nodes.";
        VENDOR_MISMATCH = "VendorMismatch":
            "The runtime requests accelerators of another vendor, or its image is built for one, and it declares no configuration for this vendor.",
            "Use a runtime for the vendor, or add an entry for the class with a suitable image to acceleratorConfigurations.";
        ACCELERATOR_UNSUPPORTED = "AcceleratorUnsupported":
            "The engine does not start on accelerators of the class, or not with the number format of the model.",
            "Use a newer class, another engine, or the model in another number format.";
    }
}

/// Findings that do not prevent the service from running.
pub mod warning {
    api::codes! {
        ACCELERATOR_NOT_CONSIDERED = "AcceleratorNotConsidered":
            "No accelerator class was considered: neither the runtime nor the service sets an accelerator field, or no AcceleratorClass exists.",
            "Set spec.acceleratorSelector of the service or acceleratorRequirements of the runtime to select a class.";
        AMBIGUOUS_RUNTIMES = "AmbiguousRuntimes":
            "Several runtimes match equally well and have the same priority; tie-breaking rules selected one.",
            "Raise the priority of one runtime, or set spec.runtime.name.";
        DECISION_STALE = "DecisionStale":
            "The current selection is retained; re-running selection would choose a different runtime or class.",
            "Run `ostler redecide KIND/NAME` to accept the new selection.";
        ACCELERATOR_RESOURCE_REPLACED = "AcceleratorResourceReplaced":
            "The service or the runtime requests accelerators by a resource of another vendor; Pods request the resource of the selected class.",
            "Set spec.acceleratorSelector.preferredClasses to choose the vendor.";
        MODEL_UNSTATED = "ModelUnstated":
            "The service names a runtime but no model, so format, size and memory were not checked.",
            "Set spec.model.name, if an object for the model exists.";
        MODEL_SIZE_UNSTATED = "ModelSizeUnstated":
            "The model does not set its number of parameters, so size ranges and memory were not checked.",
            "Set spec.modelParameterSize of the model, for example `7B`.";
        MODEL_SIZE_INFERRED = "ModelSizeInferred":
            "The model does not set its number of parameters, so the one in its name was used for size ranges and memory.",
            "Set spec.modelParameterSize of the model, for example `7B`.";
        RUNTIME_NAMED_FOR_ANOTHER_SIZE = "RuntimeNamedForAnotherSize":
            "The selected runtime sets no size range, and its name indicates models of another size; no runtime suits the model better.",
            "Set spec.modelSizeRange of the runtime, or spec.runtime.name of the service.";
        PARALLELISM_MISMATCH = "ParallelismMismatch":
            "Flags or environment variables set a parallelism that differs from the number of accelerators that the Pods request.",
            "Make --tensor-parallel-size and similar flags agree with resources.";
        ATTENTION_HEADS_NOT_DIVISIBLE = "AttentionHeadsNotDivisible":
            "The size of tensor parallelism does not divide the attention heads of the model. vLLM and SGLang then fail to start.",
            "Use a number of accelerators that divides the heads, or set --pipeline-parallel-size.";
        ACCELERATORS_ADDED = "AcceleratorsAdded":
            "The model or the service requires more accelerators than the runtime states, so more are used, and the flag or environment variable of tensor parallelism is replaced.",
            "Raise the number in the runtime, or set resources or --tensor-parallel-size of the service.";
        FORMAT_EMULATED = "FormatEmulated":
            "The accelerators have no units for the number format of the model. The engine converts the weights while it computes, which is slower, or computes in float16 instead of bfloat16.",
            "Use a newer class, or the model in another number format.";
        CONTEXT_LENGTH_REJECTED = "ContextLengthRejected":
            "A flag states a context length that is not a number of tokens, or longer than that of the model. vLLM and SGLang then fail to start.",
            "Remove --max-model-len or --context-length, or state at most the maximum of the model.";
        AVAILABILITY_UNKNOWN = "AvailabilityUnknown":
            "The nodes of the selected class are unknown, so free capacity was not checked.",
            "Plan with nodes (`ostler plan --nodes`, `--cluster` or `--context`), or wait until the class has a status.";
        NO_FREE_CAPACITY = "NoFreeCapacity":
            "The accelerators of the selected class are in use, or on nodes that are cordoned or not ready; the service waits for free ones.",
            "Run `kubectl uncordon` on the nodes that the message names, free accelerators, or add nodes; `ostler explain` shows which workloads use them.";
        TOO_FEW_NODES = "TooFewNodes":
            "The nodes of the selected class have too few accelerators for all replicas, even if none is in use.",
            "Add nodes, reduce the replicas, or use a smaller model; `ostler explain` shows what would suffice.";
        COST_THRESHOLD_EXCEEDED = "CostThresholdExceeded":
            "No eligible class is within the cost threshold; the cheapest one is used.",
            "Raise the annotation ome.io/cost-threshold, or set the prices of classes.";
        FIGURES_MISSING = "FiguresMissing":
            "An eligible class does not declare a value that the strategy compares, and ranks below those that do.",
            "Set capabilities.performance, memoryBandwidthGBps and memoryGB of the class.";
        PRICE_KINDS_DIFFER = "PriceKindsDiffer":
            "Classes declare different kinds of prices, which cannot be compared.", "Set the same kind of price in all classes.";
        NODE_SELECTOR_OVERRIDDEN = "NodeSelectorOverridden":
            "Two layers set a node label to different values; the layer closer to the service takes precedence.",
            "Remove one of the values, if this is not intended.";
        SERVICE_ARGS_NOT_READ = "ServiceArgsNotRead":
            "The runtime's command is a shell script that does not use its parameters, so the arguments of the service have no effect.",
            "Set engine.runner.command in the service as well.";
        ACCELERATOR_ARGS_NOT_APPLIED = "AcceleratorArgsNotApplied":
            "Arguments of an accelerator configuration cannot be added to the command of the service or to a shell script.",
            "Add the arguments to the command.";
        ANNOTATION_OVERRIDDEN = "AnnotationOverridden":
            "spec.annotations and metadata.annotations set different values; metadata.annotations takes precedence.",
            "Remove one of the annotations.";
        INVALID_RUNTIME = "InvalidRuntime": "A runtime has an invalid field and is ignored.", "Correct the field that the message names.";
        INVALID_CLASS = "InvalidClass": "An accelerator class has an invalid field and is ignored.", "Correct the field that the message names.";
        INVALID_MODEL = "InvalidModel": "A model has an invalid field and is ignored.", "Correct the field that the message names.";
        DEPRECATED_FIELD = "DeprecatedField": "The manifest uses a deprecated field.", "Rename the field; the message contains its new name.";
    }
}

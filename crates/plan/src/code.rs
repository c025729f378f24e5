//! Codes of plans, in addition to those of decisions ([`decide::code`]).

/// Reasons why a service cannot be planned.
pub mod error {
    api::codes! {
        INVALID_SERVICE = "InvalidService": "A field of the service has an invalid value. The message names the field.",
            "Correct the field. `ostler lint -f FILE` reports it before you apply the file.";
        INVALID_ANNOTATION = "InvalidAnnotation": "An annotation of the service has an invalid value. The message names the annotation.", "Correct or remove the annotation.";
        BACKEND_UNSUPPORTED = "BackendUnsupported": "The engine does not support the requested multi-node backend.",
            "Remove `multinode.backend`, or set the backend that the message names.";
        INVALID_TEMPLATE = "InvalidTemplate": "A Pod template is incomplete, or its command cannot run on several nodes.",
            "Correct the field that the message names.";
        AFFINITY_TOO_LARGE = "AffinityTooLarge": "The node affinities of class, runtime and service have too many combinations.",
            "Reduce the number of node selector terms.";
        UNDEFINED_VARIABLE = "UndefinedVariable": "A command refers to an environment variable that neither the service nor its runtime defines. The engine would get the text `$(NAME)`.",
            "Define the variable in `runner.env`, or correct its name.";
        STORAGE_UNSUPPORTED = "StorageUnsupported": "The command refers to `MODEL_PATH`, but the storage of the model has no path in a Pod, or a revision that cannot be added to the command. The message states why.",
            "Set `storageUri` of the model to `hf://ORG/NAME` or `pvc://CLAIM/PATH`, or `storage.path` to a directory on the nodes, or define `MODEL_PATH` in `runner.env`.";
        ADAPTER_NOT_FOUND = "AdapterNotFound": "An entry of `fineTunedWeights` names a model that does not exist. The message names the entry.",
            "Create a BaseModel or ClusterBaseModel with the storage of the adapter, or use `NAME=LOCATION`, for example `sql=hf://ORG/NAME`.";
        ADAPTER_INVALID = "AdapterInvalid": "An entry of `fineTunedWeights` has an invalid name, or no path in a Pod. The message names the entry.",
            "Use `NAME=LOCATION`, for example `sql=hf://ORG/NAME`, or correct the storage of the adapter.";
        ADAPTERS_NOT_CONFIGURED = "AdaptersNotConfigured": "The engine would serve the base model without the adapters in `fineTunedWeights`, because the flags cannot be added to its command.",
            "Add the flags that the message states to the command, or use a runtime with vLLM or SGLang.";
        NO_ROLES = "NoRoles": "`spec.roles` is empty.", "Add at least one role.";
        TOO_MANY_PODS = "TooManyPods": "The roles, or the nodes of a replica, are more Pods than the limit for one service.",
            "Split the service into several services, or reduce `worker.size`.";
        NO_ENGINES = "NoEngines": "The service has a router but no role that runs an engine.", "Add a worker, or a prefiller and a decoder.";
        INVALID_ROUTE = "InvalidRoute": "`httproute` of the router is not a valid HTTPRoute spec. The message names the field.",
            "Correct the field. `ostler lint -f FILE` reports it before you apply the file.";
        TWO_ROUTERS = "TwoRouters": "The service has more than one router.", "Remove all routers but one.";
        DUPLICATE_ROLE = "DuplicateRole": "Two roles have the same name.", "Rename one of the roles.";
        NAME_CLASH = "NameClash": "Two roles would create objects with the same name.", "Rename one of the roles, so that its name is not the other name followed by a number.";
        RESERVED_METADATA = "ReservedMetadata": "A Pod template has a label or annotation with a reserved prefix.", "Use another key.";
        SCHEDULER_CONFLICT = "SchedulerConflict": "A Pod template sets a different scheduler than the service or its gang requires.",
            "Remove `schedulerName` from the Pod template.";
        DUAL_PODS_NODES = "DualPodsMultiNode": "The service requests dual pods, but a replica has several nodes.",
            "Use accelerators with more memory, so that a replica has one node, or remove the annotation `ome.io/actuation` or `fusioninfer.io/actuation`.";
        DUAL_PODS_ENGINE = "DualPodsEngineUnsupported": "The service requests dual pods, but the engine cannot sleep, or its command or probe prevents it. The message states why.",
            "Use vLLM with a command to which `--enable-sleep-mode` can be added, or remove the annotation.";
        DUAL_PODS_AUTOSCALER = "DualPodsAutoscalerUnsupported": "The service requests dual pods, but its autoscaler measures CPU or memory of Pods that do not run the engine.",
            "Set `scaleMetric` to `concurrency` or `rps`, or a fixed number of replicas.";
        DUAL_PODS_ACCELERATORS = "DualPodsAcceleratorsUnsupported": "The service requests dual pods, but the engine has no accelerators that its requester could request. The message names the field.",
            "Request the accelerators of the engine as extended resources, such as `nvidia.com/gpu`.";
    }

    /// Codes whose causes depend on objects of the cluster, which manifests need not contain.
    pub const DEPENDS_ON_CLUSTER: &[api::Code] = &[ADAPTER_NOT_FOUND];
}

/// Warnings about services that were planned.
pub mod warning {
    api::codes! {
        TEMPLATE_VALUE_MISSING = "TemplateValueMissing": "A template variable refers to a label or annotation that the service does not have. It expands to an empty string.",
            "Set the label or annotation, or remove the variable.";
        ENGINE_IMAGE_UNSET = "EngineImageUnset": "Neither the service nor a runtime sets an image; the command starts a known engine, so its shipped image is used.",
            "Set `spec.engine.runner.image`.";
        MODEL_STORAGE_UNSET = "ModelStorageUnset": "The model states no storage. The engine loads the model by the name of the BaseModel.",
            "Set `spec.storage.storageUri` of the model, for example to `hf://ORG/NAME`.";
        NO_ROUTER_CONTAINER = "NoRouterContainer":
            "The router of the service has no image, and the default router does not support the engines. The engines run without a router.",
            "Set `spec.router.runner.image`, or use a runtime with `routerConfig`.";
        PODS_UNSCHEDULABLE = "PodsUnschedulable":
            "None of the nodes could run a Pod of the role, even without other Pods, so that its Pods stay pending. Of components with an accelerator class, only resources that are no accelerators are compared.",
            "Correct nodeSelector, affinity, tolerations and resources of the Pods, or add such a node.";
        ROUTER_MISSING = "RouterMissing": "The service has separate engines for prefill and decode but no router. For a service with roles, the message names those that receive no requests, if any.",
            "Add a router to the service, or use a runtime with `routerConfig`. For a service with roles, add a role with `componentType: router`.";
        PREFILLERS_NOT_ROUTED = "PrefillersNotRouted": "The routing strategy does not send prompts to prefillers. Requests are routed only to decoders.",
            "Set `strategy: pd-disaggregation`.";
        PORTS_DIFFER = "PortsDiffer": "Replica sets or roles serve on different ports. Requests are routed only to the port of the first one.",
            "Use the same port for all of them.";
        NODES_NOT_JOINED = "NodesNotJoined": "The commands of leader and workers do not join the nodes of a replica.",
            "Pass the rank and the leader's address to the engine ($(LWS_WORKER_INDEX), $(LWS_LEADER_ADDRESS)), or omit the worker's `command` and `args`.";
        AUTOSCALER_UNAVAILABLE = "AutoscalerUnavailable": "The requested autoscaling is not available. The message states the number of replicas instead.",
            "Set a fixed number of replicas, or provide what the message names.";
        PAIR_INCOMPLETE = "PairIncomplete": "The service has a prefiller without a decoder, or a decoder without a prefiller.",
            "Add the missing role, or change the component type to `worker`.";
        GANG_ALL_OR_NOTHING = "GangAllOrNothing": "The installed version of Volcano does not support `subGroupPolicy`. All replicas are scheduled together or not at all.",
            "Install Volcano 1.14 or newer, or set `gangPolicy: All`.";
        STRATEGY_NOT_APPLICABLE = "StrategyNotApplicable": "The routing strategy requires roles that the service does not have. The default strategy is used.",
            "Add the roles that the message names, or set another strategy.";
        ROUTE_WITHOUT_GATEWAY = "RouteWithoutGateway": "`httproute` of the router has no parent Gateway and receives no requests.",
            "Add a Gateway to `httproute.parentRefs`.";
        FIELD_IGNORED = "FieldIgnored": "A field has no effect.", "Remove the field, or follow the advice in the message.";
    }
}

//! Codes of the problems that the status annotation and the Events of a requester report.

api::codes! {
    ADDRESS_MISSING = "AddressMissing": "The requester has no IP address yet.", "See the state of the requester Pod.";
    UNREACHABLE_REQUESTER = "RequesterUnreachable": "The requester does not answer on its service provider interface.",
        "Check the annotation `admin-port` and the logs of the requester.";
    NO_ACCELERATORS = "NoAccelerators": "The requester reports that no accelerators are assigned to it.",
        "Request accelerators in the resources of the requester's container.";
    GPU_MAP_MISSING = "GpuMapMissing": "The ConfigMap gpu-map does not have the index of an accelerator of the requester.",
        "Run `ostler actuation gpu-map`, or add the entry of the node to the ConfigMap.";
    INVALID_ANNOTATION = "InvalidAnnotation": "An annotation of the requester has an invalid value. The message names the annotation.", "Correct the annotation.";
    INVALID_PATCH = "InvalidPatch": "The annotation `server-patch` does not result in a valid provider. The message names the field.", "Correct the field.";
    SELECTOR_MATCHES = "SelectorMatchesProvider": "The set that created the requester would adopt the provider, because its selector matches the provider's labels.",
        "Change a label of the selector in the annotation `server-patch`.";
    RESOURCE_CLAIMS = "ResourceClaimsUnsupported": "The requester has resource claims (dynamic resource allocation).", "Request the accelerators as extended resources, such as `nvidia.com/gpu`.";
    MODE_UNSUPPORTED = "ModeUnsupported": "The requester uses an InferenceServerConfig, which is not supported.", "Use the annotation `server-patch`.";
    ACCELERATOR_BUSY = "AcceleratorBusy": "Another engine on one of the accelerators is awake, is loading, or its state is not known.",
        "Wait until the named engine is asleep or gone, or delete its Pod.";
    BUDGET_EXHAUSTED = "SleeperLimitReached": "The accelerators have as many engines as the limit permits, and none of them may be deleted.",
        "Wait until the named engines are gone, or raise `--sleeper-limit`.";
    MEMORY_SHORT = "AcceleratorMemoryShort": "The accelerator memory in use exceeds what the sleeping engines may retain.",
        "Stop the processes that use the accelerator, or lower the number of sleeping engines.";
    UNSCHEDULABLE = "ProviderUnschedulable": "The provider cannot be scheduled on the node of its requester.", "Free CPU or memory on the node, or lower the provider's requests.";
    START_FAILED = "EngineNotStarted": "The engine of the provider does not start. The message has the reason of the container.", "See the state and the logs of the provider Pod.";
    SLEEP_UNSUPPORTED = "SleepUnsupported": "The engine does not have the routes of sleep mode, so its Pod is deleted instead of put to sleep.",
        "Set VLLM_SERVER_DEV_MODE=1 and `--enable-sleep-mode` in the annotation `server-patch`.";
    CALL_FAILED = "EngineCallFailed": "A request to the engine failed.", "See the logs of the provider Pod.";
    SEVERAL_PROVIDERS = "SeveralProviders": "More than one provider was bound to the requester. All but one are unbound.", "";
    WRITE_FAILED = "ProviderRejected": "The API server rejected the creation of the provider Pod, or a change or deletion of it or of the requester.",
        "Correct the field that the message names, the quota, or the permissions of the controller.";
    FINGERPRINT_CHANGED = "FingerprintChanged": "After it woke up, the engine returned a different completion than when it was first ready. It was deleted.", "";
}

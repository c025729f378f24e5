//! Reason codes of the conditions of pools and use cases.

api::codes! {
    ACCEPTED = "Accepted": "The use cases are active, or the EndpointPickerConfig selects endpoints.", "";
    MODEL_NAME_CONFLICT = "ModelNameConflict": "An older object declares the same model name; the use cases with this name are inactive.", "Use another modelName, or delete the older object.";
    OLDER_USE_CASE = "OlderUseCase": "Requests to `/v1` with the model name go to the pool of an older use case, possibly of another namespace; the message contains the path of the newer one.", "Send requests to the path in the message, or use another modelName.";
    INVALID_WEIGHTS = "InvalidWeights": "All target weights of a use case are 0.", "Set at least one positive weight.";
    TARGET_NOT_LISTED = "TargetNotListed": "No engine of the pools lists a target model of a use case at `/v1/models`. It gets no requests as long as another target is served.", "Load the adapter, or correct targetModelName.";
    POOL_NOT_FOUND = "PoolNotFound": "A referenced BackendPool does not exist in the namespace.", "Create the BackendPool, or correct its name.";
    RESOLVED_REFS = "ResolvedRefs": "All referenced pools exist.", "";
    NO_ENDPOINTS = "NoEndpoints": "The pool's selector matches no running Pod.", "Correct the selector, or wait for the Pods; list them with `kubectl get pods -l …`.";
    SCALED_TO_ZERO = "ScaledToZero": "No Pod runs because the pool received no requests. The next request starts one and waits for it.", "";
    NO_READY_ENDPOINTS = "NoReadyEndpoints": "No Pod of the pool is ready.", "Run `ostler explain` for the service to see why.";
    PICKER_CONFIG_NOT_FOUND = "PickerConfigNotFound": "The ConfigMap that the annotation `ostler.io/picker-config` of the pool names does not exist, has no label `ostler.io/picker-config=true`, or may not be listed by the gateway.", "Create the ConfigMap in the namespace of the pool, or label it with `kubectl label configmap NAME ostler.io/picker-config=true`.";
    INVALID_PICKER_CONFIG = "InvalidPickerConfig": "The EndpointPickerConfig of the pool is invalid.", "Correct the field that the message names.";
    ENDPOINTS_READY = "EndpointsReady": "Pods of the pool are ready.", "";
}

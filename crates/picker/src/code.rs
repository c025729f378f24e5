//! Reason codes of the conditions of pools and use cases.

api::codes! {
    ACCEPTED = "Accepted": "The use cases are active.", "";
    MODEL_NAME_CONFLICT = "ModelNameConflict": "An older object declares the same model name; the use cases with this name are inactive.", "Use another modelName, or delete the older object.";
    INVALID_WEIGHTS = "InvalidWeights": "All target weights of a use case are 0.", "Set at least one positive weight.";
    POOL_NOT_FOUND = "PoolNotFound": "A referenced BackendPool does not exist in the namespace.", "Create the BackendPool, or correct its name.";
    RESOLVED_REFS = "ResolvedRefs": "All referenced pools exist.", "";
    NO_ENDPOINTS = "NoEndpoints": "The pool's selector matches no running Pod.", "Correct the selector, or wait for the Pods; list them with `kubectl get pods -l …`.";
    NO_READY_ENDPOINTS = "NoReadyEndpoints": "No Pod of the pool is ready.", "Run `ostler explain` for the service to see why.";
    ENDPOINTS_READY = "EndpointsReady": "Pods of the pool are ready.", "";
}

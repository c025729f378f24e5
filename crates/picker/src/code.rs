//! Codes of the conditions of pools and use cases.

api::codes! {
    ACCEPTED = "Accepted": "The use cases are active.", "";
    MODEL_NAME_CONFLICT = "ModelNameConflict": "An older object answers to a model name of this one; those use cases are inactive.", "Use another modelName, or delete the older object.";
    INVALID_WEIGHTS = "InvalidWeights": "All target weights of a use case are 0.", "Give at least one a positive weight.";
    POOL_NOT_FOUND = "PoolNotFound": "A BackendPool that is named does not exist in the namespace.", "Apply it, or correct its name.";
    RESOLVED_REFS = "ResolvedRefs": "All pools exist.", "";
    NO_ENDPOINTS = "NoEndpoints": "The pool's selector matches no running Pod.", "Correct the selector, or wait for the Pods; `kubectl get pods -l …` shows them.";
    NO_READY_ENDPOINTS = "NoReadyEndpoints": "No Pod of the pool is ready.", "`ostler explain` on the service tells why.";
    ENDPOINTS_READY = "EndpointsReady": "Pods of the pool are ready.", "";
}

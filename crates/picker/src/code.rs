//! Reason codes of the conditions of pools and use cases.

api::codes! {
    ACCEPTED = "Accepted": "The use cases are active, the EndpointPickerConfig selects endpoints, or the gateway serves the object of the Gateway API.", "";
    MODEL_NAME_CONFLICT = "ModelNameConflict": "An older object declares the same model name; the use cases with this name are inactive.", "Use another modelName, or delete the older object.";
    OLDER_USE_CASE = "OlderUseCase": "Requests to `/v1` with the model name go to the pool of an older use case, possibly of another namespace; the message contains the path of the newer one.", "Send requests to the path in the message, or use another modelName.";
    INVALID_WEIGHTS = "InvalidWeights": "All target weights of a use case are 0.", "Set at least one positive weight.";
    TARGET_NOT_LISTED = "TargetNotListed": "No engine of the pools lists a target model of a use case at `/v1/models`. It gets no requests as long as another target is served.", "Load the adapter, or correct targetModelName.";
    POOL_NOT_FOUND = "PoolNotFound": "A referenced BackendPool does not exist in the namespace.", "Create the BackendPool, or correct its name.";
    RESOLVED_REFS = "ResolvedRefs": "All referenced pools exist, and a listener of a Gateway permits only kinds of routes that the gateway serves.", "";
    NO_ENDPOINTS = "NoEndpoints": "The pool's selector matches no running Pod.", "Correct the selector, or wait for the Pods; list them with `kubectl get pods -l …`.";
    SCALED_TO_ZERO = "ScaledToZero": "No Pod runs because the pool received no requests. The next request starts one and waits for it.", "";
    PODS_OF_SEVERAL_POOLS = "PodsOfSeveralPools": "Several pools select the same Pods with the same port. Their requests share the limits of these engines.", "Correct one of the selectors, unless this is intended.";
    NO_READY_ENDPOINTS = "NoReadyEndpoints": "No Pod of the pool is ready.", "Run `ostler explain` for the service to see why.";
    PICKER_CONFIG_NOT_FOUND = "PickerConfigNotFound": "The ConfigMap that the annotation `ostler.io/picker-config` of the pool names does not exist, has no label `ostler.io/picker-config=true`, or may not be listed by the gateway.", "Create the ConfigMap in the namespace of the pool, or label it with `kubectl label configmap NAME ostler.io/picker-config=true`.";
    INVALID_PICKER_CONFIG = "InvalidPickerConfig": "The EndpointPickerConfig of the pool is invalid.", "Correct the field that the message names.";
    ENDPOINTS_READY = "EndpointsReady": "Pods of the pool are ready.", "";
    PROJECTED = "Projected": "An InferencePool of the same name represents the BackendPool, so that HTTPRoutes of other gateways can point at it.", "";
    NO_ENDPOINT_PICKER = "NoEndpointPicker": "No InferencePool represents the BackendPool for other gateways. The native gateway serves the pool.", "If another gateway is to serve the pool, run an endpoint picker and start the gateway with `--endpoint-picker-service`; see docs/endpoint-picker.md.";
    NAME_TAKEN = "NameTaken": "An InferencePool with the name of the BackendPool exists and is not its projection; it was not modified.", "Rename one of them, or delete the InferencePool.";
    INFERENCE_POOL_NOT_SERVED = "InferencePoolNotServed": "The cluster has no InferencePools, or the gateway may not list them. Only the projection is missing.", "Install the definitions of the Gateway API Inference Extension, or grant the gateway `list` and `watch` on inferencepools.";
    PROJECTION_FAILED = "ProjectionFailed": "The API server rejected the InferencePool of a BackendPool.", "Correct what the message names, or grant the gateway `create` and `patch` on inferencepools.";
    NO_MATCHING_PARENT = "NoMatchingParent": "The Gateway of an HTTPRoute has no listener with the `sectionName` and `port` of the parentRef, or the gateway does not serve the protocol of these listeners.", "Correct the parentRef or the listeners.";
    NOT_ALLOWED_BY_LISTENERS = "NotAllowedByListeners": "The listeners of the Gateway permit no HTTPRoutes of this namespace.", "Change `allowedRoutes` of the listener, or move the route.";
    NO_MATCHING_LISTENER_HOSTNAME = "NoMatchingListenerHostname": "`hostnames` of an HTTPRoute and the hostnames of the listeners have no name in common.", "Correct one of them.";
    UNSUPPORTED_VALUE = "UnsupportedValue": "An HTTPRoute contains a field that the gateway does not support. It receives no requests.", "Change the field that the message names.";
    INVALID_KIND = "InvalidKind": "A backendRef of an HTTPRoute names a kind that is no pool. Its requests fail with status 500.", "Use a BackendPool or an InferencePool.";
    REF_NOT_PERMITTED = "RefNotPermitted": "A backendRef of an HTTPRoute names a pool of another namespace, which permits no reference: its requests fail with status 500. Or `poolRef` of use cases names another namespace.", "Create a ReferenceGrant in the namespace of the pool for the HTTPRoute. Create use cases in the namespace of the pool.";
    BACKEND_NOT_FOUND = "BackendNotFound": "A backendRef of an HTTPRoute names a pool that does not exist. Its requests fail with status 500.", "Create the pool, or correct its name.";
    LISTENERS_NOT_VALID = "ListenersNotValid": "A listener of a Gateway is not valid; the others are served.", "Correct the listeners that the message names.";
    INVALID = "Invalid": "A Gateway or its listener is not served because it is not valid.", "See the other conditions.";
    PROGRAMMED = "Programmed": "The gateway serves the Gateway or its listener.", "";
    UNSUPPORTED_PROTOCOL = "UnsupportedProtocol": "The gateway does not serve the protocol of a listener.", "Run `ostler gateway` with `--cert-path` for HTTPS and without for HTTP, or change the protocol.";
    INVALID_ROUTE_KINDS = "InvalidRouteKinds": "`allowedRoutes.kinds` of a listener contains a kind that the gateway does not serve.", "Remove the kind.";
}

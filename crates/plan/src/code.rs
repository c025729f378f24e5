//! Codes of laying out, beside those of decisions ([`decide::code`]).

/// Why a service is not laid out.
pub mod refusal {
    api::codes! {
        INVALID_SERVICE = "InvalidService": "A value of the service cannot be understood; the message names the field.",
            "Correct the field; `ostler lint -f FILE` finds it before applying.";
        INVALID_ANNOTATION = "InvalidAnnotation": "An annotation of the service cannot be understood.", "Correct or remove it.";
        NO_ROUTER_CONTAINER = "NoRouterContainer": "Neither runtime nor service says which image the router runs.",
            "Set router.runner.image, or name a runtime with routerConfig.";
        BACKEND_UNSUPPORTED = "BackendUnsupported": "The engine does not run on the multi-node backend that is asked for.",
            "Remove multinode.backend, or write the one that the message names.";
        INVALID_TEMPLATE = "InvalidTemplate": "A Pod template lacks something or cannot be started on several nodes.",
            "Correct the field that the message names.";
        AFFINITY_TOO_LARGE = "AffinityTooLarge": "The affinities of class, runtime and service have too many combinations.",
            "State fewer alternatives.";
        NO_ROLES = "NoRoles": "spec.roles is empty.", "State at least one role.";
        TOO_MANY_PODS = "TooManyPods": "Replicas and nodes of the roles make more Pods than are laid out for one service.",
            "Split the service.";
        NO_ENGINES = "NoEngines": "The service has a router and no role that runs engines.", "Add a worker, or a prefiller and a decoder.";
        INVALID_ROUTE = "InvalidRoute": "The router's httproute is not the spec of an HTTPRoute; the message names the field.",
            "Correct the field; `ostler lint -f FILE` finds it before applying.";
        TWO_ROUTERS = "TwoRouters": "Two roles are routers, and one service has one.", "Keep one router.";
        DUPLICATE_ROLE = "DuplicateRole": "Two roles have one name.", "Rename one.";
        NAME_CLASH = "NameClash": "Two roles make objects of one name.", "Rename one of the roles; one is the other's with a number at its end.";
        RESERVED_METADATA = "ReservedMetadata": "A Pod template has a label or annotation with a prefix that is ours.", "Use another key.";
        SCHEDULER_CONFLICT = "SchedulerConflict": "A Pod template names another scheduler than the service or its gang asks for.",
            "Remove schedulerName from the template.";
    }
}

/// What was laid out nonetheless, and what its owner should know.
pub mod warning {
    api::codes! {
        TEMPLATE_VALUE_MISSING = "TemplateValueMissing": "A template variable refers to metadata that the service does not have; it is empty.",
            "Set the metadata, or remove the variable.";
        ROUTER_MISSING = "RouterMissing": "Engine and decoder are there and nothing pairs them.",
            "Give the service a router, or name a runtime with routerConfig.";
        PORTS_DIFFER = "PortsDiffer": "Replica sets or roles answer on different ports; requests go to the first one's only.",
            "Let all answer on one port.";
        NODES_NOT_JOINED = "NodesNotJoined": "Nothing in the launch lines of leader and workers tells them of each other.",
            "Give the engine its rank and the leader's address ($(LWS_WORKER_INDEX), $(LWS_LEADER_ADDRESS)), or leave the worker's command and args out.";
        AUTOSCALER_UNAVAILABLE = "AutoscalerUnavailable": "What is asked for needs an autoscaler that is not there; a fixed number of replicas runs.",
            "Fix the number of replicas, or install the autoscaler that the message names.";
        PAIR_INCOMPLETE = "PairIncomplete": "A prefiller has no decoder, or a decoder no prefiller.",
            "Add the other role, or make this one a worker.";
        GANG_ALL_OR_NOTHING = "GangAllOrNothing": "The Volcano of the cluster cannot start a part of the gang: all replicas start together or none.",
            "Install Volcano 1.14 or newer, or ask for gangPolicy All.";
        STRATEGY_NOT_APPLICABLE = "StrategyNotApplicable": "The strategy needs roles that the service does not have; the default is used.",
            "Add the roles that the message names, or state another strategy.";
        ROUTE_WITHOUT_GATEWAY = "RouteWithoutGateway": "The router's httproute names no Gateway, so no request comes by it.",
            "Name one in httproute.parentRefs.";
        FIELD_IGNORED = "FieldIgnored": "A field has no effect on a role of this type.", "Remove it, or put it on the role that the message names.";
    }
}

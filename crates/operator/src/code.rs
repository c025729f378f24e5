//! Codes of the operator's conditions and events that are not reasons of a service's ([`crate::reason::Reason`]).

api::codes! {
    NODES_MATCHED = "NodesMatched": "Nodes belong to the class.", "";
    NO_AVAILABLE_NODES = "NoAvailableNodes": "Every node of the class is unready or cordoned.", "`kubectl get nodes` tells which; uncordon or repair one.";
    AVAILABLE = "Available": "The class has nodes that take Pods.", "";
    KUEUE_MISSING = "KueueMissing": "The class is linked to a ResourceFlavor and Kueue is not installed.", "Install Kueue, or remove integration.kueueResourceFlavor.";
    FLAVOR_SYNCED = "FlavorSynced": "Class and ResourceFlavor select the same nodes.", "";
    FLAVOR_GONE = "FlavorGone": "The ResourceFlavor that the class was made from is gone.", "Delete the class, or make the flavor again.";
    CLASS_EDITED = "ClassEdited": "A person edited a class that was made from a ResourceFlavor; the flavor's changes are not taken over.", "Undo the edit if the flavor is to rule.";
    FLAVOR_NOT_EXPRESSIBLE = "FlavorNotExpressible": "What the class selects its nodes by cannot be said in a ResourceFlavor.", "Use discovery.nodeSelector only, or remove integration.kueueResourceFlavor.";
    FLAVOR_PENDING = "FlavorPending": "The ResourceFlavor is being written.", "";
    FLAVOR_DIFFERS = "FlavorDiffers": "A ResourceFlavor of that name is a person's and selects other nodes; it is not touched.", "Change its nodeLabels, or name another flavor in integration.kueueResourceFlavor.";
    OBJECTS_APPLIED = "ObjectsApplied": "Every object of the service is applied.", "";
    MINIMUM_READY = "MinimumReady": "Every role has a ready replica.", "";
    NO_FAILURE = "NoFailure": "No component has failed.", "";
    FULL_CAPACITY = "FullCapacity": "Every replica of the gang has its nodes.", "";
    PARTIAL_CAPACITY = "PartialCapacity": "At least one replica of every role of the gang has its nodes; the others wait, each as a whole.", "Add nodes, or scale down; what waits starts by itself.";
    BLOCKED = "Blocked": "No replica of some role of the gang can be placed, so nothing of it runs.", "Add nodes with as many accelerators as the message says, or make the replicas smaller.";
    BELOW_MINIMUM = "BelowMinimum": "A role of the gang has no replica with all its nodes any more; what has its nodes goes on.", "Bring the nodes back or add others; the message says how many accelerators are missing.";
    ROLLOUT_PAUSED = "RolloutPaused": "A new revision is being rolled out and was paused.", "`ostler rollout resume KIND/NAME` goes on, `ostler rollout undo KIND/NAME` goes back.";
    STATE_UNREADABLE = "StateUnreadable": "The operator cannot read a kind that the state is read from; counts are the last known.", "Give its account list and watch on that kind; `kubectl auth can-i list KIND --as …` tells.";
    INVALID_DOCUMENT = "InvalidDocument": "A document of the base set of classes cannot be read and is left out.", "Correct the field of the ConfigMap that the message names.";
}

//! Codes of the operator's conditions and events that are not a [`crate::ConditionReason`].

api::codes! {
    NODES_MATCHED = "NodesMatched": "Nodes match the class.", "";
    NO_AVAILABLE_NODES = "NoAvailableNodes": "All nodes of the class are cordoned or not ready.", "Run `kubectl get nodes` to find them; uncordon or repair a node.";
    AVAILABLE = "Available": "The class has nodes that can schedule Pods.", "";
    KUEUE_MISSING = "KueueMissing": "The class references a ResourceFlavor but Kueue is not installed.", "Install Kueue, or remove integration.kueueResourceFlavor.";
    FLAVOR_SYNCED = "FlavorSynced": "The class and the ResourceFlavor select the same nodes.", "";
    FLAVOR_GONE = "FlavorGone": "The ResourceFlavor that the class was created from no longer exists.", "Delete the class, or recreate the ResourceFlavor.";
    CLASS_EDITED = "ClassEdited": "A user edited a class that was created from a ResourceFlavor; changes to the ResourceFlavor are no longer applied.", "Revert the edit to resume synchronization with the ResourceFlavor.";
    FLAVOR_NOT_EXPRESSIBLE = "FlavorNotExpressible": "A ResourceFlavor cannot express the node selection of the class.", "Use only discovery.nodeSelector, or remove integration.kueueResourceFlavor.";
    FLAVOR_PENDING = "FlavorPending": "The ResourceFlavor is being created or updated.", "";
    FLAVOR_DIFFERS = "FlavorDiffers": "A ResourceFlavor with this name is managed by a user and selects other nodes; it was not modified.", "Change its nodeLabels, or set another name in integration.kueueResourceFlavor.";
    OBJECTS_APPLIED = "ObjectsApplied": "All objects of the service are applied.", "";
    MINIMUM_READY = "MinimumReady": "Every role has at least one ready replica.", "";
    NO_FAILURE = "NoFailure": "No component has failed.", "";
    FULL_CAPACITY = "FullCapacity": "All replicas of the gang are scheduled.", "";
    PARTIAL_CAPACITY = "PartialCapacity": "At least one replica of each role of the gang is scheduled; the other replicas wait until all their Pods fit.", "Add nodes, or scale down; waiting replicas start automatically.";
    BLOCKED = "Blocked": "A role of the gang has no replica that can be scheduled, so none of its Pods run.", "Add nodes with as many accelerators as the message states, or make the replicas smaller.";
    BELOW_MINIMUM = "BelowMinimum": "A role of the gang no longer has a fully scheduled replica; scheduled Pods keep running.", "Restore the nodes or add others; the message states how many accelerators are missing.";
    ROLLOUT_PAUSED = "RolloutPaused": "The rollout of a new revision is paused.", "Run `ostler rollout resume KIND/NAME` to resume it, or `ostler rollout undo KIND/NAME` to roll back.";
    STATE_UNREADABLE = "StateUnreadable": "The operator cannot list a resource that the status is computed from; counts are the last observed ones.", "Grant its ServiceAccount list and watch on that resource; check with `kubectl auth can-i list RESOURCE --as …`.";
    INVALID_DOCUMENT = "InvalidDocument": "A document of the base set of accelerator classes is invalid and is ignored.", "Correct the field of the ConfigMap that the message names.";
}

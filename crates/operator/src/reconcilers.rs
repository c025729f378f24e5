//! Dispatches work items to the reconcilers.

use cluster::Error;
use jiff::Timestamp;

use crate::base_set::BaseSetReconciler;
use crate::context::Context;
use crate::in_flight::{ReconcileResult, catch_panic};
use crate::invalid_object_events::InvalidObjectReconciler;
use crate::work_item::WorkItem;
use crate::{class_discovery, class_status, resource_flavors, service_reconciler};

/// All reconcilers, with their context.
pub(crate) struct Reconcilers {
    /// What every reconciler needs.
    pub(crate) context: Context,
    base_set: BaseSetReconciler,
    invalid_objects: InvalidObjectReconciler,
}

// === impl Reconcilers ===

impl Reconcilers {
    /// Returns the reconcilers.
    pub(crate) fn new(context: Context) -> Reconcilers {
        Reconcilers {
            context,
            base_set: BaseSetReconciler::default(),
            invalid_objects: InvalidObjectReconciler::default(),
        }
    }

    /// Reconciles one item, observed by [`Health`](crate::Health).
    pub(crate) async fn reconcile(&self, item: WorkItem) -> ReconcileResult {
        let reconcile = catch_panic(self.reconcile_item(&item));
        let result = self.context.health.observe_reconcile(&item, reconcile).await;
        (item, result)
    }

    async fn reconcile_item(&self, item: &WorkItem) -> Result<Option<Timestamp>, Error> {
        let (context, no_requeue) = (&self.context, |()| None);
        match item {
            WorkItem::Class(name) => class_status::reconcile_class(context, name).await.map(no_requeue),
            WorkItem::ClassDiscovery => class_discovery::reconcile_discovery(context).await.map(no_requeue),
            WorkItem::BaseSet => self.base_set.reconcile(context).await.map(no_requeue),
            WorkItem::ResourceFlavors => resource_flavors::reconcile_flavors(context).await.map(no_requeue),
            WorkItem::InvalidObjects => self.invalid_objects.reconcile(context).await.map(no_requeue),
            WorkItem::Service(kind, key) => service_reconciler::reconcile_service(context, *kind, key).await,
            WorkItem::InternalError(kind, key) => {
                let errors = &context.state.internal_errors;
                errors.publish(*kind, key, &context.stores, &context.event_publisher).await.map(no_requeue)
            }
        }
    }
}

//! What is on offer, read from the stores once per change of it and shared by every reconcile.

use std::sync::{Arc, MutexGuard, PoisonError};

use api::manifest::Document;
use cluster::conditions::Transition;
use cluster::neighbours::served;
use cluster::object::meta;
use cluster::{Error, Key, Kind};
use decide::reason::Warning;
use plan::topology::Autoscalers;
use plan::{ServicePlan, Snapshot};
use serde_json::Value;

use crate::kinds::{BUILTIN, CLASS, CLUSTER_MODEL, CLUSTER_RUNTIME, MODEL, NODE, POD, RUNTIME, SCALED_OBJECT};
use crate::reason::Reason;
use crate::{Operator, pod_groups};

/// Kinds by definition that decisions depend on.
pub(crate) const OFFERED: [Kind; 5] = [CLUSTER_RUNTIME, RUNTIME, CLUSTER_MODEL, MODEL, CLASS];

/// Everything that services choose from.
#[derive(Clone, Default)]
pub(crate) struct Offer {
    pub(crate) snapshot: Snapshot,
    /// One broken runtime must not stop the services of others.
    pub(crate) left_out: Vec<LeftOut>,
}

/// The offer as it was last read. Runtimes, models and classes are read anew when one of them changes; nodes and Pods
/// are only looked up.
#[derive(Default)]
pub(crate) struct LastOffer {
    offer: Option<Arc<Offer>>,
    /// Whether the offer holds the inventory of this moment.
    counted: bool,
    /// Moves with every change: what was decided at one epoch holds while it lasts.
    epoch: u64,
}

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) problem: String,
}

// === impl LeftOut ===

impl LeftOut {
    /// `Kind namespace/name cannot be read: …`
    pub(crate) fn sentence(&self) -> String {
        let Key { namespace, name } = &self.key;
        let place = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        format!("{} {place} cannot be read and is left out: {}", self.kind.kind, self.problem)
    }

    fn visible(&self, service: &Value) -> bool {
        !self.kind.namespaced || self.key.namespace == meta(service, "namespace")
    }

    fn is(&self, kinds: [Kind; 2], name: &Value) -> bool {
        kinds.contains(&self.kind) && *name == *self.key.name
    }
}

// === impl Offer ===

impl Offer {
    /// Puts what was left out into the plan of a service that it concerns: as the reason where the service names it, as
    /// a warning where it might have been chosen.
    pub(crate) fn account(&self, service: &Value, plan: &mut ServicePlan) {
        for left_out in self.left_out.iter().filter(|left_out| left_out.visible(service)) {
            let spec = &service["spec"];
            let (missing, reason) = match left_out.kind {
                _ if left_out.is([RUNTIME, CLUSTER_RUNTIME], &spec["runtime"]["name"]) => {
                    ("RuntimeNotFound", Reason::RuntimeUnreadable)
                }
                _ if left_out.is([MODEL, CLUSTER_MODEL], &spec["model"]["name"]) => {
                    ("ModelNotFound", Reason::ModelUnreadable)
                }
                MODEL | CLUSTER_MODEL => continue,
                _ => ("", Reason::LeftOut),
            };
            if plan.reason == missing {
                plan.reason = reason.as_str().to_owned();
                plan.message = left_out.sentence();
            }
            warn(&mut plan.warnings, left_out);
        }
    }
}

fn warn(warnings: &mut Vec<Warning>, left_out: &LeftOut) {
    let code = match left_out.kind {
        RUNTIME | CLUSTER_RUNTIME => decide::code::warning::INVALID_RUNTIME,
        MODEL | CLUSTER_MODEL => decide::code::warning::INVALID_MODEL,
        _ => decide::code::warning::INVALID_CLASS,
    };
    let name = format!(" {} ", left_out.key.name);
    let told = |warning: &Warning| warning.code == code.as_str() && warning.message.contains(&name);
    if !warnings.iter().any(told) {
        warnings.push(Warning::new(code, left_out.sentence()));
    }
}

impl Operator {
    /// What is on offer now, and the epoch that it belongs to.
    pub(crate) fn offer(&self) -> (Arc<Offer>, u64) {
        let mut last = self.last_offer();
        let offer = match last.offer.take() {
            Some(offer) if last.counted => offer,
            Some(mut offer) => {
                Arc::make_mut(&mut offer).snapshot.inventory = self.accounts.index();
                offer
            }
            None => Arc::new(self.read_offer()),
        };
        last.counted = true;
        (Arc::clone(last.offer.insert(offer)), last.epoch)
    }

    /// A runtime, model or class has changed.
    pub(crate) fn forget_offer(&self) {
        let mut last = self.last_offer();
        last.offer = None;
        last.epoch += 1;
    }

    /// A node or Pod is about to change: the inventory is let go, so that it is changed in place and not copied.
    pub(crate) fn release_inventory(&self) {
        let mut last = self.last_offer();
        last.epoch += 1;
        if std::mem::take(&mut last.counted)
            && let Some(offer) = &mut last.offer
        {
            Arc::make_mut(offer).snapshot.inventory = Arc::default();
        }
    }

    fn last_offer(&self) -> MutexGuard<'_, LastOffer> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_offer(&self) -> Offer {
        let snapshot = Snapshot {
            inventory: self.accounts.index(),
            accelerator_aware: self.accelerator_aware,
            autoscalers: if served(&self.stores, SCALED_OBJECT) { Autoscalers::Keda } else { Autoscalers::Resources },
            pod_groups: pod_groups::schema(&self.stores),
            ..Snapshot::default()
        };
        let mut offer = Offer { snapshot, left_out: Vec::new() };
        for kind in OFFERED {
            for object in self.stores.list(kind) {
                if let Err(problem) = take(&mut offer.snapshot, &document(kind, &object)) {
                    offer.left_out.push(LeftOut { kind, key: Key::of(&object), problem });
                }
            }
        }
        offer
    }

    /// Kinds that decisions depend on and that the API server has not let us read: nothing may be decided without them.
    pub(crate) fn not_read(&self) -> Vec<String> {
        let builtin = BUILTIN.iter().filter(|kind| [NODE, POD].contains(kind)).copied();
        let defined = OFFERED.into_iter().filter(|kind| served(&self.stores, *kind));
        // The inventory may still be taking in what the stores hold already.
        let counted = |kind: Kind| {
            !self.accelerator_aware || ![NODE, POD, CLASS].contains(&kind) || self.accounts.complete(&[kind])
        };
        let unread = builtin.chain(defined).filter(|kind| !(self.stores.synced(*kind) && counted(*kind)));
        unread.map(|kind| kind.resource()).collect()
    }

    /// Tells about every object that has become unreadable or readable, on the object itself.
    pub(crate) async fn tell_left_out(&self) -> Result<(), Error> {
        let now: Vec<LeftOut> = self.offer().0.left_out.clone();
        let before = std::mem::replace(&mut *self.left_out.lock().unwrap_or_else(PoisonError::into_inner), now.clone());
        let mended = before.iter().filter(|old| now.iter().all(|new| (new.kind, &new.key) != (old.kind, &old.key)));
        let told = now.iter().filter(|new| !before.contains(new)).map(|one| (one, Reason::LeftOut, one.sentence()));
        let again = mended.map(|one| (one, Reason::Readable, "takes part in choices again".to_owned()));
        for (one, reason, message) in told.chain(again) {
            // Classes carry it as their condition.
            let Some(object) = self.stores.get(one.kind, &one.key).filter(|_| one.kind != CLASS) else { continue };
            let warning = reason.tone() == cluster::Tone::Problem;
            let transition = Transition { warning, reason: reason.as_str().to_owned(), message };
            self.events.publish_once(&object, "Read", &transition).await?;
        }
        Ok(())
    }
}

/// Adds one object, or says what is wrong with it: its types, or what they are to mean.
fn take(snapshot: &mut Snapshot, document: &Document) -> Result<(), String> {
    let problem = |error: api::manifest::ManifestError| match &error.path {
        Some(path) => format!("{path}: {}", error.cause),
        None => error.cause.clone(),
    };
    snapshot.add_supply(document).map_err(problem)?;
    let written = |name: &str| document.name() == name;
    let newest = snapshot.runtimes.iter().rev().find(|runtime| written(&runtime.name));
    match newest.filter(|_| document.kind().ends_with("ServingRuntime")) {
        Some(runtime) => runtime.facts().map(drop).map_err(ToString::to_string),
        None => Ok(()),
    }
}

pub(crate) fn document(kind: Kind, object: &Value) -> Document {
    Document { source: kind.resource(), index: 1, value: object.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn offer(kind: Kind, namespace: &str, name: &str) -> Offer {
        let left_out = LeftOut { kind, key: Key::new(namespace, name), problem: "spec.x: not a number".to_owned() };
        Offer { left_out: vec![left_out], ..Offer::default() }
    }

    fn accounted(offer: &Offer, reason: &str) -> (String, Vec<String>) {
        let service = json!({"metadata": {"namespace": "n", "name": "s"}, "spec": {"model": {"name": "m"}, "runtime": {"name": "r"}}});
        let mut plan = ServicePlan { reason: reason.to_owned(), ..ServicePlan::default() };
        offer.account(&service, &mut plan);
        let codes = plan.warnings.into_iter().map(|one| one.code).collect();
        (plan.reason, codes)
    }

    #[test]
    fn what_is_named_is_the_reason_and_what_is_offered_a_warning() {
        let told = |offer: &Offer, reason| accounted(offer, reason);
        let one = |reason: &str, code: &str| (reason.to_owned(), vec![code.to_owned()]);
        assert_eq!(
            told(&offer(CLUSTER_RUNTIME, "", "r"), "RuntimeNotFound"),
            one("RuntimeUnreadable", "InvalidRuntime")
        );
        assert_eq!(told(&offer(CLUSTER_RUNTIME, "", "other"), "Selected"), one("Selected", "InvalidRuntime"));
        assert_eq!(told(&offer(MODEL, "n", "m"), "ModelNotFound"), one("ModelUnreadable", "InvalidModel"));
        assert_eq!(told(&offer(MODEL, "n", "other"), "Selected"), ("Selected".to_owned(), vec![]));
        assert_eq!(told(&offer(RUNTIME, "elsewhere", "r"), "RuntimeNotFound"), ("RuntimeNotFound".to_owned(), vec![]));
    }
}

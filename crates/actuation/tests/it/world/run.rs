//! Lets the controller and the kubelet act.

use std::collections::BTreeMap;

use actuation::{Decision, Write, WriteError};
use apimachinery::object;

use super::{MAX_STEPS, MAX_WAITS, STEP, World, bound_key};
use crate::invariants;
use crate::models::EngineActivity;

impl World {
    /// Creates a requester, and deletes it once its engine serves. Returns the name of the provider, which then sleeps.
    pub(crate) fn create_sleeper(&mut self, requester: &str, accelerators: &str, model: &str) -> String {
        self.create(requester, accelerators, model);
        self.run();
        let provider = self.provider_of(requester).unwrap();
        self.delete(requester);
        self.run();
        provider
    }

    /// Runs until nothing changes any longer.
    pub(crate) fn run(&mut self) {
        let (mut waits, mut steps) = (0, 0);
        loop {
            if self.act() || self.tick() {
                steps += 1;
                assert!(steps < MAX_STEPS, "the controller does not come to rest: {:?}", self.journal);
                continue;
            }
            let due = self.coordinator.next_due().filter(|_| self.is_running && waits < MAX_WAITS);
            let Some(due) = due else { return };
            waits += 1;
            self.advance(due.saturating_duration_since(self.monotonic));
        }
    }

    /// Lets the controller act until it waits, without the kubelet.
    pub(crate) fn run_controller(&mut self) {
        while self.act() {}
    }

    /// Lets the kubelet act until it waits, without the controller.
    pub(crate) fn run_kubelet(&mut self) {
        while self.tick() {}
    }

    /// Returns the next decision, which is not carried out.
    pub(crate) fn decide(&mut self) -> Option<Decision> {
        self.sync();
        self.coordinator.next(self.time())
    }

    /// Carries out a write whose result the controller does not get.
    pub(crate) fn write_late(&mut self, write: &Write) -> Result<(), WriteError> {
        self.write(write, &BTreeMap::new())
    }

    /// Runs without the invariants, which an edit of a user has broken.
    pub(crate) fn run_unchecked(&mut self) {
        self.checks_invariants = false;
        self.run();
        self.checks_invariants = true;
        invariants::check(&self.pods(), &self.engines);
    }

    /// Carries out one decision; returns false if there is none.
    fn act(&mut self) -> bool {
        self.is_running &= self.actions_left > 0;
        if !self.is_running {
            return false;
        }
        self.sync();
        let Some(decision) = self.coordinator.next(self.time()) else { return false };
        self.actions_left -= 1;
        self.execute(&decision);
        self.advance(STEP);
        if self.checks_invariants {
            invariants::check(&self.pods(), &self.engines);
            self.check_clients();
        }
        true
    }

    /// Clients send requests to an engine until endpoint pickers have observed that pools do not select it any longer: it must not
    /// sleep before.
    fn check_clients(&mut self) {
        let selected = self.providers().into_iter().filter(|pod| object::label(pod, "model").is_some());
        self.selected.extend(selected.map(|pod| (bound_key(&pod), self.monotonic)));
        for (key, at) in &self.selected {
            let is_asleep = self.engines.get(key).is_some_and(|engine| engine.activity == EngineActivity::Asleep);
            let may_receive_requests = self.monotonic < *at + self.settings.settle;
            assert!(
                !(is_asleep && may_receive_requests),
                "a client sends a request to {key}, which sleeps: {:?}",
                self.journal
            );
        }
    }
}

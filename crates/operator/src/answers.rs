//! Answers to questions already asked: a service whose Pods stir is looked after without being decided again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::Key;
use cluster::conditions::find;
use plan::Claim;
use serde_json::Value;

use crate::choice::{Choice, runs};
use crate::wake::written;

/// The last choice for each service.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    last: Mutex<BTreeMap<Key, (Question, Arc<Choice>)>>,
}

/// Everything that a choice depends on.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) service: Arc<Value>,
    /// Of what is on offer.
    pub(crate) epoch: u64,
    /// Of the other services.
    pub(crate) claims: Vec<Claim>,
}

// === impl Answers ===

impl Answers {
    /// The answer that was given to the same question, if it was the last one.
    pub(crate) fn find(&self, key: &Key, question: &Question) -> Option<Arc<Choice>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (asked, answer) = last.get(key)?;
        asked.same(question).then(|| Arc::clone(answer))
    }

    pub(crate) fn keep(&self, key: &Key, question: Question, answer: &Arc<Choice>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(key.clone(), (question, Arc::clone(answer)));
    }

    /// The service is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

// === impl Question ===

impl Question {
    fn same(&self, other: &Question) -> bool {
        self.epoch == other.epoch && self.claims == other.claims && same_service(&self.service, &other.service)
    }
}

/// Whether two states of a service ask the same: all that a person writes, and of its status what keeps a choice.
fn same_service(one: &Arc<Value>, other: &Arc<Value>) -> bool {
    let ready = |service: &Value| find(&service["status"]["conditions"], "Ready").map(|ready| ready["status"].clone());
    let record = |service: &Value| ["decision", "observedGeneration"].map(|field| service["status"][field].clone());
    let generation = |service: &Value| service["metadata"]["generation"].clone();
    Arc::ptr_eq(one, other)
        || (runs(one) == runs(other)
            && ready(one) == ready(other)
            && generation(one) == generation(other)
            && record(one) == record(other)
            && written(one) == written(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn question(epoch: u64, service: Value) -> Question {
        Question { service: Arc::new(service), epoch, claims: Vec::new() }
    }

    fn service(replicas: i64, ready: &str, message: &str, image: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": "s", "resourceVersion": message}, "spec": {"image": image},
            "status": {"components": {"engine": {"readyReplicas": replicas}},
                "conditions": [{"type": "Ready", "status": ready, "message": message}]}})
    }

    #[rstest]
    #[case::only_words_differ(1, service(1, "True", "later", "a"), true)]
    #[case::more_replicas(1, service(2, "True", "", "a"), true)]
    #[case::another_offer(2, service(1, "True", "", "a"), false)]
    #[case::nothing_runs_any_more(1, service(0, "True", "", "a"), false)]
    #[case::not_ready_any_more(1, service(1, "False", "", "a"), false)]
    #[case::edited(1, service(1, "True", "", "b"), false)]
    fn an_answer_holds_for_the_same_question(#[case] epoch: u64, #[case] later: Value, #[case] holds: bool) {
        let (answers, key) = (Answers::default(), Key::new("n", "s"));
        let answer = Arc::new(Choice { plan: plan::ServicePlan::default(), better: None });
        answers.keep(&key, question(1, service(1, "True", "", "a")), &answer);
        assert_eq!(answers.find(&key, &question(epoch, later)).is_some(), holds);
        answers.forget(&key);
        assert!(answers.last.lock().unwrap().is_empty());
    }
}

//! Answers to questions already asked: a service whose Pods stir is looked after without being decided again.
//!
//! Only the latest are kept. What stirs stirs several times in a row; an answer of long ago has been outdated by what
//! others took meanwhile, and a plan with its objects takes as much room as its service.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::Key;
use cluster::conditions::find;
use cluster::object::generation;
use serde_json::Value;

use crate::choice::{Choice, runs};
use crate::wake::written;

/// Services whose answers are kept.
const MOST: usize = 64;

/// The last choice for each of the services that were decided lately.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The latest at the end.
    last: Mutex<VecDeque<Answer>>,
}

#[derive(Debug)]
struct Answer {
    key: Key,
    question: Question,
    choice: Arc<Choice>,
}

/// Everything that a choice depends on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// All that a person writes of the service, and of its status what keeps a choice, as text: a tree takes several times
    /// the room.
    service: Box<str>,
    /// Of what is on offer.
    epoch: u64,
    /// Moves with the claims of other services.
    claims: u64,
}

// === impl Answers ===

impl Answers {
    /// The answer that was given to the same question, if it was the last one.
    pub(crate) fn find(&self, key: &Key, question: &Question) -> Option<Arc<Choice>> {
        let last = self.lock();
        let answer = last.iter().find(|answer| answer.key == *key && answer.question == *question)?;
        Some(Arc::clone(&answer.choice))
    }

    pub(crate) fn keep(&self, key: &Key, question: Question, choice: &Arc<Choice>) {
        let mut last = self.lock();
        last.retain(|answer| answer.key != *key);
        if last.len() >= MOST {
            last.pop_front();
        }
        last.push_back(Answer { key: key.clone(), question, choice: Arc::clone(choice) });
    }

    /// The service is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().retain(|answer| answer.key != *key);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Answer>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Question ===

impl Question {
    pub(crate) fn new(service: &Value, epoch: u64, claims: u64) -> Question {
        let status = &service["status"];
        let ready = find(&status["conditions"], "Ready").map(|ready| &ready["status"]);
        let kept = (written(service), generation(service), runs(service), ready);
        let record = (&status["decision"], &status["observedGeneration"]);
        let text = serde_json::to_string(&(kept, record)).unwrap_or_default();
        Question { service: text.into_boxed_str(), epoch, claims }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn question(epoch: u64, service: Value) -> Question {
        Question::new(&service, epoch, 1)
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
        assert_eq!(answers.find(&key, &question(epoch, later)), holds.then_some(answer));
        answers.forget(&key);
        assert!(answers.last.lock().unwrap().is_empty());
    }

    #[test]
    fn only_the_latest_are_kept() {
        let answers = Answers::default();
        let answer = Arc::new(Choice { plan: plan::ServicePlan::default(), better: None });
        let ask = || question(1, service(1, "True", "", "a"));
        for number in 0..=MOST {
            answers.keep(&Key::new("n", &number.to_string()), ask(), &answer);
            answers.keep(&Key::new("n", "1"), ask(), &answer);
        }
        let kept = |name: &str| answers.find(&Key::new("n", name), &ask()).is_some();
        assert_eq!((kept("0"), kept("1"), kept(&MOST.to_string())), (false, true, true));
        assert_eq!(answers.last.lock().unwrap().len(), MOST);
    }
}

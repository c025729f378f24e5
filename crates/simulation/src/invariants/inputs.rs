//! The operator writes only the status of services and of what they select from.

use embedded::Change;

use super::foreign_objects::check_unchanged;
use crate::invariant::Invariant;
use crate::world::{World, input_fields};

/// Services, runtimes, models and classes stay as people wrote them.
pub(crate) struct Inputs;

// === impl Invariant for Inputs ===

impl Invariant for Inputs {
    fn name(&self) -> &'static str {
        "no input is changed"
    }

    fn after_change(&mut self, world: &World, change: &Change) -> Result<(), String> {
        check_unchanged(world, change, world.inputs(), input_fields)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::initial_objects::{MODELS, RUNTIMES, initial_server};
    use crate::seed::Seed;

    /// Edits the runtime as someone other than a person.
    #[rstest]
    #[case::status(|object: &mut Value| object["status"] = json!({"ready": true}), true)]
    #[case::spec(|object: &mut Value| object["spec"]["disabled"] = json!(true), false)]
    #[case::label(|object: &mut Value| object["metadata"]["labels"] = json!({"a": "b"}), false)]
    #[case::annotation(|object: &mut Value| object["metadata"]["annotations"] = json!({"a": "b"}), false)]
    #[tokio::test(start_paused = true)]
    async fn only_the_status_may_change(#[case] edit: fn(&mut Value), #[case] is_accepted: bool) {
        let world = World::start(initial_server().unwrap(), Seed(0), None);
        let old = world.server().get(RUNTIMES, "", "any").unwrap();
        let mut edited = Value::clone(&old);
        edit(&mut edited);
        world.server().update(RUNTIMES, edited).unwrap();
        let new = world.server().get(RUNTIMES, "", "any");
        let change = Change {
            resource: RUNTIMES.to_owned(),
            namespace: String::new(),
            name: "any".to_owned(),
            old: Some(old),
            new,
        };
        assert_eq!(Inputs.after_change(&world, &change).is_ok(), is_accepted);
        assert!(world.inputs().keys().any(|(resource, _, _)| resource == MODELS));
    }
}

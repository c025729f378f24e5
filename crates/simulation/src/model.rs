//! Who acts on the cluster beside the operator.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::world::World;

/// An actor: people, nodes, the network, or the machine that a process runs on.
///
/// A model draws actions and carries them out. Actions are data, so that a schedule records what a run did, and repeats it
/// with other injections removed or with a later version of the model.
pub trait Model {
    /// What the model does.
    type Action: Serialize + DeserializeOwned;

    /// Returns the name of the model in journals and schedules.
    fn name(&self) -> &'static str;

    /// Draws what to do next in this cluster, or nothing, from `random` only.
    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> Vec<Self::Action>;

    /// Carries out an action and returns what it did, or `None` if the object that it acts on does not exist or the API
    /// server rejected the request.
    fn act(&mut self, world: &mut World, action: Self::Action) -> Option<String>;

    /// Restores what the model needs for the desired state once no model acts any more, such as a connection.
    fn settle(&mut self, _world: &mut World) {}
}

/// A model of any type, whose actions are JSON values.
pub struct AnyModel(Box<dyn ErasedModel>);

trait ErasedModel {
    fn name(&self) -> &'static str;
    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> serde_json::Result<Vec<Value>>;
    fn check(&self, action: &Value) -> serde_json::Result<()>;
    fn act(&mut self, world: &mut World, action: &Value) -> serde_json::Result<Option<String>>;
    fn settle(&mut self, world: &mut World);
}

// === impl AnyModel ===

impl AnyModel {
    /// Returns the model without its type.
    pub fn new(model: impl Model + 'static) -> Self {
        Self(Box::new(model))
    }

    /// Returns the name of the model in journals and schedules.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    pub(crate) fn draw(&self, world: &World, random: &mut fastrand::Rng) -> serde_json::Result<Vec<Value>> {
        self.0.draw(world, random)
    }

    /// Checks that an action is one of the model.
    pub(crate) fn check(&self, action: &Value) -> serde_json::Result<()> {
        self.0.check(action)
    }

    pub(crate) fn act(&mut self, world: &mut World, action: &Value) -> serde_json::Result<Option<String>> {
        self.0.act(world, action)
    }

    pub(crate) fn settle(&mut self, world: &mut World) {
        self.0.settle(world);
    }
}

// === impl ErasedModel for M ===

impl<M: Model> ErasedModel for M {
    fn name(&self) -> &'static str {
        Model::name(self)
    }

    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> serde_json::Result<Vec<Value>> {
        Model::draw(self, world, random).into_iter().map(serde_json::to_value).collect()
    }

    fn check(&self, action: &Value) -> serde_json::Result<()> {
        serde_json::from_value::<M::Action>(action.clone()).map(drop)
    }

    fn act(&mut self, world: &mut World, action: &Value) -> serde_json::Result<Option<String>> {
        Ok(Model::act(self, world, serde_json::from_value(action.clone())?))
    }

    fn settle(&mut self, world: &mut World) {
        Model::settle(self, world);
    }
}

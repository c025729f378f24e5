//! Who acts on the cluster beside the operator.

use crate::world::World;

/// An actor: people, nodes, the network, or the machine that a process runs on.
pub trait Model {
    /// Returns the name of the model in the journal.
    fn name(&self) -> &'static str;

    /// Acts once and returns what it did, or `None` if there is nothing to act on. It draws from `random` only: an
    /// injection that [`crate::shrink`] retains must not depend on those that it removes.
    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String>;

    /// Restores what the model needs for the desired state once no model acts any more, such as a connection.
    fn settle(&mut self, _world: &mut World) {}
}

//! Why the controller deletes Pods and engines.

use crate::problem::Problem;

/// Why a Pod is deleted, or an engine of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletePurpose {
    /// The requester's provider was deleted by another client.
    ProviderLost,
    /// The requester's engine ended.
    EngineDied,
    /// The node was cordoned before the provider was scheduled.
    NodeCordoned,
    /// The engine is broken, was never ready or does not support sleep mode, and its requester ends.
    NotReusable,
    /// The engine could not be put to sleep or queried repeatedly.
    NotSleeping,
    /// The engine could not be woken, or is not the same after waking.
    NotWaking(Problem),
    /// An unbound provider whose engine failed, restarted or was never ready.
    NotAsleep,
    /// The least recently used engine is deleted to free space for another one.
    Victim,
    /// The engine has been asleep for longer than the time to live.
    Expired,
    /// An unbound provider has the name of the provider to create.
    NameReused,
    /// A launcher that is not bound ended or does not respond.
    LauncherFailed,
}

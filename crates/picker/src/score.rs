//! Which endpoint is best: one file per signal, all of them on one scale.

pub mod kv_cache;
pub mod load;
pub mod lora;
pub mod prefix;
pub mod queue;

use crate::{member::Member, policy::Ask, score::prefix::Owners};

/// A signal. Each gives every candidate 0 (worst) to 1 (best).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scorer {
    /// Few requests wait.
    Queue,
    /// Much of the KV cache is free.
    KvCache,
    /// The adapter is loaded, or can be.
    Lora,
    /// Few requests of ours are under way.
    InFlight,
    /// The prompt's beginning was seen; which of the policy's prefix memories is asked.
    Prefix(usize),
}

impl Scorer {
    /// Scores in the order of `members`.
    pub fn scores(self, ask: &Ask<'_>, members: &[&Member], owners: &[Owners]) -> Vec<f64> {
        match self {
            Scorer::Queue => queue::scores(members),
            Scorer::KvCache => members.iter().map(|member| kv_cache::score(member)).collect(),
            Scorer::Lora => members.iter().map(|member| lora::score(ask.model, member)).collect(),
            Scorer::InFlight => lower_is_better(members.iter().map(|member| member.endpoint.load.requests() as f64)),
            Scorer::Prefix(memory) => {
                let (chain, owners) = (ask.chains.get(memory), owners.get(memory));
                let share = |member: &&Member| chain.zip(owners).map(|(chain, owners)| owners.share(chain, member));
                members.iter().map(|member| share(member).unwrap_or(0.0)).collect()
            }
        }
    }
}

/// 1 for the lowest, 0 for the highest, in between in proportion; 1 for all where all are equal.
fn lower_is_better(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
    let span = high - low;
    values.iter().map(|value| if span > 0.0 { (high - value) / span } else { 1.0 }).collect()
}

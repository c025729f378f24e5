//! Which endpoint is best: one file per signal, all of them on one scale.

pub mod kv_cache;
pub mod load;
pub mod lora;
pub mod no_hit;
pub mod prefix;
pub mod queue;
pub mod requests;

use std::net::SocketAddr;

use crate::{
    member::Member,
    policy::Ask,
    score::{no_hit::Cold, prefix::Owners},
};

/// A signal. Each gives every candidate 0 (worst) to 1 (best).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scorer {
    /// Few requests wait.
    Queue,
    /// Few requests wait, against a number that is many rather than against each other.
    QueueBelow { threshold: f64 },
    /// Few requests are worked on.
    Running,
    /// Much of the KV cache is free.
    KvCache,
    /// The adapter is loaded, or can be.
    Lora,
    /// Few requests of ours are under way: 1 up to `idle` of them, at most `busiest` above.
    InFlight { idle: usize, busiest: f64 },
    /// Few tokens of ours are under way, against a number that is many.
    Tokens { threshold: f64 },
    /// The prompt's beginning was seen; which of the policy's prefix memories is asked.
    Prefix(usize),
    /// A prompt that no endpoint has seen goes where the last such prompt is longest ago.
    NoHit,
}

/// What scorers remember of the requests before.
#[derive(Debug, Default)]
pub struct Memory {
    /// One per prefix memory of the policy.
    pub owners: Vec<Owners>,
    pub cold: Cold,
}

impl Scorer {
    /// Scores in the order of `members`.
    pub fn scores(self, ask: &Ask<'_>, members: &[&Member], memory: &Memory) -> Vec<f64> {
        let each = |score: &dyn Fn(&Member) -> f64| members.iter().map(|member| score(member)).collect();
        match self {
            Scorer::Queue => queue::scores(members),
            Scorer::QueueBelow { threshold } => each(&|member| queue::below(member, threshold)),
            Scorer::Running => requests::running(members),
            Scorer::KvCache => each(&kv_cache::score),
            Scorer::Lora => each(&|member| lora::score(ask.model, member)),
            Scorer::InFlight { idle, busiest } => requests::in_flight(members, idle, busiest),
            Scorer::Tokens { threshold } => each(&|member| requests::tokens(member, threshold)),
            Scorer::Prefix(at) => {
                let (chain, owners) = (ask.chains.get(at), memory.owners.get(at));
                let share = |member: &Member| chain.zip(owners).map(|(chain, owners)| owners.share(chain, member));
                each(&|member| share(member).unwrap_or(0.0))
            }
            Scorer::NoHit if memory.hit(ask, members) => vec![no_hit::NEUTRAL; members.len()],
            Scorer::NoHit => memory.cold.scores(members),
        }
    }
}

impl Memory {
    /// Forgets endpoints that are gone: another Pod may come at the same address.
    pub fn retain(&mut self, stays: impl Fn(SocketAddr) -> bool) {
        self.owners.iter_mut().for_each(|owners| owners.retain(&stays));
        self.cold.retain(stays);
    }

    /// Whether any of `members` has computed a beginning of the prompt.
    pub fn hit(&self, ask: &Ask<'_>, members: &[&Member]) -> bool {
        let known = |owners: &Owners, chain: &[u64]| {
            members.iter().any(|member| owners.matched(chain, member.endpoint.address) > 0)
        };
        self.owners.iter().zip(ask.chains).any(|(owners, chain)| known(owners, chain))
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

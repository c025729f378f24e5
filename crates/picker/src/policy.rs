//! The whole decision of an endpoint picker: one profile, or a pair of them for prefill and decode.

use std::net::SocketAddr;

use fastrand::Rng;

use crate::{
    member::Member,
    pool::Endpoint,
    profile::Profile,
    request::{Facts, tokens_of},
    score::{
        Memory,
        prefix::{Owners, Prefix},
    },
};

/// How endpoints are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub handler: Handler,
    /// What scorers remember of prompts; scorers name them by position.
    pub prefixes: Vec<Prefix>,
    pub bodies: Bodies,
    /// Where one port of a Pod hands requests on to the engines behind its other ports: that port. It is told which
    /// engine was chosen.
    pub primary_port: Option<u16>,
}

/// Bodies that name no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bodies {
    /// Are refused, as no OpenAI engine takes them.
    Refused,
    /// Pass, whatever they are.
    Pass,
}

/// Which profiles are asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Handler {
    Single(Profile),
    /// The decoder answers the client; the prefiller computes the prompt first, if the decider says so.
    PrefillDecode {
        prefill: Profile,
        decode: Profile,
        decider: Decider,
    },
}

/// Which prompts are worth the way to a prefiller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    Always,
    /// More bytes than this are new to the decoder.
    Over {
        bytes: usize,
    },
    /// At least so many tokens are new to the decoder, and the whole prompt has at least so many.
    AtLeast {
        new: usize,
        prompt: usize,
    },
}

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The model as the engines know it.
    pub model: &'a str,
    pub prompt_bytes: usize,
    /// The prompt's block hashes, one chain per prefix memory.
    pub chains: &'a [Vec<u64>],
}

/// Where a request goes.
#[derive(Debug, Clone)]
pub struct Choice {
    /// At least one; the others are for when it fails.
    pub endpoints: Vec<Endpoint>,
    /// Who computes the prompt, if not the endpoint itself.
    pub prefiller: Option<Endpoint>,
    /// Bytes of the prompt's beginning that the first endpoint has computed before, as far as is remembered.
    pub known_bytes: usize,
}

impl Policy {
    /// The chains of a request, for [`Ask::chains`].
    pub fn chains(&self, model: &str, body: &[u8], facts: &Facts) -> Vec<Vec<u64>> {
        let pieces = || facts.prompt.iter().filter_map(|span| body.get(span.clone()));
        self.prefixes.iter().map(|prefix| prefix.chain(model, pieces())).collect()
    }

    /// Empty memory for [`Policy::choose`].
    pub fn memory(&self) -> Memory {
        Memory { owners: self.prefixes.iter().map(|_| Owners::default()).collect(), ..Memory::default() }
    }

    /// Chooses among `members`, and remembers who will have computed the prompt. `None` if no member may be chosen.
    pub fn choose(&self, ask: &Ask<'_>, members: &[&Member], memory: &mut Memory, rng: &mut Rng) -> Option<Choice> {
        let (endpoints, prefiller) = match &self.handler {
            Handler::Single(profile) => (profile.order(ask, members, memory, rng), None),
            Handler::PrefillDecode { prefill, decode, decider } => {
                let endpoints = decode.order(ask, members, memory, rng);
                let first = *endpoints.first()?;
                let remote = decider.is_worth_it(ask.prompt_bytes, self.new_bytes(ask, memory, &first.endpoint));
                let prefillers = if remote { prefill.order(ask, members, memory, rng) } else { Vec::new() };
                // A decoder can do a whole request by itself, so a missing prefiller fails nothing.
                let helps =
                    |prefiller: &&Member| !prefiller.refuses && prefiller.endpoint.address != first.endpoint.address;
                (endpoints, prefillers.first().copied().filter(helps))
            }
        };
        let first = endpoints.first()?.endpoint.address;
        let known_bytes = self.known_bytes(ask, memory, first);
        let cold = !memory.hit(ask, members);
        for endpoint in [Some(first), prefiller.map(|prefiller| prefiller.endpoint.address)].into_iter().flatten() {
            self.remember(ask.chains, memory, endpoint);
            if cold {
                memory.cold.give(endpoint);
            }
        }
        let endpoints = endpoints.into_iter().map(|member| member.endpoint.clone()).collect();
        let prefiller = prefiller.map(|prefiller| prefiller.endpoint.clone());
        Some(Choice { endpoints, prefiller, known_bytes })
    }

    /// `endpoint` has computed a prompt: chosen, or told by the proxy after another one failed.
    pub fn remember(&self, chains: &[Vec<u64>], memory: &mut Memory, endpoint: SocketAddr) {
        for ((owners, chain), prefix) in memory.owners.iter_mut().zip(chains).zip(&self.prefixes) {
            owners.remember(chain, endpoint, prefix.capacity);
        }
    }

    fn known_bytes(&self, ask: &Ask<'_>, memory: &Memory, endpoint: SocketAddr) -> usize {
        let known = self.prefixes.iter().zip(ask.chains).zip(&memory.owners);
        let known = known.map(|((prefix, chain), owners)| owners.matched(chain, endpoint) * prefix.block);
        known.max().unwrap_or(0)
    }

    fn new_bytes(&self, ask: &Ask<'_>, memory: &Memory, endpoint: &Endpoint) -> usize {
        ask.prompt_bytes.saturating_sub(self.known_bytes(ask, memory, endpoint.address))
    }
}

impl Decider {
    fn is_worth_it(self, prompt_bytes: usize, new_bytes: usize) -> bool {
        match self {
            Decider::Always => true,
            Decider::Over { bytes } => new_bytes > bytes,
            Decider::AtLeast { new, prompt } => tokens_of(new_bytes) >= new && tokens_of(prompt_bytes) >= prompt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{filter::Filter, member::tests::member, profile::Order, request, score::Scorer};
    use rstest::rstest;

    const PREFIX: Prefix = Prefix { block: 4, most_blocks: 100, capacity: 1_000 };

    fn profile(role: Option<&str>) -> Profile {
        let filter =
            role.map(|role| Filter::Label { label: "role".to_owned(), values: vec![role.to_owned()], without: false });
        Profile {
            filters: filter.into_iter().collect(),
            scorers: vec![(Scorer::Prefix(0), 1.0)],
            order: Order::Best,
            most: 1,
        }
    }

    struct World {
        policy: Policy,
        members: Vec<Member>,
        memory: Memory,
        rng: Rng,
    }

    impl World {
        fn new(handler: Handler, roles: &[&str]) -> Self {
            let policy = Policy { handler, prefixes: vec![PREFIX], bodies: Bodies::Refused, primary_port: None };
            let with_role = |(number, role): (u8, &&str)| {
                let mut made = member(number, None);
                made.labels.insert("role".to_owned(), (*role).to_owned());
                made
            };
            let members = (1..).zip(roles).map(with_role).collect();
            Self { memory: policy.memory(), policy, members, rng: Rng::with_seed(2) }
        }

        fn ask(&mut self, prompt: &str) -> Option<(String, Option<String>)> {
            let body = serde_json::json!({"model": "m", "prompt": prompt}).to_string();
            let facts = request::scan(body.as_bytes()).unwrap();
            let chains = self.policy.chains("m", body.as_bytes(), &facts);
            let ask = Ask { model: "m", prompt_bytes: facts.prompt_bytes(), chains: &chains };
            let members: Vec<&Member> = self.members.iter().collect();
            let choice = self.policy.choose(&ask, &members, &mut self.memory, &mut self.rng)?;
            Some((choice.endpoints[0].pod.clone(), choice.prefiller.map(|endpoint| endpoint.pod)))
        }
    }

    #[test]
    fn a_conversation_stays_where_it_began() {
        let mut world = World::new(Handler::Single(profile(None)), &["a", "b", "c"]);
        let first = world.ask("Once upon a time there was").unwrap();
        for more in ["Once upon a time there was a horse", "Once upon a time there was a horse and an ostler"] {
            assert_eq!(world.ask(more).unwrap(), first);
        }
        assert_eq!(World::new(Handler::Single(profile(None)), &[]).ask("x"), None);
    }

    #[test]
    fn new_prompts_go_round_and_known_ones_do_not_count() {
        let scorers = vec![(Scorer::Prefix(0), 3.0), (Scorer::NoHit, 2.0)];
        let mut world = World::new(Handler::Single(Profile { scorers, ..profile(None) }), &["a", "b", "c"]);
        let mut first: Vec<String> = Vec::new();
        for story in ["first story", "second story", "third story", "fourth story"] {
            first.push(world.ask(story).unwrap().0);
            assert_eq!(world.ask(story).unwrap().0, *first.last().unwrap(), "a known prompt stays");
        }
        let distinct: std::collections::BTreeSet<&String> = first[..3].iter().collect();
        assert_eq!((distinct.len(), &first[3]), (3, &first[0]));
    }

    fn pair(decider: Decider) -> Handler {
        Handler::PrefillDecode { prefill: profile(Some("prefill")), decode: profile(Some("decode")), decider }
    }

    #[test]
    fn a_new_prompt_is_computed_by_a_prefiller() {
        let mut world = World::new(pair(Decider::Over { bytes: 8 }), &["prefill", "decode"]);
        let long = "a prompt of more than eight bytes";
        assert_eq!(world.ask(long), Some(("pod-2".to_owned(), Some("pod-1".to_owned()))));
        assert_eq!(world.ask(long), Some(("pod-2".to_owned(), None)), "the decoder has it now");
        assert_eq!(world.ask("short"), Some(("pod-2".to_owned(), None)), "not worth the way");
    }

    #[rstest]
    #[case::always(Decider::Always, 0, 0, true)]
    #[case::nothing_is_new(Decider::Over { bytes: 0 }, 400, 0, false)]
    #[case::exactly(Decider::Over { bytes: 100 }, 400, 100, false)]
    #[case::over(Decider::Over { bytes: 100 }, 400, 101, true)]
    #[case::as_many_tokens(Decider::AtLeast { new: 16, prompt: 0 }, 400, 64, true)]
    #[case::fewer_tokens(Decider::AtLeast { new: 16, prompt: 0 }, 400, 63, false)]
    #[case::a_short_prompt(Decider::AtLeast { new: 16, prompt: 128 }, 400, 400, false)]
    fn deciders(#[case] decider: Decider, #[case] prompt: usize, #[case] new: usize, #[case] expect: bool) {
        assert_eq!(decider.is_worth_it(prompt, new), expect);
    }

    #[test]
    fn one_half_of_a_pair() {
        let pair = || pair(Decider::Always);
        assert_eq!(World::new(pair(), &["decode"]).ask("alone"), Some(("pod-1".to_owned(), None)));
        assert_eq!(World::new(pair(), &["prefill"]).ask("nobody answers"), None);
        let mut world = World::new(pair(), &["prefill", "decode"]);
        world.members[0].refuses = true;
        assert_eq!(world.ask("nobody computes it first"), Some(("pod-2".to_owned(), None)));
    }
}

//! The whole decision of an endpoint picker: one profile, or a pair of them for prefill and decode.

use std::net::SocketAddr;

use fastrand::Rng;

use crate::{
    member::Member,
    pool::Endpoint,
    profile::Profile,
    request::Facts,
    score::prefix::{Owners, Prefix},
};

/// How endpoints are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub handler: Handler,
    /// What scorers remember of prompts; scorers name them by position.
    pub prefixes: Vec<Prefix>,
}

/// Which profiles are asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Handler {
    Single(Profile),
    /// The decoder answers the client; the prefiller computes the prompt first, if enough of it is new.
    PrefillDecode {
        prefill: Profile,
        decode: Profile,
        /// Bytes of prompt the decoder may have to compute itself.
        threshold: usize,
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
}

impl Policy {
    /// The chains of a request, for [`Ask::chains`].
    pub fn chains(&self, model: &str, body: &[u8], facts: &Facts) -> Vec<Vec<u64>> {
        let pieces = || facts.prompt.iter().filter_map(|span| body.get(span.clone()));
        self.prefixes.iter().map(|prefix| prefix.chain(model, pieces())).collect()
    }

    /// Empty memories for [`Policy::choose`].
    pub fn memories(&self) -> Vec<Owners> {
        self.prefixes.iter().map(|_| Owners::default()).collect()
    }

    /// Chooses among `members`, and remembers who will have computed the prompt. `None` if no member may be chosen.
    pub fn choose(&self, ask: &Ask<'_>, members: &[&Member], owners: &mut [Owners], rng: &mut Rng) -> Option<Choice> {
        let choice = match &self.handler {
            Handler::Single(profile) => {
                Choice { endpoints: chosen(profile, ask, members, owners, rng), prefiller: None }
            }
            Handler::PrefillDecode { prefill, decode, threshold } => {
                let endpoints = chosen(decode, ask, members, owners, rng);
                let remote = endpoints.first().is_some_and(|first| self.new_bytes(ask, owners, first) > *threshold);
                // A decoder can do a whole request by itself, so a missing prefiller fails nothing.
                let prefiller = if remote { chosen(prefill, ask, members, owners, rng) } else { Vec::new() };
                Choice { endpoints, prefiller: prefiller.into_iter().next() }
            }
        };
        let first = choice.endpoints.first()?.address;
        self.remember(ask.chains, owners, first);
        if let Some(prefiller) = &choice.prefiller {
            self.remember(ask.chains, owners, prefiller.address);
        }
        Some(choice)
    }

    /// `endpoint` has computed a prompt: chosen, or told by the proxy after another one failed.
    pub fn remember(&self, chains: &[Vec<u64>], owners: &mut [Owners], endpoint: SocketAddr) {
        for ((owners, chain), prefix) in owners.iter_mut().zip(chains).zip(&self.prefixes) {
            owners.remember(chain, endpoint, prefix.capacity);
        }
    }

    /// Bytes of the prompt that `endpoint` has not computed before, as far as is remembered.
    fn new_bytes(&self, ask: &Ask<'_>, owners: &[Owners], endpoint: &Endpoint) -> usize {
        let known = self.prefixes.iter().zip(ask.chains).zip(owners);
        let known = known.map(|((prefix, chain), owners)| owners.matched(chain, endpoint.address) * prefix.block);
        ask.prompt_bytes.saturating_sub(known.max().unwrap_or(0))
    }
}

fn chosen(profile: &Profile, ask: &Ask<'_>, members: &[&Member], owners: &[Owners], rng: &mut Rng) -> Vec<Endpoint> {
    profile.order(ask, members, owners, rng).into_iter().map(|member| member.endpoint.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        member::tests::member,
        profile::{LabelFilter, Order},
        request,
        score::Scorer,
    };

    const PREFIX: Prefix = Prefix { block: 4, most_blocks: 100, capacity: 1_000 };

    fn profile(role: Option<&str>) -> Profile {
        let filter =
            role.map(|role| LabelFilter { label: "role".to_owned(), values: vec![role.to_owned()], without: false });
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
        owners: Vec<Owners>,
        rng: Rng,
    }

    impl World {
        fn new(handler: Handler, roles: &[&str]) -> Self {
            let policy = Policy { handler, prefixes: vec![PREFIX] };
            let with_role = |(number, role): (u8, &&str)| {
                let mut made = member(number, None);
                made.labels.insert("role".to_owned(), (*role).to_owned());
                made
            };
            let members = (1..).zip(roles).map(with_role).collect();
            Self { owners: policy.memories(), policy, members, rng: Rng::with_seed(2) }
        }

        fn ask(&mut self, prompt: &str) -> Option<(String, Option<String>)> {
            let body = serde_json::json!({"model": "m", "prompt": prompt}).to_string();
            let facts = request::scan(body.as_bytes()).unwrap();
            let chains = self.policy.chains("m", body.as_bytes(), &facts);
            let ask = Ask { model: "m", prompt_bytes: facts.prompt_bytes(), chains: &chains };
            let members: Vec<&Member> = self.members.iter().collect();
            let choice = self.policy.choose(&ask, &members, &mut self.owners, &mut self.rng)?;
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

    fn pair(threshold: usize) -> Handler {
        Handler::PrefillDecode { prefill: profile(Some("prefill")), decode: profile(Some("decode")), threshold }
    }

    #[test]
    fn a_new_prompt_is_computed_by_a_prefiller() {
        let mut world = World::new(pair(8), &["prefill", "decode"]);
        let long = "a prompt of more than eight bytes";
        assert_eq!(world.ask(long), Some(("pod-2".to_owned(), Some("pod-1".to_owned()))));
        assert_eq!(world.ask(long), Some(("pod-2".to_owned(), None)), "the decoder has it now");
        assert_eq!(world.ask("short"), Some(("pod-2".to_owned(), None)), "not worth the way");
    }

    #[test]
    fn one_half_of_a_pair() {
        assert_eq!(World::new(pair(0), &["decode"]).ask("alone"), Some(("pod-1".to_owned(), None)));
        assert_eq!(World::new(pair(0), &["prefill"]).ask("nobody answers"), None);
    }
}

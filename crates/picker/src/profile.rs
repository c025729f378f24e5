//! One way to choose: who may, who is best, how many.

use fastrand::Rng;

use crate::{
    filter::Filter,
    member::Member,
    policy::Ask,
    score::{Memory, Scorer, load},
};

/// Scores that differ by less than this share of all weights are alike. Readings are some moments old: without it a
/// thousandth of a cache decides, and until the next reading one endpoint gets every request.
const ALIKE: f64 = 0.01;

/// Filters, weighted scorers and an order.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub filters: Vec<Filter>,
    pub scorers: Vec<(Scorer, f64)>,
    pub order: Order,
    /// Endpoints answered at most: the first, and where to go when it fails.
    pub most: usize,
}

/// What the scores mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The highest first; among equals the least loaded.
    Best,
    /// Scores do not matter.
    Random,
    /// A draw in proportion to the scores.
    Drawn,
}

impl Profile {
    /// The endpoints to try, in this order; empty if none may be chosen.
    pub fn order<'a>(&self, ask: &Ask<'_>, members: &[&'a Member], memory: &Memory, rng: &mut Rng) -> Vec<&'a Member> {
        let members = self.candidates(members);
        let totals = self.totals(ask, &members, memory);
        let mut scored: Vec<(&Member, f64)> = members.into_iter().zip(totals).collect();
        let alike = ALIKE * self.scorers.iter().map(|(_, weight)| weight).sum::<f64>();
        match self.order {
            Order::Best => best_first(&mut scored, alike, rng),
            Order::Random => rng.shuffle(&mut scored),
            Order::Drawn => draw_first(&mut scored, rng),
        }
        scored.into_iter().take(self.most.max(1)).map(|(member, _)| member).collect()
    }

    /// Those that pass all filters. One that refuses connections has no queue and would look best, so it is a candidate
    /// only where all refuse.
    fn candidates<'a>(&self, members: &[&'a Member]) -> Vec<&'a Member> {
        let allowed = |member: &&Member| self.filters.iter().all(|filter| filter.passes(&member.labels));
        let mut members: Vec<&Member> = members.iter().copied().filter(allowed).collect();
        if members.iter().any(|member| !member.refuses) {
            members.retain(|member| !member.refuses);
        }
        members
    }

    fn totals(&self, ask: &Ask<'_>, members: &[&Member], memory: &Memory) -> Vec<f64> {
        let mut totals = vec![0.0; members.len()];
        for (scorer, weight) in &self.scorers {
            let scores = scorer.scores(ask, members, memory);
            totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
        }
        totals
    }
}

/// By score, then by the tokens under way. Of those that are `alike` the best the first is the less loaded of two drawn.
fn best_first(scored: &mut [(&Member, f64)], alike: f64, rng: &mut Rng) {
    let rank = |(member, total): &(&Member, f64)| (*total, member.endpoint.load.tokens(), member.endpoint.address);
    let mut ranked: Vec<_> = scored.iter().map(|one| (rank(one), *one)).collect();
    ranked.sort_by(|((one, load, address), _), ((other, their_load, their_address), _)| {
        other.total_cmp(one).then(load.cmp(their_load)).then(address.cmp(their_address))
    });
    scored.iter_mut().zip(ranked).for_each(|(place, (_, one))| *place = one);
    let Some((_, highest)) = scored.first().copied() else { return };
    let equal = scored.iter().take_while(|(_, total)| *total >= highest - alike);
    let equal: Vec<_> = equal.map(|(member, _)| &member.endpoint).collect();
    let least = load::least(&equal, rng).map(|endpoint| endpoint.address);
    if let Some(at) = scored.iter().position(|(member, _)| Some(member.endpoint.address) == least) {
        scored[..=at].rotate_right(1);
    }
}

/// One drawn by weight comes first, the rest by score.
fn draw_first(scored: &mut [(&Member, f64)], rng: &mut Rng) {
    best_first(scored, 0.0, rng);
    let sum: f64 = scored.iter().map(|(_, total)| total.max(0.0)).sum();
    let mut left = rng.f64() * sum;
    let drawn = scored.iter().position(|(_, total)| {
        left -= total.max(0.0);
        left < 0.0
    });
    if let Some(at) = drawn {
        scored[..=at].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{member::tests::member, reading::Gauges};

    fn waiting(number: u8, waiting: f64, role: Option<&str>) -> Member {
        let mut made = member(number, Some((Gauges { waiting: Some(waiting), ..Gauges::default() }, 0)));
        made.labels.extend(role.map(|role| ("role".to_owned(), role.to_owned())));
        made
    }

    fn profile(order: Order) -> Profile {
        Profile { filters: Vec::new(), scorers: vec![(Scorer::Queue, 1.0)], order, most: 3 }
    }

    fn ordered(profile: &Profile, members: &[Member], rng: &mut Rng) -> Vec<String> {
        let members: Vec<&Member> = members.iter().collect();
        let ask = Ask { model: "m", prompt_bytes: 0, chains: &[] };
        profile
            .order(&ask, &members, &Memory::default(), rng)
            .iter()
            .map(|member| member.endpoint.pod.clone())
            .collect()
    }

    #[test]
    fn the_best_is_first_and_the_next_follow() {
        let members = [waiting(1, 9.0, None), waiting(2, 0.0, None), waiting(3, 3.0, None), waiting(4, 6.0, None)];
        let order = ordered(&profile(Order::Best), &members, &mut Rng::with_seed(0));
        assert_eq!(order, ["pod-2", "pod-3", "pod-4"]);
    }

    #[test]
    fn equals_share_and_load_decides() {
        let members = [waiting(1, 0.0, None), waiting(2, 0.0, None)];
        let mut rng = Rng::with_seed(1);
        let first = |rng: &mut Rng| ordered(&profile(Order::Best), &members, rng)[0].clone();
        let ones = (0..400).filter(|_| first(&mut rng) == "pod-1").count();
        assert!((120..280).contains(&ones), "{ones}");
        let _busy = members[0].endpoint.load.begin(100);
        assert!((0..50).all(|_| first(&mut rng) == "pod-2"));
    }

    #[test]
    fn a_thousandth_of_a_cache_decides_nothing() {
        let used = |number, share| member(number, Some((Gauges { kv_usage: Some(share), ..Gauges::default() }, 0)));
        let profile = Profile { scorers: vec![(Scorer::KvCache, 100.0)], ..profile(Order::Best) };
        let mut rng = Rng::with_seed(1);
        let first = |members: &[Member], rng: &mut Rng| ordered(&profile, members, rng)[0].clone();
        let members = [used(1, 0.500), used(2, 0.501)];
        let _busy = members[0].endpoint.load.begin(100);
        assert!((0..50).all(|_| first(&members, &mut rng) == "pod-2"));
        let members = [used(1, 0.50), used(2, 0.52)];
        let _busy = members[0].endpoint.load.begin(100);
        assert!((0..50).all(|_| first(&members, &mut rng) == "pod-1"));
    }

    #[test]
    fn a_draw_follows_the_scores() {
        let members = [waiting(1, 0.0, None), waiting(2, 3.0, None), waiting(3, 4.0, None)];
        let mut rng = Rng::with_seed(5);
        let drawn: Vec<String> =
            (0..1_000).map(|_| ordered(&profile(Order::Drawn), &members, &mut rng)[0].clone()).collect();
        let share = |pod: &str| drawn.iter().filter(|drawn| *drawn == pod).count();
        assert!((740..860).contains(&share("pod-1")), "{}", share("pod-1"));
        assert_eq!(share("pod-3"), 0);
    }

    #[test]
    fn one_that_refuses_is_chosen_only_where_all_do() {
        let mut members = [waiting(1, 0.0, None), waiting(2, 9.0, None)];
        members[0].refuses = true;
        let mut rng = Rng::with_seed(0);
        assert_eq!(ordered(&profile(Order::Best), &members, &mut rng), ["pod-2"]);
        members[1].refuses = true;
        assert_eq!(ordered(&profile(Order::Best), &members, &mut rng), ["pod-1", "pod-2"]);
    }

    #[test]
    fn filters_hold_by_label() {
        let members = [waiting(1, 0.0, Some("prefill")), waiting(2, 5.0, Some("decode")), waiting(3, 9.0, None)];
        let filter = |without| Filter::Label { label: "role".to_owned(), values: vec!["decode".to_owned()], without };
        let of = |without| Profile { filters: vec![filter(without)], ..profile(Order::Best) };
        let mut rng = Rng::with_seed(0);
        assert_eq!(ordered(&of(false), &members, &mut rng), ["pod-2"]);
        assert_eq!(ordered(&of(true), &members, &mut rng), ["pod-2", "pod-3"]);
    }
}

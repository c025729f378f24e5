//! A use case: what clients call a model, and which models answer to it.

use fastrand::Rng;

/// One model name on one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseCase {
    /// What clients send.
    pub model_name: String,
    /// Whether an objective is stated.
    pub critical: bool,
    /// Weighted models; empty: the model name itself.
    pub targets: Vec<Target>,
    /// RFC 3339 creation time of the object that states it.
    pub created: String,
}

/// A model as engines know it, with its relative share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub model: String,
    pub weight: u32,
}

impl UseCase {
    /// The use case of a model nobody declared.
    pub fn implicit(model_name: &str) -> Self {
        Self { model_name: model_name.to_owned(), critical: false, targets: Vec::new(), created: String::new() }
    }

    /// Draws the model that answers one request, each with its share of all weights.
    pub fn draw(&self, rng: &mut Rng) -> &str {
        let total: u64 = self.targets.iter().map(|target| u64::from(target.weight)).sum();
        if total == 0 {
            return &self.model_name;
        }
        let mut left = rng.u64(..total);
        for target in &self.targets {
            match left.checked_sub(u64::from(target.weight)) {
                Some(rest) => left = rest,
                None => return &target.model,
            }
        }
        &self.model_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn use_case(targets: &[(&str, u32)]) -> UseCase {
        let targets =
            targets.iter().map(|(model, weight)| Target { model: (*model).to_owned(), weight: *weight }).collect();
        UseCase { targets, ..UseCase::implicit("chat") }
    }

    // spec: GW-51
    #[test]
    fn draws_follow_the_weights() {
        let use_case = use_case(&[("a", 20), ("never", 0), ("b", 80)]);
        let mut rng = Rng::with_seed(7);
        let drawn: Vec<&str> = (0..10_000).map(|_| use_case.draw(&mut rng)).collect();
        let share = |model| drawn.iter().filter(|drawn| **drawn == model).count();
        assert_eq!(share("never"), 0);
        assert!((1_850..2_150).contains(&share("a")), "{}", share("a"));
        assert_eq!(share("a") + share("b"), 10_000);
    }

    #[test]
    fn the_same_seed_draws_the_same_models() {
        let use_case = use_case(&[("a", 1), ("b", 1)]);
        let draw = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..32).map(|_| use_case.draw(&mut rng).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn without_targets_the_name_itself_is_the_model() {
        assert_eq!(use_case(&[]).draw(&mut Rng::with_seed(0)), "chat");
    }
}

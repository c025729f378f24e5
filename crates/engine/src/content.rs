//! Deterministic text: what an engine "says" follows from seed, model and prompt alone.

use fastrand::Rng;
use xxhash_rust::xxh64::xxh64;

const SUBJECTS: &[&str] =
    &["cluster", "model", "engine", "gateway", "prompt", "answer", "scheduler", "cache", "node", "batch"];
const VERBS: &[&str] =
    &["serves", "follows", "shares", "holds", "finds", "keeps", "routes", "measures", "warms", "returns"];
const ADJECTIVES: &[&str] =
    &["quiet", "small", "steady", "simulated", "shared", "bright", "early", "warm", "plain", "careful"];

/// Sentences of made-up text, one token (a word with its space, or a full stop) at a time.
pub(crate) struct Words {
    rng: Rng,
    /// Tokens of the current sentence, last first.
    sentence: Vec<String>,
    first: bool,
    /// Sentences left before the text ends by itself.
    sentences: usize,
}

impl Words {
    pub(crate) fn new(seed: u64, model: &str, prompt: &[u32]) -> Self {
        let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut rng = Rng::with_seed(xxh64(&bytes, xxh64(model.as_bytes(), seed)));
        let sentences = rng.usize(3..8);
        Self { rng, sentence: Vec::new(), first: true, sentences }
    }

    /// Whether the text would end here (a model's end-of-sequence token).
    pub(crate) fn at_end(&self) -> bool {
        self.sentence.is_empty() && self.sentences == 0
    }

    /// The next token's text; there is always one, for requests that ignore the end.
    pub(crate) fn next(&mut self) -> String {
        if self.sentence.is_empty() {
            self.begin_sentence();
        }
        self.sentence.pop().unwrap_or_default()
    }

    fn begin_sentence(&mut self) {
        self.sentences = self.sentences.saturating_sub(1);
        let start = if self.first { "The" } else { " The" };
        self.first = false;
        let mut tokens = vec![start.to_owned()];
        for list in [ADJECTIVES, SUBJECTS, VERBS] {
            tokens.push(format!(" {}", self.pick(list)));
        }
        tokens.push(" the".to_owned());
        for list in [ADJECTIVES, SUBJECTS] {
            tokens.push(format!(" {}", self.pick(list)));
        }
        tokens.push(".".to_owned());
        tokens.reverse();
        self.sentence = tokens;
    }

    fn pick(&mut self, list: &[&'static str]) -> &'static str {
        self.rng.choice(list.iter().copied()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u64, model: &str, prompt: &[u32]) -> String {
        let mut words = Words::new(seed, model, prompt);
        std::iter::from_fn(|| (!words.at_end()).then(|| words.next())).collect()
    }

    #[test]
    fn the_same_question_gets_the_same_answer() {
        assert_eq!(text(1, "m", &[1, 2]), text(1, "m", &[1, 2]));
        assert!(text(1, "m", &[1, 2]).starts_with("The "));
        assert!(text(1, "m", &[1, 2]).ends_with('.'));
    }

    #[test]
    fn seed_model_and_prompt_all_matter() {
        let base = text(1, "m", &[1, 2]);
        assert_ne!(base, text(2, "m", &[1, 2]));
        assert_ne!(base, text(1, "n", &[1, 2]));
        assert_ne!(base, text(1, "m", &[1, 3]));
    }
}

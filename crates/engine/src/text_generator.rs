//! Deterministic text generation: seed, model and prompt determine the completion.

use fastrand::Rng;
use xxhash_rust::xxh64::xxh64;

const SUBJECTS: &[&str] =
    &["cluster", "model", "engine", "gateway", "prompt", "answer", "scheduler", "cache", "node", "batch"];
const VERBS: &[&str] =
    &["serves", "follows", "shares", "holds", "finds", "keeps", "routes", "measures", "warms", "returns"];
const ADJECTIVES: &[&str] =
    &["quiet", "small", "steady", "simulated", "shared", "bright", "early", "warm", "plain", "careful"];

/// Generates placeholder sentences token by token. A token is a word with its leading space, or a period.
pub(crate) struct TextGenerator {
    rng: Rng,
    /// Remaining tokens of the current sentence, last token first.
    sentence: Vec<String>,
    is_first_sentence: bool,
    /// Sentences to generate before the end-of-sequence token.
    remaining_sentences: usize,
}

impl TextGenerator {
    /// Returns the generator of the completion of `prompt`.
    pub(crate) fn new(seed: u64, model: &str, prompt: &[u32]) -> Self {
        let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut rng = Rng::with_seed(xxh64(&bytes, xxh64(model.as_bytes(), seed)));
        let remaining_sentences = rng.usize(3..8);
        Self { rng, sentence: Vec::new(), is_first_sentence: true, remaining_sentences }
    }

    /// Returns whether a model would generate its end-of-sequence token now.
    pub(crate) fn is_finished(&self) -> bool {
        self.sentence.is_empty() && self.remaining_sentences == 0
    }

    /// Returns the text of the next token. Generation continues past the end for requests with `ignore_eos`.
    pub(crate) fn next_token(&mut self) -> String {
        if self.sentence.is_empty() {
            self.start_sentence();
        }
        self.sentence.pop().unwrap_or_default()
    }

    fn start_sentence(&mut self) {
        self.remaining_sentences = self.remaining_sentences.saturating_sub(1);
        let start = if self.is_first_sentence { "The" } else { " The" };
        self.is_first_sentence = false;
        let mut tokens = vec![start.to_owned()];
        for words in [ADJECTIVES, SUBJECTS, VERBS] {
            tokens.push(format!(" {}", self.choose(words)));
        }
        tokens.push(" the".to_owned());
        for words in [ADJECTIVES, SUBJECTS] {
            tokens.push(format!(" {}", self.choose(words)));
        }
        tokens.push(".".to_owned());
        tokens.reverse();
        self.sentence = tokens;
    }

    fn choose(&mut self, words: &[&'static str]) -> &'static str {
        self.rng.choice(words.iter().copied()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u64, model: &str, prompt: &[u32]) -> String {
        let mut generator = TextGenerator::new(seed, model, prompt);
        std::iter::from_fn(|| (!generator.is_finished()).then(|| generator.next_token())).collect()
    }

    #[test]
    fn equal_input_generates_equal_text() {
        assert_eq!(text(1, "m", &[1, 2]), text(1, "m", &[1, 2]));
        assert!(text(1, "m", &[1, 2]).starts_with("The "));
        assert!(text(1, "m", &[1, 2]).ends_with('.'));
    }

    #[test]
    fn text_depends_on_seed_model_and_prompt() {
        let base = text(1, "m", &[1, 2]);
        assert_ne!(base, text(2, "m", &[1, 2]));
        assert_ne!(base, text(1, "n", &[1, 2]));
        assert_ne!(base, text(1, "m", &[1, 3]));
    }
}

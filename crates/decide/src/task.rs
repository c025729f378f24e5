//! Tasks of models and engines: an engine that embeds texts does not chat, and the reverse.

use crate::merge::args::stated_flags;

/// Task of a model, from `spec.modelCapabilities`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelTask {
    /// Generates text from text.
    Generation,
    /// Generates text from images or videos.
    Vision,
    /// Computes embeddings.
    Embedding,
    /// Scores or classifies, for example the order of documents.
    Scoring,
}

/// Task that the flags of an engine select. Without flags, engines generate text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineTask {
    /// Generates text only, with `--runner=generate`.
    Generation,
    /// Generates text, also from images.
    Vision,
    /// Computes embeddings.
    Embedding,
    /// Scores or classifies.
    Scoring,
    /// Computes embeddings, scores or classes, as the model requires.
    Pooling,
}

// === impl ModelTask ===

impl ModelTask {
    /// Reads capabilities of a model, such as `TEXT_TO_EMBEDDING` or `text-to-text`. `None` if they are unknown, or the model has
    /// tasks that require different engines.
    pub(crate) fn from_capabilities(capabilities: &[String]) -> Option<Self> {
        let tasks: Vec<Self> = capabilities.iter().filter_map(|capability| Self::from_capability(capability)).collect();
        let first = *tasks.first()?;
        let generates = |task: &Self| matches!(task, Self::Generation | Self::Vision);
        match tasks.iter().all(generates) {
            true if tasks.contains(&Self::Vision) => Some(Self::Vision),
            _ => tasks.iter().all(|task| *task == first).then_some(first),
        }
    }

    fn from_capability(capability: &str) -> Option<Self> {
        let name = capability.to_ascii_uppercase();
        let contains = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if contains(&["EMBED"]) {
            Some(Self::Embedding)
        } else if contains(&["RERANK", "REWARD", "SCOR", "CLASSIF"]) {
            Some(Self::Scoring)
        } else if contains(&["IMAGE", "VIDEO", "VISION"]) {
            Some(Self::Vision)
        } else {
            contains(&["TEXT", "CHAT", "COMPLETION", "GENERATION"]).then_some(Self::Generation)
        }
    }

    /// Returns how well an engine with the task of its flags serves the model, 0 being best.
    pub(crate) fn distance(self, engine: Option<EngineTask>) -> u8 {
        match (self, engine) {
            (Self::Vision, Some(EngineTask::Vision))
            | (Self::Generation, None | Some(EngineTask::Generation | EngineTask::Vision))
            | (Self::Embedding, Some(EngineTask::Embedding | EngineTask::Pooling))
            | (Self::Scoring, Some(EngineTask::Scoring | EngineTask::Pooling)) => 0,
            // Engines recognize vision models, and most models for other tasks, without flags.
            (Self::Vision, None | Some(EngineTask::Generation)) | (Self::Embedding | Self::Scoring, None) => 1,
            _ => 2,
        }
    }

    /// Returns whether an engine with the task of its flags can serve the model. An engine that only generates text computes neither
    /// embeddings nor scores; other combinations are left to the engine.
    pub(crate) fn is_served_by(self, engine: Option<EngineTask>) -> bool {
        !matches!((self, engine), (Self::Embedding | Self::Scoring, Some(EngineTask::Generation)))
    }
}

// === impl EngineTask ===

impl EngineTask {
    /// Reads the flags of vLLM (`--runner` and `--convert`, before 0.10 `--task`; docs.vllm.ai, Pooling Models) and of SGLang
    /// (`--is-embedding`, `--enable-multimodal`; docs.sglang.io, Server Arguments).
    pub(crate) fn of_command<'w>(words: impl Iterator<Item = &'w str> + Clone) -> Option<Self> {
        let flags = stated_flags(words.clone(), &["runner", "convert", "task"]);
        let has = |flag: &str| words.clone().flat_map(str::split_whitespace).any(|word| word.replace('_', "-") == flag);
        let stated = ["convert", "task", "runner"].into_iter().find_map(|name| match flags.get(name)?.as_str() {
            "embed" | "embedding" => Some(Self::Embedding),
            "classify" | "score" | "reward" => Some(Self::Scoring),
            "pooling" => Some(Self::Pooling),
            "generate" => Some(Self::Generation),
            _ => None,
        });
        stated
            .or_else(|| has("--is-embedding").then_some(Self::Pooling))
            .or_else(|| has("--enable-multimodal").then_some(Self::Vision))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&["TEXT_TO_TEXT"], Some(ModelTask::Generation))]
    #[case(&["text-to-text", "image-text-to-text"], Some(ModelTask::Vision))]
    #[case(&["TEXT_TO_EMBEDDING"], Some(ModelTask::Embedding))]
    #[case(&["text-rerank"], Some(ModelTask::Scoring))]
    #[case(&["REWARD_SCORING"], Some(ModelTask::Scoring))]
    #[case(&["TEXT_TO_TEXT", "TEXT_TO_EMBEDDING"], None)]
    #[case(&["AUDIO_TO_AUDIO"], None)]
    #[case(&[], None)]
    fn reads_capabilities(#[case] capabilities: &[&str], #[case] expected: Option<ModelTask>) {
        let capabilities: Vec<String> = capabilities.iter().map(|&capability| capability.to_owned()).collect();
        assert_eq!(ModelTask::from_capabilities(&capabilities), expected);
    }

    #[rstest]
    #[case("vllm serve m --runner pooling", Some(EngineTask::Pooling))]
    #[case("vllm serve m --runner=pooling --convert=classify", Some(EngineTask::Scoring))]
    #[case("vllm serve m --task embed", Some(EngineTask::Embedding))]
    #[case("vllm serve m --runner generate", Some(EngineTask::Generation))]
    #[case("python3 -m sglang.launch_server --is_embedding", Some(EngineTask::Pooling))]
    #[case("python3 -m sglang.launch_server --enable-multimodal --tp 2", Some(EngineTask::Vision))]
    #[case("vllm serve m", None)]
    fn reads_flags(#[case] command: &str, #[case] expected: Option<EngineTask>) {
        assert_eq!(EngineTask::of_command(command.split_whitespace()), expected);
        assert_eq!(EngineTask::of_command(["sh", "-c", command].into_iter()), expected);
    }

    #[rstest]
    #[case::embedding(ModelTask::Embedding, Some(EngineTask::Generation), false)]
    #[case::reranking(ModelTask::Scoring, Some(EngineTask::Generation), false)]
    #[case::detected_by_the_engine(ModelTask::Scoring, None, true)]
    #[case::chat(ModelTask::Generation, Some(EngineTask::Generation), true)]
    #[case::vision(ModelTask::Vision, Some(EngineTask::Generation), true)]
    fn engines_that_only_generate_serve_no_other_tasks(
        #[case] model: ModelTask,
        #[case] engine: Option<EngineTask>,
        #[case] expected: bool,
    ) {
        assert_eq!(model.is_served_by(engine), expected);
    }

    #[rstest]
    #[case::embedding(ModelTask::Embedding, Some(EngineTask::Pooling), None)]
    #[case::chat(ModelTask::Generation, None, Some(EngineTask::Embedding))]
    #[case::reranking(ModelTask::Scoring, Some(EngineTask::Scoring), Some(EngineTask::Embedding))]
    #[case::reranking_without_flags(ModelTask::Scoring, None, Some(EngineTask::Embedding))]
    #[case::vision(ModelTask::Vision, Some(EngineTask::Vision), None)]
    fn prefers_the_task(
        #[case] model: ModelTask,
        #[case] closer: Option<EngineTask>,
        #[case] further: Option<EngineTask>,
    ) {
        assert!(model.distance(closer) < model.distance(further));
    }
}

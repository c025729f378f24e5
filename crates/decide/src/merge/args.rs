//! Command lines merge by flag: `runtime (minus overridden flags) ++ service ++ accelerator (minus the service's flags)`.

use std::collections::BTreeSet;

use crate::reason::Warning;

/// `command` and `args` of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub command: Vec<String>,
    pub args: Vec<String>,
}

/// Merges three sources. A command of the service switches the accelerator's arguments off; a command of the runtime is
/// merged in place, unless it is a shell's.
#[must_use]
pub fn merge(runtime: &Line, service: &Line, accelerator: &[String]) -> (Line, Vec<Warning>) {
    if !service.command.is_empty() {
        return (service.clone(), not_applied(accelerator, "the service states a command of its own"));
    }
    if is_shell(&runtime.command) {
        let (args, warnings) = shell_args(runtime, service);
        let mut all = not_applied(accelerator, "the runtime's command is a shell script");
        all.extend(warnings);
        return (Line { command: runtime.command.clone(), args }, all);
    }
    let users = flags(&service.args);
    let tuning = without(accelerator, &users);
    let overridden: BTreeSet<String> = users.union(&flags(&tuning)).cloned().collect();
    let mut args = without(&runtime.args, &overridden);
    args.extend(service.args.iter().cloned());
    args.extend(tuning);
    (Line { command: without(&runtime.command, &overridden), args }, Vec::new())
}

/// `upper` over `lower`: flags of `upper` replace those of `lower`, the rest stays.
#[must_use]
pub fn replace(lower: &[String], upper: &[String]) -> Vec<String> {
    let mut args = without(lower, &flags(upper));
    args.extend(upper.iter().cloned());
    args
}

/// Tensor × pipeline parallelism that a line states in numbers, whichever alias it uses; `None` if it states neither.
#[must_use]
pub fn parallelism<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<u32> {
    let words: Vec<String> = words.into_iter().flat_map(split_script).collect();
    let number = |flag: &str| {
        let segments = segments(&words);
        let last = segments.iter().rev().find(|segment| segment.flag.as_deref() == Some(flag))?;
        last.value()?.parse::<u32>().ok().filter(|count| *count > 0)
    };
    let (tensor, pipeline) = (number("tensor-parallel-size"), number("pipeline-parallel-size"));
    (tensor.is_some() || pipeline.is_some()).then(|| tensor.unwrap_or(1).saturating_mul(pipeline.unwrap_or(1)))
}

/// `sh -c "…"` and the like: the words belong to the shell, not to the engine.
#[must_use]
pub fn is_shell(command: &[String]) -> bool {
    let shell = command.first().and_then(|program| program.rsplit('/').next());
    matches!(shell, Some("sh" | "bash" | "ash" | "dash" | "zsh"))
        && command.iter().any(|word| word.starts_with('-') && word.ends_with('c'))
}

fn not_applied(accelerator: &[String], because: &str) -> Vec<Warning> {
    if accelerator.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "{because}; these arguments of the accelerator configuration are not applied: {}",
        accelerator.join(" ")
    );
    vec![Warning::new("AcceleratorArgsNotApplied", message)]
}

/// Arguments after a shell's script are the script's parameters: the service's replace nothing and come last.
fn shell_args(runtime: &Line, service: &Line) -> (Vec<String>, Vec<Warning>) {
    (runtime.args.iter().chain(&service.args).cloned().collect(), Vec::new())
}

/// A flag with its values, or a word that belongs to none.
struct Segment<'a> {
    /// The canonical name without dashes; `None` for words before the first flag.
    flag: Option<String>,
    words: Vec<&'a String>,
}

impl Segment<'_> {
    fn value(&self) -> Option<&str> {
        let first = self.words.first()?;
        first.split_once('=').map(|(_, value)| value).or_else(|| self.words.get(1).map(|word| word.as_str()))
    }
}

/// A flag owns every word up to the next flag: `--cuda-graph-bs 1 2 4` is one segment.
fn segments(words: &[String]) -> Vec<Segment<'_>> {
    let mut segments: Vec<Segment<'_>> = Vec::new();
    for word in words {
        match (flag_of(word), segments.last_mut()) {
            (None, Some(open)) if open.flag.is_some() => open.words.push(word),
            (flag, _) => segments.push(Segment { flag, words: vec![word] }),
        }
    }
    segments
}

fn flags(words: &[String]) -> BTreeSet<String> {
    segments(words).into_iter().filter_map(|segment| segment.flag).collect()
}

fn without(words: &[String], dropped: &BTreeSet<String>) -> Vec<String> {
    let kept =
        segments(words).into_iter().filter(|segment| segment.flag.as_ref().is_none_or(|flag| !dropped.contains(flag)));
    kept.flat_map(|segment| segment.words).cloned().collect()
}

/// `--tp-size=8` → `tensor-parallel-size`. Negative numbers are values.
fn flag_of(word: &str) -> Option<String> {
    let name = word.split('=').next().unwrap_or(word);
    let bare = name.trim_start_matches('-');
    let is_flag = name.starts_with('-') && bare.starts_with(|c: char| c.is_ascii_alphabetic());
    is_flag.then(|| canonical(name, bare))
}

/// Names that engines accept for one setting.
const ALIASES: [(&str, &[&str]); 7] = [
    ("tensor-parallel-size", &["tp", "tp-size"]),
    ("pipeline-parallel-size", &["pp", "pp-size"]),
    ("data-parallel-size", &["dp", "dp-size"]),
    ("expert-parallel-size", &["ep", "ep-size"]),
    ("model-path", &["model"]),
    ("quantization", &["q"]),
    ("disable-log-requests", &["no-enable-log-requests"]),
];

/// Whole names that an unambiguous prefix may stand for, as argparse reads them.
const WHOLE: [&str; 20] = [
    "chunked-prefill-size",
    "context-length",
    "cuda-graph-bs",
    "cuda-graph-max-bs",
    "enable-chunked-prefill",
    "enable-prefix-caching",
    "gpu-memory-utilization",
    "kv-cache-dtype",
    "max-model-len",
    "max-num-batched-tokens",
    "max-num-seqs",
    "max-running-requests",
    "mem-fraction-static",
    "model-path",
    "num-speculative-tokens",
    "pipeline-parallel-size",
    "served-model-name",
    "tensor-parallel-size",
    "tokenizer-path",
    "trust-remote-code",
];

fn canonical(name: &str, bare: &str) -> String {
    let bare = bare.replace('_', "-");
    // `-m`, `-c`: short flags of other programs (`python3 -m`) are themselves.
    let short = !name.starts_with("--") && bare.len() == 1 && bare != "q";
    if short {
        return format!("-{bare}");
    }
    if let Some((whole, _)) = ALIASES.iter().find(|(whole, aliases)| *whole == bare || aliases.contains(&bare.as_str()))
    {
        return (*whole).to_owned();
    }
    let mut longer = WHOLE.iter().filter(|whole| bare.len() > 3 && whole.starts_with(&bare));
    match (WHOLE.contains(&bare.as_str()), longer.next(), longer.next()) {
        (false, Some(whole), None) => (*whole).to_owned(),
        _ => bare,
    }
}

/// A shell string holds many words.
fn split_script(word: &str) -> Vec<String> {
    if !word.contains(char::is_whitespace) {
        return vec![word.to_owned()];
    }
    word.split_whitespace().map(|part| part.trim_matches(['"', '\'', '\\']).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[rstest]
    // spec: ACC-119
    #[case::story_8_scenario_2(
        "",
        "--host=0.0.0.0 --port=8080 --model-path=${MODEL_PATH} --tp-size=8 --trust-remote-code",
        "--enable-prefix-caching --enable-cuda-graph --enable-chunked-prefill --num-speculative-tokens=5",
        "--host=0.0.0.0 --port=8080 --model-path=${MODEL_PATH} --tp-size=8 --trust-remote-code --enable-prefix-caching --enable-cuda-graph --enable-chunked-prefill --num-speculative-tokens=5"
    )]
    // spec: ACC-91
    #[case::a_repeated_flag_loses_all_its_values(
        "--cuda-graph-bs 1 2 4 --port 80",
        "--cuda-graph-bs 8 16",
        "",
        "--port 80 --cuda-graph-bs 8 16"
    )]
    #[case::repeated_flags_survive(
        "--lora-modules a --lora-modules b",
        "--port 80",
        "",
        "--lora-modules a --lora-modules b --port 80"
    )]
    #[case::negative_values("--seed -1 --port 80", "--seed -5", "", "--port 80 --seed -5")]
    // spec: ACC-92
    #[case::aliases("--port 80", "--tp 4", "--tensor-parallel-size=8 --x", "--port 80 --tp 4 --x")]
    #[case::prefix("", "--mem-frac=0.8", "--mem-fraction-static 0.95", "--mem-frac=0.8")]
    #[case::not_aliases(
        "",
        "--mem-fraction-static=0.8",
        "--gpu-memory-utilization=0.9",
        "--mem-fraction-static=0.8 --gpu-memory-utilization=0.9"
    )]
    // spec: ACC-90
    #[case::accelerator_over_runtime("--tp-size 1 --x", "", "--tp 2", "--x --tp 2")]
    fn merged(#[case] runtime: &str, #[case] service: &str, #[case] accelerator: &str, #[case] expect: &str) {
        let line = |text: &str| Line { command: Vec::new(), args: words(text) };
        let (merged, warnings) = merge(&line(runtime), &line(service), &words(accelerator));
        assert_eq!(merged.args, words(expect));
        assert!(warnings.is_empty());
    }

    #[rstest]
    #[case::list(
        "python3 -m sglang.launch_server --tp-size 1 --host 0.0.0.0",
        "python3 -m sglang.launch_server --host 0.0.0.0",
        "--tp 2",
        false
    )]
    #[case::shell("sh -c exec", "sh -c exec", "", true)]
    fn a_command_of_the_runtime(#[case] command: &str, #[case] expect: &str, #[case] args: &str, #[case] warned: bool) {
        let runtime = Line { command: words(command), args: Vec::new() };
        let (merged, warnings) = merge(&runtime, &Line::default(), &words("--tp 2"));
        assert_eq!((merged.command, merged.args), (words(expect), words(args)));
        assert_eq!(!warnings.is_empty(), warned);
    }

    #[test]
    fn a_command_of_the_service_switches_accelerator_args_off() {
        let service = Line { command: words("my-engine"), args: Vec::new() };
        let (merged, warnings) =
            merge(&Line { command: words("other"), args: words("--a") }, &service, &words("--tp 2"));
        assert_eq!(merged, service);
        assert_eq!(warnings[0].code, "AcceleratorArgsNotApplied");
    }

    #[rstest]
    #[case("vllm serve x --tensor-parallel-size=4 --pp 2", Some(8))]
    #[case("--tp-size 16", Some(16))]
    #[case("--tp-size $(PARALLELISM_SIZE)", None)]
    #[case("--port 80", None)]
    fn stated_parallelism(#[case] line: &str, #[case] expect: Option<u32>) {
        assert_eq!(parallelism(line.split(' ')), expect);
        assert_eq!(parallelism(["sh", "-c", line]), expect);
    }
}

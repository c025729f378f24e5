//! Finds the line of a log that explains why a container crashed.

use std::borrow::Cow;

/// Maximum length of a quoted log line, in characters.
const MAX_LENGTH: usize = 200;
/// Texts of lines that refer to an explanation instead of containing it.
const REFERENCES: [&str; 4] = [
    "For further information visit",
    "See root cause above",
    "Engine core initialization failed",
    "During handling of",
];
/// Texts of lines without an exception that explain a failure, in lower case.
const FAILURES: [&str; 5] = ["no such file", "not found", "error:", "fatal", "panic"];

/// Returns the line that explains a crash, shortened to 200 characters: the last exception with its message, else the last
/// line that names a failure, else the last line with a letter or digit.
#[must_use]
pub fn error_line(log: &str) -> Option<String> {
    let has_text = |line: &&str| line.chars().any(char::is_alphanumeric);
    let lines: Vec<&str> = log.lines().map(str::trim).filter(has_text).collect();
    let explains = |line: &&&str| !REFERENCES.iter().any(|reference| line.contains(reference));
    let explaining = || lines.iter().enumerate().rev().filter(|(_, line)| explains(line));
    let last_exception = explaining().find_map(|(index, line)| {
        let exception = exception(line)?;
        // pydantic writes the cause into the lines after the exception.
        let next =
            lines.get(index.saturating_add(1)).filter(|_| exception.contains(" validation error")).filter(explains);
        Some(next.map_or(Cow::Borrowed(exception), |next| {
            let cause = lines.get(index.saturating_add(2)).filter(|_| is_field_name(next));
            cause.map_or(Cow::Borrowed(*next), |cause| Cow::Owned(format!("{next}: {cause}")))
        }))
    });
    let names_failure = |line: &str| {
        let line = line.to_lowercase();
        FAILURES.iter().any(|failure| line.contains(failure))
    };
    let line = last_exception
        .or_else(|| explaining().map(|(_, line)| *line).find(|line| names_failure(line)).map(Cow::Borrowed))
        .or_else(|| explaining().map(|(_, line)| *line).next().map(Cow::Borrowed))
        .or_else(|| lines.last().copied().map(Cow::Borrowed))?;
    let shortened: String = line.chars().take(MAX_LENGTH).collect();
    Some(if shortened.len() < line.len() { format!("{shortened}…") } else { shortened })
}

/// Returns the part of the line from the name of an exception, such as `torch.OutOfMemoryError: …`. Log prefixes precede it.
fn exception(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().scan(line, |rest, word| {
        let start = rest.find(word)?;
        let from_word = rest.get(start..)?;
        *rest = from_word.get(word.len()..)?;
        Some((word, from_word))
    });
    words.find_map(|(word, from_word)| {
        let name = word.strip_suffix(':')?.rsplit('.').next()?;
        let is_exception = (name.ends_with("Error") || name.ends_with("Exception")) && name.len() > "Error".len();
        is_exception.then_some(from_word)
    })
}

/// Returns whether the line is the path of an invalid field, which pydantic writes before the error.
fn is_field_name(line: &str) -> bool {
    line.chars().all(|character| character.is_alphanumeric() || matches!(character, '_' | '.' | '-'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PYDANTIC: &str = "\
INFO 11-20 10:00:00 [api_server.py:1839] vLLM API server version 0.11.0
Traceback (most recent call last):
  File \"/usr/local/bin/vllm\", line 8, in <module>
    sys.exit(main())
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (131072) is greater than the derived max_model_len (8192). [type=value_error]
    For further information visit https://errors.pydantic.dev/2.12/v/value_error
";
    const PYDANTIC_FIELD: &str = "\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ParallelConfig
tensor_parallel_size
  Input should be greater than 0 [type=greater_than, input_value=0, input_type=int]
    For further information visit https://errors.pydantic.dev/2.12/v/greater_than
";
    const ENGINE_CORE: &str = "\
(EngineCore_DP0 pid=71) ERROR 11-20 10:00:00 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}
";
    const MISSING_FILE: &str = "\
INFO loading /mnt/models/m
sh: 1: exec: /opt/run.sh: No such file or directory
INFO container exits
";
    const AFTER_EXCEPTION: &str = "\
FileNotFoundError: [Errno 2] No such file or directory: '/mnt/models/m/config.json'
INFO shutting down
";

    #[rstest]
    #[case::last_line("INFO start\nValueError: no such model\n", Some("ValueError: no such model"))]
    #[case::skips_punctuation("RuntimeError: out of memory\n^^^^^\n\n", Some("RuntimeError: out of memory"))]
    #[case::blank_lines("\n  \n", None)]
    #[case::pydantic(
        PYDANTIC,
        Some(
            "Value error, User-specified max_model_len (131072) is greater than the derived max_model_len (8192). [type=value_error]"
        )
    )]
    #[case::pydantic_field(
        PYDANTIC_FIELD,
        Some(
            "tensor_parallel_size: Input should be greater than 0 [type=greater_than, input_value=0, input_type=int]"
        )
    )]
    #[case::root_cause_of_engine_core(
        ENGINE_CORE,
        Some("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB")
    )]
    #[case::missing_file(MISSING_FILE, Some("sh: 1: exec: /opt/run.sh: No such file or directory"))]
    #[case::lines_after_the_exception(
        AFTER_EXCEPTION,
        Some("FileNotFoundError: [Errno 2] No such file or directory: '/mnt/models/m/config.json'")
    )]
    #[case::usage_error(
        "usage: vllm serve [model]\nvllm: error: unrecognized arguments: --foo\n",
        Some("vllm: error: unrecognized arguments: --foo")
    )]
    #[case::only_a_reference("RuntimeError: See root cause above\n", Some("RuntimeError: See root cause above"))]
    #[case::no_failure("INFO a\nINFO b\n", Some("INFO b"))]
    fn finds_the_explaining_line(#[case] log: &str, #[case] expected: Option<&str>) {
        assert_eq!(error_line(log).as_deref(), expected);
    }

    #[test]
    fn shortens_long_line() {
        assert_eq!(error_line(&"x".repeat(300)).unwrap().chars().count(), MAX_LENGTH + 1);
    }
}

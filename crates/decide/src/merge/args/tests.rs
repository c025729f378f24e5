use super::*;
use crate::merge::flags;
use proptest::prelude::*;
use rstest::rstest;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn args(text: &str) -> CommandLine {
    CommandLine { command: Vec::new(), args: words(text) }
}

fn command_lines(runtime: &str, service: &str, configuration: &str) -> Sources<CommandLine> {
    Sources { runtime: args(runtime), configuration: args(configuration), service: args(service) }
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
#[case::overrides_all_values_of_a_flag(
    "--cuda-graph-bs 1 2 4 --port 80",
    "--cuda-graph-bs 8 16",
    "",
    "--port 80 --cuda-graph-bs 8 16"
)]
#[case::retains_repeated_flags(
    "--lora-modules a --lora-modules b",
    "--port 80",
    "",
    "--lora-modules a --lora-modules b --port 80"
)]
#[case::negative_values("--seed -1 --port 80", "--seed -5", "", "--port 80 --seed -5")]
#[case::word_after_switch_is_positional(
    "--trust-remote-code org/model --x 1",
    "--trust-remote-code",
    "",
    "org/model --x 1 --trust-remote-code"
)]
#[case::word_after_inline_value_is_positional("--port=80 org/model", "--port 81", "", "org/model --port 81")]
// spec: ACC-92
#[case::aliases("--port 80", "--tp 4", "--tensor-parallel-size=8 --x", "--port 80 --tp 4 --x")]
#[case::unique_prefix("", "--mem-frac=0.8", "--mem-fraction-static 0.95", "--mem-frac=0.8")]
#[case::negations("", "--no-enable-prefix-caching", "--enable-prefix-caching --x", "--no-enable-prefix-caching --x")]
#[case::similar_flags_of_different_engines(
    "",
    "--mem-fraction-static=0.8",
    "--gpu-memory-utilization=0.9",
    "--mem-fraction-static=0.8 --gpu-memory-utilization=0.9"
)]
// spec: ACC-90
#[case::configuration_overrides_runtime("--tp-size 1 --x", "", "--tp 2", "--x --tp 2")]
#[case::order_of_sources("--r 1", "--u 1", "--a 1", "--r 1 --u 1 --a 1")]
fn merges_arguments(#[case] runtime: &str, #[case] service: &str, #[case] configuration: &str, #[case] expected: &str) {
    let merged = merge_args(&command_lines(runtime, service, configuration));
    assert_eq!(merged.command_line.args, words(expected));
    assert!(merged.warnings.is_empty());
}

#[test]
fn preserves_json_and_templates() {
    let arguments = [
        r#"--speculative-config={"model": "a=b", "num": 5}"#,
        "--chat-template",
        "{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
        "--override-generation-config",
        r#"{"--temperature": 0.5}"#,
    ];
    let runtime = CommandLine { command: Vec::new(), args: arguments.map(str::to_owned).into() };
    let merged =
        merge_args(&Sources { runtime: runtime.clone(), configuration: args("--tp 2"), service: args("--port 1") });
    assert_eq!(merged.command_line.args[..arguments.len()], runtime.args);
}

#[rstest]
// spec: ACC-94
#[case::no_shell(
    "python3 -m sglang.launch_server --tp-size 1 --host 0.0.0.0",
    "python3 -m sglang.launch_server --host 0.0.0.0",
    "--tp 2",
    false
)]
#[case::shell_script("sh -c exec", "sh -c exec", "", true)]
#[case::login_shell("/bin/bash -ec exec", "/bin/bash -ec exec", "", true)]
#[case::after_env("/usr/bin/env bash -o pipefail -c exec", "/usr/bin/env bash -o pipefail -c exec", "", true)]
#[case::shell_with_script_file("bash run.sh --gc 1", "bash run.sh --gc 1", "--tp 2", false)]
fn merges_into_runtime_command(
    #[case] command: &str,
    #[case] expected: &str,
    #[case] args: &str,
    #[case] has_warning: bool,
) {
    let runtime = CommandLine { command: words(command), args: Vec::new() };
    let merged = merge_args(&Sources { runtime, configuration: self::args("--tp 2"), service: CommandLine::default() });
    assert_eq!((merged.command_line.command, merged.command_line.args), (words(expected), words(args)));
    let codes: Vec<&str> = merged.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, if has_warning { vec!["AcceleratorArgsNotApplied"] } else { vec![] });
}

/// A script is detected in `command` and in `args`.
#[rstest]
#[case::script_in_args("bash", "-c exec", true)]
#[case::shell_and_script_in_args("", "sh -c exec", true)]
#[case::after_init_process("tini --", "bash -ec exec", true)]
#[case::flag_value_that_looks_like_a_shell("serve", "--chat-template /bin/sh -c", false)]
fn detects_shell_scripts(#[case] command: &str, #[case] args: &str, #[case] is_script: bool) {
    let runtime = CommandLine { command: words(command), args: words(args) };
    let sources =
        Sources { runtime: runtime.clone(), configuration: self::args("--tp 2"), service: CommandLine::default() };
    let merged = merge_args(&sources);
    assert_eq!((merged.command_line == runtime, merged.warnings.len()), (is_script, usize::from(is_script)));
}

// spec: ACC-93
#[test]
fn service_command_disables_accelerator_args() {
    let service = CommandLine { command: words("my-engine"), args: Vec::new() };
    let runtime = CommandLine { command: words("other"), args: words("--a") };
    let merged = merge_args(&Sources { runtime, configuration: args("--tp 2"), service: service.clone() });
    assert_eq!(merged.command_line, service);
    assert_eq!(merged.warnings[0].code, "AcceleratorArgsNotApplied");
}

#[test]
fn configuration_command_replaces_arguments() {
    let runtime = CommandLine { command: words("other"), args: words("--a") };
    let configuration = CommandLine { command: words("tuned"), args: words("--tp 2 --b") };
    let merged = merge_args(&Sources { runtime, configuration, service: args("--tp 4") });
    assert_eq!(merged.command_line, CommandLine { command: words("tuned"), args: words("--b --tp 4") });
}

#[rstest]
#[case::without_parameters("exec vllm serve", 1)]
#[case::with_parameters("exec vllm serve \"$@\"", 0)]
fn warns_about_arguments_after_script(#[case] script: &str, #[case] warnings: usize) {
    let command = ["sh", "-c", script, "--"].map(str::to_owned).into();
    let runtime = CommandLine { command, args: Vec::new() };
    let merged = merge_args(&Sources { runtime, configuration: CommandLine::default(), service: args("--tp 4") });
    assert_eq!((merged.command_line.args, merged.warnings.len()), (words("--tp 4"), warnings));
}

// spec: ACC-86
#[test]
fn reports_the_source_of_every_flag() {
    let merged = merge_args(&command_lines("--tp-size 1 --port 80", "--port 81", "--tp 2 --port 82"));
    let settings: Vec<String> = merged
        .settings
        .iter()
        .map(|setting| {
            let overridden: Vec<&str> = setting.overridden.iter().map(|value| value.value.as_str()).collect();
            format!("{} {} {} {overridden:?}", setting.field, setting.value, setting.origin.as_str())
        })
        .collect();
    assert_eq!(
        settings,
        ["args --tp 2 accelerator configuration [\"--tp-size 1\"]", "args --port 81 service [\"82\", \"80\"]",]
    );
}

/// Overridden values keep the flag spelling of their source.
// spec: ACC-86
#[rstest]
#[case::equal_value_of_alias("--tp 2", "--tensor-parallel-size=2", "--tensor-parallel-size 2 []")]
#[case::other_value_of_alias("--tp 2", "--tensor-parallel-size=4", "--tensor-parallel-size 4 [\"--tp 2\"]")]
#[case::negation(
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--no-enable-prefix-caching  [\"--enable-prefix-caching\"]"
)]
#[case::underscores("--max_model_len 1", "--max-model-len 2", "--max-model-len 2 [\"--max_model_len 1\"]")]
#[case::repeated("--lora-paths a --lora-paths b", "--lora-paths=c", "--lora-paths c [\"a, b\"]")]
fn reports_settings_as_written_by_their_source(#[case] runtime: &str, #[case] service: &str, #[case] expected: &str) {
    let settings = merge_args(&command_lines(runtime, service, "")).settings;
    let [setting] = settings.as_slice() else { panic!("{settings:?}") };
    let overridden: Vec<&str> = setting.overridden.iter().map(|value| value.value.as_str()).collect();
    assert_eq!(format!("{} {} {overridden:?}", setting.field, setting.value), format!("args {expected}"));
}

#[rstest]
#[case("--tp-size 1 --port 80", Some("--tp-size 8 --port 80"))]
#[case("--port 80 -tp=1 --tensor-parallel-size=2", Some("--port 80 -tp=8 --tensor-parallel-size=8"))]
#[case("--port 80", None)]
fn replaces_tensor_parallel_size(#[case] line: &str, #[case] expected: Option<&str>) {
    let mut args: Vec<String> = line.split(' ').map(str::to_owned).collect();
    assert_eq!(replace_tensor_parallel_size(&mut args, 8), expected.is_some());
    assert_eq!(args.join(" "), expected.unwrap_or(line));
}

/// Generates a flag with values. There are few flags with several spellings each, so that sources conflict.
fn any_flag() -> impl Strategy<Value = Vec<String>> {
    let name = prop::sample::select(vec![
        "--tp",
        "--tp-size",
        "--tensor-parallel-size",
        "--mem-frac",
        "--mem-fraction-static",
        "--port",
        "--cuda-graph-bs",
        "--lora-modules",
        "--enable-x",
        "--no-enable-x",
        "--seed",
        "-q",
        "--quantization",
    ]);
    let value = prop::sample::select(vec!["1", "-1", "0.5", "a=b", "{\"k\": \"--v\"}", "$(X)", "{{ x }}"]);
    (name, prop::collection::vec(value, 0..3), any::<bool>()).prop_map(|(name, values, is_inline)| {
        let is_switch = flags::is_switch(name);
        match (values.first(), is_inline) {
            (Some(first), true) if !is_switch => vec![format!("{name}={first}")],
            _ if is_switch => vec![name.to_owned()],
            _ => std::iter::once(name).chain(values).map(str::to_owned).collect(),
        }
    })
}

fn any_args() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any_flag(), 0..6).prop_map(|flags| flags.concat())
}

fn any_command_lines() -> impl Strategy<Value = Sources<CommandLine>> {
    let command = prop::sample::select(vec![vec![], words("python3 -m engine --tp 1 --port 80")]);
    (command, any_args(), any_args(), any_args()).prop_map(|(command, runtime, configuration, service)| Sources {
        runtime: CommandLine { command, args: runtime },
        configuration: CommandLine { command: Vec::new(), args: configuration },
        service: CommandLine { command: Vec::new(), args: service },
    })
}

/// Returns whether `part` is a subsequence of `whole`.
fn is_subsequence(words: &[String], args: &[String]) -> bool {
    let mut rest = args.iter();
    words.iter().all(|word| rest.any(|other| other == word))
}

proptest! {
    #[test]
    fn user_arguments_stay_contiguous(sources in any_command_lines()) {
        let service_args = &sources.service.args;
        let args = merge_args(&sources).command_line.args;
        prop_assert!(service_args.is_empty() || args.windows(service_args.len()).any(|window| window == service_args.as_slice()));
    }

    #[test]
    fn merging_is_idempotent(sources in any_command_lines()) {
        let once = merge_args(&sources).command_line;
        let twice = merge_args(&Sources { runtime: once.clone(), ..sources }).command_line;
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn every_setting_has_one_source(sources in any_command_lines()) {
        let line = merge_args(&sources).command_line;
        let words = [line.command.as_slice(), &line.args].concat();
        let count = |words: &[String], key: &FlagKey| segments(words).iter().filter(|segment| segment.key == *key).count();
        let args_by_source = [
            [sources.runtime.command.as_slice(), &sources.runtime.args].concat(),
            sources.configuration.args.clone(),
            sources.service.args.clone(),
        ];
        for key in keys(&words) {
            let strongest = [&args_by_source[2], &args_by_source[1], &args_by_source[0]].into_iter().map(|words| count(words, &key)).find(|count| *count > 0);
            prop_assert_eq!(Some(count(&words, &key)), strongest);
        }
    }

    #[test]
    fn sources_are_not_reordered(sources in any_command_lines()) {
        let args = merge_args(&sources).command_line.args;
        let without_service_flags = |words: &[String]| without_keys(words, &keys(&sources.service.args));
        prop_assert!(is_subsequence(&without_service_flags(&sources.configuration.args), &args));
        let stronger = keys(&[sources.service.args.as_slice(), &sources.configuration.args].concat());
        prop_assert!(is_subsequence(&without_keys(&sources.runtime.args, &stronger), &args));
    }
}

use super::*;
use proptest::prelude::*;
use rstest::rstest;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn args(text: &str) -> CommandLine {
    CommandLine { command: Vec::new(), args: words(text) }
}

fn lines(runtime: &str, service: &str, accelerator: &str) -> Sources<CommandLine> {
    Sources { runtime: args(runtime), configuration: args(accelerator), service: args(service) }
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
#[case::a_word_after_a_switch_is_not_its_value(
    "--trust-remote-code org/model --x 1",
    "--trust-remote-code",
    "",
    "org/model --x 1 --trust-remote-code"
)]
#[case::a_word_after_a_value_is_not_a_second("--port=80 org/model", "--port 81", "", "org/model --port 81")]
// spec: ACC-92
#[case::aliases("--port 80", "--tp 4", "--tensor-parallel-size=8 --x", "--port 80 --tp 4 --x")]
#[case::prefix("", "--mem-frac=0.8", "--mem-fraction-static 0.95", "--mem-frac=0.8")]
#[case::opposites("", "--no-enable-prefix-caching", "--enable-prefix-caching --x", "--no-enable-prefix-caching --x")]
#[case::not_aliases(
    "",
    "--mem-fraction-static=0.8",
    "--gpu-memory-utilization=0.9",
    "--mem-fraction-static=0.8 --gpu-memory-utilization=0.9"
)]
// spec: ACC-90
#[case::accelerator_over_runtime("--tp-size 1 --x", "", "--tp 2", "--x --tp 2")]
#[case::runtime_then_user_then_accelerator("--r 1", "--u 1", "--a 1", "--r 1 --u 1 --a 1")]
fn merged(#[case] runtime: &str, #[case] service: &str, #[case] accelerator: &str, #[case] expect: &str) {
    let merged = merge_args(&lines(runtime, service, accelerator));
    assert_eq!(merged.line.args, words(expect));
    assert!(merged.warnings.is_empty());
}

#[test]
fn json_and_templates_pass_byte_for_byte() {
    let odd = [
        r#"--speculative-config={"model": "a=b", "num": 5}"#,
        "--chat-template",
        "{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
        "--override-generation-config",
        r#"{"--temperature": 0.5}"#,
    ];
    let runtime = CommandLine { command: Vec::new(), args: odd.map(str::to_owned).into() };
    let merged =
        merge_args(&Sources { runtime: runtime.clone(), configuration: args("--tp 2"), service: args("--port 1") });
    assert_eq!(merged.line.args[..odd.len()], runtime.args);
}

#[rstest]
// spec: ACC-94
#[case::list(
    "python3 -m sglang.launch_server --tp-size 1 --host 0.0.0.0",
    "python3 -m sglang.launch_server --host 0.0.0.0",
    "--tp 2",
    false
)]
#[case::shell("sh -c exec", "sh -c exec", "", true)]
#[case::login_shell("/bin/bash -ec exec", "/bin/bash -ec exec", "", true)]
#[case::behind_env("/usr/bin/env bash -o pipefail -c exec", "/usr/bin/env bash -o pipefail -c exec", "", true)]
#[case::a_shell_that_runs_a_file("bash run.sh --gc 1", "bash run.sh --gc 1", "--tp 2", false)]
fn a_command_of_the_runtime(#[case] command: &str, #[case] expect: &str, #[case] args: &str, #[case] warned: bool) {
    let runtime = CommandLine { command: words(command), args: Vec::new() };
    let merged = merge_args(&Sources { runtime, configuration: self::args("--tp 2"), service: CommandLine::default() });
    assert_eq!((merged.line.command, merged.line.args), (words(expect), words(args)));
    let codes: Vec<&str> = merged.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, if warned { vec!["AcceleratorArgsNotApplied"] } else { vec![] });
}

/// Manifests write a script in either field; a shell is one all the same.
#[rstest]
#[case::in_args("bash", "-c exec", true)]
#[case::all_in_args("", "sh -c exec", true)]
#[case::behind_an_init("tini --", "bash -ec exec", true)]
#[case::a_value_that_looks_like_one("serve", "--chat-template /bin/sh -c", false)]
fn a_script_in_the_arguments(#[case] command: &str, #[case] own: &str, #[case] script: bool) {
    let runtime = CommandLine { command: words(command), args: words(own) };
    let sources = Sources { runtime: runtime.clone(), configuration: args("--tp 2"), service: CommandLine::default() };
    let merged = merge_args(&sources);
    assert_eq!((merged.line == runtime, merged.warnings.len()), (script, usize::from(script)));
}

// spec: ACC-93
#[test]
fn a_command_of_the_service_switches_accelerator_args_off() {
    let service = CommandLine { command: words("my-engine"), args: Vec::new() };
    let runtime = CommandLine { command: words("other"), args: words("--a") };
    let merged = merge_args(&Sources { runtime, configuration: args("--tp 2"), service: service.clone() });
    assert_eq!(merged.line, service);
    assert_eq!(merged.warnings[0].code, "AcceleratorArgsNotApplied");
}

#[test]
fn a_command_of_the_configuration_comes_with_its_own_arguments() {
    let runtime = CommandLine { command: words("other"), args: words("--a") };
    let tuning = CommandLine { command: words("tuned"), args: words("--tp 2 --b") };
    let merged = merge_args(&Sources { runtime, configuration: tuning, service: args("--tp 4") });
    assert_eq!(merged.line, CommandLine { command: words("tuned"), args: words("--b --tp 4") });
}

#[rstest]
#[case::reads_nothing("exec vllm serve", 1)]
#[case::reads_all("exec vllm serve \"$@\"", 0)]
fn arguments_behind_a_script(#[case] script: &str, #[case] warnings: usize) {
    let command = ["sh", "-c", script, "--"].map(str::to_owned).into();
    let runtime = CommandLine { command, args: Vec::new() };
    let merged = merge_args(&Sources { runtime, configuration: CommandLine::default(), service: args("--tp 4") });
    assert_eq!((merged.line.args, merged.warnings.len()), (words("--tp 4"), warnings));
}

// spec: ACC-86
#[test]
fn every_flag_says_where_it_comes_from() {
    let merged = merge_args(&lines("--tp-size 1 --port 80", "--port 81", "--tp 2 --port 82"));
    let told: Vec<String> = merged
        .settings
        .iter()
        .map(|setting| {
            let lost: Vec<&str> = setting.overridden.iter().map(|said| said.value.as_str()).collect();
            format!("{} {} {} {lost:?}", setting.field, setting.value, setting.origin.as_str())
        })
        .collect();
    assert_eq!(
        told,
        ["args --tp 2 accelerator configuration [\"--tp-size 1\"]", "args --port 81 service [\"82\", \"80\"]",]
    );
}

/// In the words of whoever said it: what weaker sources said keeps the name they said it by.
// spec: ACC-86
#[rstest]
#[case::the_same_by_another_name("--tp 2", "--tensor-parallel-size=2", "--tensor-parallel-size 2 []")]
#[case::another("--tp 2", "--tensor-parallel-size=4", "--tensor-parallel-size 4 [\"--tp 2\"]")]
#[case::switched_off(
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--no-enable-prefix-caching  [\"--enable-prefix-caching\"]"
)]
#[case::underscores("--max_model_len 1", "--max-model-len 2", "--max-model-len 2 [\"--max_model_len 1\"]")]
#[case::repeated("--lora-paths a --lora-paths b", "--lora-paths=c", "--lora-paths c [\"a, b\"]")]
fn a_setting_is_told_in_the_words_of_who_said_it(#[case] runtime: &str, #[case] service: &str, #[case] expect: &str) {
    let settings = merge_args(&lines(runtime, service, "")).settings;
    let [setting] = settings.as_slice() else { panic!("{settings:?}") };
    let lost: Vec<&str> = setting.overridden.iter().map(|said| said.value.as_str()).collect();
    assert_eq!(format!("{} {} {lost:?}", setting.field, setting.value), format!("args {expect}"));
}

#[rstest]
#[case("vllm serve x --tensor-parallel-size=4 --pp 2", Some(8))]
#[case("--tp-size 16", Some(16))]
#[case("--tp-size $(PARALLELISM_SIZE)", None)]
#[case("--port 80", None)]
#[case::shards_of_tgi("--num-shard 4", Some(4))]
#[case::engines_side_by_side("--tp 2 --dp 4", Some(8))]
#[case::attention_split_by_data("--tp 8 --dp 8 --enable-dp-attention", Some(8))]
fn stated_parallelism(#[case] line: &str, #[case] expect: Option<u32>) {
    assert_eq!(args_parallelism(line.split(' ')), expect);
    assert_eq!(args_parallelism(["sh", "-c", line]), expect);
}

/// A flag with its values, as a person may write it: several spellings of few settings, so that sources meet.
fn flag() -> impl Strategy<Value = Vec<String>> {
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
    (name, prop::collection::vec(value, 0..3), any::<bool>()).prop_map(|(name, values, joined)| {
        let switch = flags::is_switch(name);
        match (values.first(), joined) {
            (Some(first), true) if !switch => vec![format!("{name}={first}")],
            _ if switch => vec![name.to_owned()],
            _ => std::iter::once(name).chain(values).map(str::to_owned).collect(),
        }
    })
}

fn some_args() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(flag(), 0..6).prop_map(|flags| flags.concat())
}

fn some_lines() -> impl Strategy<Value = Sources<CommandLine>> {
    let command = prop::sample::select(vec![vec![], words("python3 -m engine --tp 1 --port 80")]);
    (command, some_args(), some_args(), some_args()).prop_map(|(command, runtime, configuration, service)| Sources {
        runtime: CommandLine { command, args: runtime },
        configuration: CommandLine { command: Vec::new(), args: configuration },
        service: CommandLine { command: Vec::new(), args: service },
    })
}

/// Whether `part` stands in `whole`, in its order.
fn in_order(part: &[String], whole: &[String]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|word| rest.any(|other| other == word))
}

proptest! {
    #[test]
    fn a_users_words_are_all_there_side_by_side(sources in some_lines()) {
        let users = &sources.service.args;
        let args = merge_args(&sources).line.args;
        prop_assert!(users.is_empty() || args.windows(users.len()).any(|window| window == users.as_slice()));
    }

    #[test]
    fn merging_twice_is_merging_once(sources in some_lines()) {
        let once = merge_args(&sources).line;
        let twice = merge_args(&Sources { runtime: once.clone(), ..sources }).line;
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn a_setting_comes_from_one_source(sources in some_lines()) {
        let line = merge_args(&sources).line;
        let whole = [line.command.as_slice(), &line.args].concat();
        let count = |words: &[String], key: &Key| segments(words).iter().filter(|segment| segment.key == *key).count();
        let by = [
            [sources.runtime.command.as_slice(), &sources.runtime.args].concat(),
            sources.configuration.args.clone(),
            sources.service.args.clone(),
        ];
        for key in keys(&whole) {
            let strongest = [&by[2], &by[1], &by[0]].into_iter().map(|words| count(words, &key)).find(|count| *count > 0);
            prop_assert_eq!(Some(count(&whole, &key)), strongest);
        }
    }

    #[test]
    fn no_source_is_reordered(sources in some_lines()) {
        let args = merge_args(&sources).line.args;
        let kept = |words: &[String]| without(words, &keys(&sources.service.args));
        prop_assert!(in_order(&kept(&sources.configuration.args), &args));
        let stronger = keys(&[sources.service.args.as_slice(), &sources.configuration.args].concat());
        prop_assert!(in_order(&without(&sources.runtime.args, &stronger), &args));
    }
}

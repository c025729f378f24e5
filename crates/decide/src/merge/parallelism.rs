//! Parallelism that the sources of a container state, by flags and environment variables.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::args::{TENSOR_PARALLEL_SIZE, split_script};
use super::origin::{Origin, SettingField};
use super::segment::{FlagKey, Segment, segments};
use crate::parallelism::{Parallelism, StatedSize};

/// What one source of a container states about the parallelism of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParallelismSettings {
    /// Flags by size.
    flags: BTreeMap<Size, SizeFlag>,
    /// Whether data parallelism is that of the attention, so that the copies share the accelerators.
    has_attention_copies: bool,
    /// Whether the engine runs one of the copies only, so that their number does not count.
    has_rank: bool,
    /// Whether the source sets the command, so that flags of weaker sources have no effect.
    sets_command: bool,
    /// Environment variables.
    variables: BTreeMap<String, VariableValue>,
}

/// A size of the parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Size {
    Tensor,
    Pipeline,
    Data,
}

/// A flag that states a size.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SizeFlag {
    /// The flag as the source spells it.
    name: String,
    value: FlagValue,
    in_script: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FlagValue {
    Number(u32),
    /// An environment variable, and the number that a script uses if it is not set.
    Variable {
        name: String,
        default: Option<u32>,
    },
    /// Another expression.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum VariableValue {
    Number(u32),
    /// The name of another variable.
    Variable(String),
    /// Not a positive number.
    Unknown,
}

/// Maximum number of variables that refer to each other.
const MAX_REFERENCES: usize = 8;

// === impl Size ===

impl Size {
    const ALL: [Self; 3] = [Self::Tensor, Self::Pipeline, Self::Data];

    /// Returns the canonical name of the flag.
    fn flag(self) -> &'static str {
        match self {
            Self::Tensor => TENSOR_PARALLEL_SIZE,
            Self::Pipeline => "pipeline-parallel-size",
            Self::Data => "data-parallel-size",
        }
    }

    /// Returns the variable that states the size if no flag does.
    fn variable(self) -> &'static str {
        match self {
            Self::Tensor => "TENSOR_PARALLEL_SIZE",
            Self::Pipeline => "PIPELINE_PARALLEL_SIZE",
            Self::Data => "DATA_PARALLEL_SIZE",
        }
    }
}

// === impl ParallelismSettings ===

impl ParallelismSettings {
    /// Reads the command line and the environment of a container.
    #[must_use]
    pub fn new<S: AsRef<str>>(command: &[S], args: &[S], env: &[Value]) -> Self {
        let (mut line, mut scripts) = (Vec::new(), Vec::new());
        for word in command.iter().chain(args).map(AsRef::as_ref) {
            if word.contains(char::is_whitespace) {
                scripts.extend(split_script(word));
            } else {
                line.push(word.to_owned());
            }
        }
        let mut settings = Self { sets_command: !command.is_empty(), ..Self::default() };
        settings.read_flags(&scripts, true);
        settings.read_flags(&line, false);
        let variable = |entry: &Value| {
            let text = entry["value"].as_str().unwrap_or_default();
            Some((entry["name"].as_str()?.to_owned(), VariableValue::read(text)))
        };
        settings.variables.extend(env.iter().filter_map(variable));
        settings
    }

    /// Reads a container.
    #[must_use]
    pub fn of_container(container: &Value) -> Self {
        let list = |field: &str| container[field].as_array().map(Vec::as_slice).unwrap_or_default();
        let words = |field: &str| list(field).iter().filter_map(Value::as_str).collect::<Vec<_>>();
        Self::new(&words("command"), &words("args"), list("env"))
    }

    /// Returns the sizes that this source alone states.
    #[must_use]
    pub fn sizes(&self, origin: Origin) -> Parallelism {
        merge_parallelism(&[(origin, self)])
    }

    /// Whether the size of tensor parallelism is stated, or unknown because of a value that is not a number.
    #[must_use]
    pub fn determines_tensor(&self) -> bool {
        let is_unknown = |flag: &SizeFlag| match &flag.value {
            FlagValue::Number(_) => false,
            FlagValue::Variable { name, default } => {
                variable(&[(Origin::Ostler, self)], name).is_none() && default.is_none()
            }
            FlagValue::Unknown => true,
        };
        self.sizes(Origin::Ostler).tensor.is_some() || self.flags.values().any(is_unknown)
    }

    /// Returns the flag and the name of each variable that states a size, although no flag refers to it. Engines do not read these
    /// variables.
    pub fn unread_variables(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_unread = |size: &Size| {
            !self.flags.contains_key(size) && variable(&[(Origin::Ostler, self)], size.variable()).is_some()
        };
        Size::ALL.into_iter().filter(is_unread).map(|size| (size.flag(), size.variable()))
    }

    /// Replaces what states the size of tensor parallelism by a flag.
    pub(crate) fn set_tensor(&mut self, size: u32) {
        self.remove_tensor();
        let name = format!("--{}", Size::Tensor.flag());
        self.flags.insert(Size::Tensor, SizeFlag { name, value: FlagValue::Number(size), in_script: false });
    }

    /// Removes what states the size of tensor parallelism.
    pub(crate) fn remove_tensor(&mut self) {
        self.variables.remove(Size::Tensor.variable());
        if let Some(SizeFlag { value: FlagValue::Variable { name, .. }, .. }) = self.flags.remove(&Size::Tensor) {
            self.variables.remove(&name);
        }
    }

    fn read_flags(&mut self, words: &[String], in_script: bool) {
        let segments = segments(words);
        let last = |flag: &str| {
            segments.iter().rev().find(|segment| matches!(&segment.key, FlagKey::Flag(name) if name == flag))
        };
        for size in Size::ALL {
            self.flags.extend(last(size.flag()).map(|segment| (size, SizeFlag::read(segment, in_script))));
        }
        self.has_attention_copies |= last("enable-dp-attention").is_some();
        self.has_rank |= last("data-parallel-rank").is_some();
    }
}

// === impl SizeFlag ===

impl SizeFlag {
    fn read(segment: &Segment<'_>, in_script: bool) -> Self {
        let text = segment.values().first().copied().unwrap_or_default();
        let value = match positive(text) {
            Some(number) => FlagValue::Number(number),
            None => referenced_variable(text, in_script).map_or(FlagValue::Unknown, |(name, default)| {
                FlagValue::Variable { name: name.to_owned(), default: default.and_then(positive) }
            }),
        };
        Self { name: segment.name().to_owned(), value, in_script }
    }
}

// === impl VariableValue ===

impl VariableValue {
    fn read(text: &str) -> Self {
        let reference = || referenced_variable(text, false).map(|(name, _)| Self::Variable(name.to_owned()));
        positive(text).map(Self::Number).or_else(reference).unwrap_or(Self::Unknown)
    }
}

/// Returns the parallelism that sources state together, strongest first. Each size is that of the strongest source that states
/// it, by a flag with a number, by a flag with a variable that any source sets, or by the variable that is named after the flag.
pub(crate) fn merge_parallelism(sources: &[(Origin, &ParallelismSettings)]) -> Parallelism {
    let [tensor, pipeline, data] = Size::ALL.map(|size| merged_size(sources, size));
    let is_set = |setting: fn(&ParallelismSettings) -> bool| sources.iter().any(|(_, settings)| setting(settings));
    // With data-parallel attention, the data-parallel ranks share the tensor-parallel ranks' accelerators; otherwise each
    // data-parallel rank requires its own. An engine with a stated rank runs only that one.
    let (data, attention) = match data.filter(|_| !is_set(|settings| settings.has_rank)) {
        copies if is_set(|settings| settings.has_attention_copies) => (None, copies),
        copies => (copies, None),
    };
    Parallelism { tensor, pipeline, data, attention }
}

fn merged_size(sources: &[(Origin, &ParallelismSettings)], size: Size) -> Option<StatedSize> {
    let mut flags_apply = true;
    for (origin, source) in sources {
        let flag = source.flags.get(&size).filter(|_| flags_apply);
        let by_flag = flag.and_then(|flag| {
            let number = |size: u32| {
                let field = Arc::new(SettingField::Flag(flag.name.clone()));
                StatedSize { size, field, origin: *origin, in_script: flag.in_script }
            };
            match &flag.value {
                FlagValue::Number(size) => Some(number(*size)),
                FlagValue::Variable { name, default } => variable(sources, name).or_else(|| {
                    default
                        .filter(|_| !sources.iter().any(|(_, source)| source.variables.contains_key(name)))
                        .map(number)
                }),
                FlagValue::Unknown => None,
            }
        });
        let named_after_flag =
            || source.variables.get(size.variable()).and_then(|_| variable(sources, size.variable()));
        if let Some(stated) = by_flag.or_else(named_after_flag) {
            return Some(stated);
        }
        flags_apply &= flag.is_none() && !source.sets_command;
    }
    None
}

/// Returns the number in a variable, whose value may be another variable.
fn variable(sources: &[(Origin, &ParallelismSettings)], name: &str) -> Option<StatedSize> {
    let find = |name: &str| sources.iter().find_map(|(origin, source)| Some((*origin, source.variables.get(name)?)));
    let (origin, mut value) = find(name)?;
    for _ in 0..MAX_REFERENCES {
        match value {
            VariableValue::Number(size) => {
                let field = Arc::new(SettingField::Env(name.to_owned()));
                return Some(StatedSize { size: *size, field, origin, in_script: false });
            }
            VariableValue::Variable(other) => value = find(other)?.1,
            VariableValue::Unknown => return None,
        }
    }
    None
}

/// Returns the name in `$(NAME)`, and in a script also in `$NAME`, `${NAME}` and `${NAME:-DEFAULT}`, with the default.
fn referenced_variable(text: &str, in_script: bool) -> Option<(&str, Option<&str>)> {
    let enclosed = |open: &str, close: char| text.strip_prefix(open)?.strip_suffix(close);
    let in_shell = || match enclosed("${", '}') {
        Some(expression) => {
            let parts = expression.split_once(":-").or_else(|| expression.split_once('-'));
            Some(parts.map_or((expression, None), |(name, default)| (name, Some(default))))
        }
        None => text.strip_prefix('$').map(|name| (name, None)),
    };
    let in_kubernetes = enclosed("$(", ')').map(|name| (name, None));
    let (name, default) = in_kubernetes.or_else(|| in_script.then(in_shell).flatten())?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, default))
}

fn positive(text: &str) -> Option<u32> {
    text.parse().ok().filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn settings(line: &str, variables: &[(&str, &str)]) -> ParallelismSettings {
        let env: Vec<Value> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let args: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        ParallelismSettings::new(&[], &args, &env)
    }

    /// Displays sizes as `tensor×pipeline×data`, with `-` for those that are not stated.
    fn display(parallelism: &Parallelism) -> String {
        let size = |stated: &Option<StatedSize>| stated.as_ref().map_or("-".to_owned(), |size| size.size.to_string());
        [&parallelism.tensor, &parallelism.pipeline, &parallelism.data].map(size).join("×")
    }

    #[rstest]
    #[case("vllm serve x --tensor-parallel-size=4 --pp 2", "4×2×-")]
    #[case::pipeline_only("--pp 2", "-×2×-")]
    #[case("--tp-size 16", "16×-×-")]
    #[case::unknown_variable("--tp-size $(PARALLELISM_SIZE)", "-×-×-")]
    #[case("--port 80", "-×-×-")]
    #[case::zero("--tp 0", "-×-×-")]
    #[case::tgi_num_shard("--num-shard 4", "4×-×-")]
    #[case::last_flag("--tp 4 --tensor-parallel-size 8", "8×-×-")]
    #[case::data_parallel("--tp 2 --dp 4", "2×-×4")]
    #[case::one_data_parallel_rank("--tp 2 -dp 8 --data-parallel-rank 3", "2×-×-")]
    #[case::data_parallel_attention("--tp 8 --dp 8 --enable-dp-attention", "8×-×-")]
    #[case::one_rank_of_the_attention("--dp 8 --enable-dp-attention --data-parallel-rank 1", "-×-×-")]
    fn reads_flags_in_arguments_and_scripts(#[case] line: &str, #[case] expected: &str) {
        let sizes = settings(line, &[]).sizes(Origin::Service);
        assert_eq!(display(&sizes), expected);
        let script = ParallelismSettings::new(&["sh", "-c"], &[&format!("exec {line}")], &[]).sizes(Origin::Service);
        assert_eq!(display(&script), expected);
        assert!(script.stated().all(|size| size.in_script));
    }

    #[rstest]
    #[case::named_after_flag("", &[("TENSOR_PARALLEL_SIZE", "2"), ("PIPELINE_PARALLEL_SIZE", "3"), ("DATA_PARALLEL_SIZE", "4")], "2×3×4")]
    #[case::another_flag("--dp 2", &[("TENSOR_PARALLEL_SIZE", "4")], "4×-×2")]
    #[case::flag_before_variable("--tp 8", &[("TENSOR_PARALLEL_SIZE", "4")], "8×-×-")]
    #[case::referenced("--tp $(TP) --pp $(PP)", &[("TP", "4"), ("PP", "2"), ("TENSOR_PARALLEL_SIZE", "1")], "4×2×-")]
    #[case::shell_syntax_outside_scripts("--tp $TP", &[("TP", "4")], "-×-×-")]
    #[case::variable_of_a_variable("--tp $(TP)", &[("BASE", "4"), ("TP", "$(BASE)")], "4×-×-")]
    #[case::variable_of_itself("--tp $(TP)", &[("TP", "$(TP)")], "-×-×-")]
    #[case::no_number("--tp $(TP)", &[("TP", "auto")], "-×-×-")]
    #[case::not_positive("", &[("TENSOR_PARALLEL_SIZE", "0")], "-×-×-")]
    fn reads_variables(#[case] line: &str, #[case] variables: &[(&str, &str)], #[case] expected: &str) {
        assert_eq!(display(&settings(line, variables).sizes(Origin::Service)), expected);
    }

    #[rstest]
    #[case("--tp $TP")]
    #[case("--tp=${TP}")]
    #[case("--tp \"$TP\" --port 80")]
    #[case("--tp $(TP)")]
    fn reads_variables_in_scripts(#[case] line: &str) {
        let env = [json!({"name": "TP", "value": "4"})];
        let sizes =
            ParallelismSettings::new(&["sh", "-c"], &[&format!("exec vllm {line}")], &env).sizes(Origin::Service);
        let tensor = sizes.tensor.unwrap();
        assert_eq!((tensor.size, tensor.in_script, &*tensor.field), (4, false, &SettingField::Env("TP".to_owned())));
    }

    #[rstest]
    #[case::default("--tp ${TP:-4}", &[], 4, true)]
    #[case::variable("--tp ${TP:-4}", &[("TP", "8")], 8, false)]
    fn reads_defaults_of_variables_in_scripts(
        #[case] line: &str,
        #[case] variables: &[(&str, &str)],
        #[case] expected: u32,
        #[case] in_script: bool,
    ) {
        let env: Vec<Value> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let script = ParallelismSettings::new(&["sh", "-c"], &[&format!("exec vllm {line}")], &env);
        let tensor = script.sizes(Origin::Service).tensor.unwrap();
        assert_eq!((tensor.size, tensor.in_script), (expected, in_script));
    }

    /// Columns: runtime, service (flags and one variable each), sizes, origin of tensor parallelism.
    #[rstest]
    #[case::each_size(("--tp 4 --pp 2", None), ("--dp 3", None), "4×2×3", Origin::Runtime)]
    #[case::service_first(("--tp 4", None), ("--tp 2", None), "2×-×-", Origin::Service)]
    #[case::variable_of_the_service(("--tp $(TP)", Some(("TP", "2"))), ("", Some(("TP", "8"))), "8×-×-", Origin::Service)]
    #[case::variable_of_the_runtime(("", Some(("TP", "2"))), ("--tp $(TP)", None), "2×-×-", Origin::Runtime)]
    #[case::variable_over_flag(("--tp 2", None), ("", Some(("TENSOR_PARALLEL_SIZE", "8"))), "8×-×-", Origin::Service)]
    #[case::shared_by_the_service(("--tp 8 --dp 8", None), ("--enable-dp-attention", None), "8×-×-", Origin::Runtime)]
    fn merges_sources(
        #[case] runtime: (&str, Option<(&str, &str)>),
        #[case] service: (&str, Option<(&str, &str)>),
        #[case] expected: &str,
        #[case] origin: Origin,
    ) {
        let [runtime, service] = [runtime, service].map(|(line, variable)| settings(line, variable.as_slice()));
        let merged = merge_parallelism(&[(Origin::Service, &service), (Origin::Runtime, &runtime)]);
        assert_eq!((display(&merged).as_str(), merged.tensor.map(|size| size.origin)), (expected, Some(origin)));
    }

    #[rstest]
    #[case::nothing("--port 80", &[], false)]
    #[case::flag("--tp 1", &[], true)]
    #[case::variable("", &[("TENSOR_PARALLEL_SIZE", "2")], true)]
    #[case::unknown_variable("--tp $(TP)", &[], true)]
    #[case::unknown_copies("--dp $(DP)", &[], true)]
    #[case::copies("--dp 2", &[], false)]
    #[case::template("--tp {{ tp }}", &[], true)]
    fn knows_whether_tensor_parallelism_is_determined(
        #[case] line: &str,
        #[case] variables: &[(&str, &str)],
        #[case] expected: bool,
    ) {
        assert_eq!(settings(line, variables).determines_tensor(), expected);
    }

    #[test]
    fn finds_variables_that_no_flag_refers_to() {
        let variables = [("TENSOR_PARALLEL_SIZE", "2"), ("PIPELINE_PARALLEL_SIZE", "3"), ("DATA_PARALLEL_SIZE", "x")];
        let settings = settings("--pp $(PIPELINE_PARALLEL_SIZE)", &variables);
        assert_eq!(settings.unread_variables().collect::<Vec<_>>(), [("tensor-parallel-size", "TENSOR_PARALLEL_SIZE")]);
    }

    #[test]
    fn a_flag_replaces_that_of_a_weaker_source_even_if_its_value_is_unknown() {
        let (runtime, service) = (settings("--tp 8", &[]), settings("--tp $(PARALLELISM_SIZE)", &[]));
        let merged = merge_parallelism(&[(Origin::Service, &service), (Origin::Runtime, &runtime)]);
        assert_eq!(display(&merged), "-×-×-");
    }

    #[test]
    fn a_command_discards_flags_of_weaker_sources() {
        let runtime = settings("--tp 8 --pp 2", &[("DATA_PARALLEL_SIZE", "2")]);
        let service = ParallelismSettings::new(&["vllm", "serve", "x"], &["--tp", "4"], &[]);
        let merged = merge_parallelism(&[(Origin::Service, &service), (Origin::Runtime, &runtime)]);
        assert_eq!(display(&merged), "4×-×2");
    }

    #[test]
    fn replaces_tensor_parallelism() {
        let mut settings = settings("--tp $(TP)", &[("TP", "4"), ("TENSOR_PARALLEL_SIZE", "2")]);
        settings.set_tensor(8);
        assert_eq!(display(&settings.sizes(Origin::Service)), "8×-×-");
        settings.remove_tensor();
        assert_eq!(display(&settings.sizes(Origin::Service)), "-×-×-");
    }
}

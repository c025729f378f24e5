use rstest::rstest;

use super::*;
use crate::{
    filter::{Filter, Operator, Role},
    policy::{Decider, ProfileHandler},
    prefix_index::PrefixConfig,
    profile::{Picker, Profile},
    score::Scorer,
};

fn config(rest: &str) -> String {
    format!("apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n{rest}")
}

fn policy(rest: &str) -> SchedulingPolicy {
    let ParsedConfig { policy, warnings } = parse_config(&config(rest)).unwrap();
    assert_eq!(warnings, [], "no warnings");
    policy
}

fn single(policy: SchedulingPolicy) -> Profile {
    match policy.profile_handler {
        ProfileHandler::Single(profile) => profile,
        ProfileHandler::PrefillDecode { .. } => panic!("expected a single profile"),
    }
}

fn warnings(rest: &str) -> Vec<String> {
    parse_config(&config(rest)).unwrap().warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn without_configuration_the_cost_decides() {
    let policy = parse_config(" \n").unwrap().policy;
    assert_eq!(policy, SchedulingPolicy::default());
    let ProfileHandler::PrefillDecode { prefill, decode, decider } = policy.profile_handler else { panic!() };
    assert_eq!(decider, Decider::UncachedBytesAbove { bytes: 0 });
    for (profile, role) in [(prefill, Role::Prefill), (decode, Role::Decode)] {
        assert_eq!(profile.filters, [Filter::Role(role)]);
        assert_eq!((profile.scorers, profile.picker, profile.max_endpoints), (vec![], Picker::LeastCost, 1));
    }
}

#[test]
fn default_prefix_config_of_scorers() {
    let policy = policy("plugins: [{type: prefix-cache-scorer}]");
    assert_eq!(policy.prefix_configs, [PrefixConfig { block_size: 64, max_blocks: 256, lru_capacity: 31_250 }]);
}

#[test]
fn memory_of_prefix_indexes_is_limited() {
    let parameters = "{blockSize: 0, maxPrefixBlocksToMatch: 4000000000, lruCapacityPerServer: 18446744073709551615}";
    let policy = policy(&format!("plugins: [{{type: prefix-cache-scorer, parameters: {parameters}}}]"));
    assert_eq!(policy.prefix_configs, [PrefixConfig { block_size: 1, max_blocks: 16_384, lru_capacity: 250_000 }]);
}

/// Parsing them would take seconds, for each change of a pool.
#[rstest]
#[case::bytes(format!("dataLayer: {{a: {}}}", "x".repeat(64 * 1024)), ConfigError::TooLarge)]
#[case::nodes(format!("dataLayer: [{}]", "1,".repeat(10_000)), ConfigError::TooLarge)]
#[case::aliases(nested_aliases(), ConfigError::TooLarge)]
#[case::plugins(
    (0..65).fold("plugins:".to_owned(), |text, index| format!("{text}\n- {{type: queue-scorer, name: p{index}}}")),
    ConfigError::TooManyPlugins { count: 65 }
)]
fn large_configurations_are_rejected(#[case] rest: String, #[case] expect: ConfigError) {
    assert_eq!(parse_config(&config(&rest)).unwrap_err(), expect);
}

/// Returns a list of 9⁹ values.
fn nested_aliases() -> String {
    let lists = (1..10).map(|index| format!("&a{index} [{}]", vec![format!("*a{}", index - 1); 9].join(",")));
    format!("dataLayer: [&a0 x, {}]", lists.collect::<Vec<_>>().join(","))
}

#[rstest]
#[case("llm-d.ai/v1alpha1")]
#[case("llm-d.ai/v1")]
#[case("inference.networking.x-k8s.io/v1alpha1")]
fn accepts_all_api_versions(#[case] version: &str) {
    assert!(
        parse_config(&format!("apiVersion: {version}\nkind: EndpointPickerConfig\nplugins:\nschedulingProfiles:\n"))
            .is_ok()
    );
}

#[rstest]
#[case::queue("queue-scorer", Scorer::Queue)]
#[case::running("running-requests-size-scorer", Scorer::RunningRequests)]
#[case::kv_cache("kv-cache-utilization-scorer", Scorer::KvCache)]
#[case::lora("lora-affinity-scorer", Scorer::Lora)]
#[case::prefix("prefix-cache-scorer", Scorer::Prefix(0))]
#[case::in_flight("active-request-scorer", Scorer::ActiveRequests { idle_threshold: 0, max_busy_score: 1.0 })]
#[case::load_aware("load-aware-scorer", Scorer::LoadAware { threshold: 128.0 })]
#[case::tokens("token-load-scorer", Scorer::TokenLoad { threshold: 4_194_304.0 })]
#[case::no_hit("no-hit-lru-scorer", Scorer::NoHitLru)]
fn parses_scorers_with_weight(#[case] kind: &str, #[case] scorer: Scorer) {
    let text = format!(
        "plugins:\n- type: {kind}\n- type: max-score-picker\n  parameters: {{maxNumOfEndpoints: 2}}\n\
         schedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: max-score-picker\n  - pluginRef: {kind}\n    weight: 100\n"
    );
    let profile = single(policy(&text));
    assert_eq!((profile.scorers, profile.max_endpoints), (vec![(scorer, 100.0)], 2));
}

#[test]
fn default_profile_contains_all_plugins() {
    let profile = single(policy("plugins: [{type: queue-scorer, name: q}, {type: random-picker}]"));
    assert_eq!((profile.scorers, profile.picker), (vec![(Scorer::Queue, 1.0)], Picker::Random));
}

#[rstest]
#[case::scorer("[{type: prefix-cache-scorer, parameters: {blockSize: 5, lruCapacityPerServer: 7}}]", 5, 256, 7)]
#[case::tokens("[{type: prefix-cache-scorer, parameters: {blockSizeTokens: 16, autoTune: false}}]", 64, 256, 31_250)]
#[case::producer_listed_later(
    "[{type: prefix-cache-scorer}, {type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 16, maxPrefixTokensToMatch: 4096}}]",
    64,
    256,
    31_250
)]
#[case::named_producer(
    "[{type: approx-prefix-cache-producer}, {type: approx-prefix-cache-producer, name: fine, parameters: {blockSize: 8, maxPrefixBlocksToMatch: 9}},
      {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: fine}}]",
    8, 9, 31_250
)]
fn parses_prefix_parameters(
    #[case] plugins: &str,
    #[case] block_size: usize,
    #[case] max_blocks: usize,
    #[case] lru_capacity: usize,
) {
    let policy = policy(&format!("plugins: {plugins}"));
    assert_eq!(policy.prefix_configs, [PrefixConfig { block_size, max_blocks, lru_capacity }]);
}

#[test]
fn equal_prefix_configs_share_an_index() {
    let scorer = |name: &str, block: usize| {
        format!("{{type: prefix-cache-scorer, name: {name}, parameters: {{blockSize: {block}}}}}")
    };
    let policy = policy(&format!("plugins: [{}, {}, {}]", scorer("a", 8), scorer("b", 16), scorer("c", 8)));
    assert_eq!(policy.prefix_configs.len(), 2);
    let expect = [0, 1, 0].map(|position| (Scorer::Prefix(position), 1.0));
    assert_eq!(single(policy).scorers, expect);
}

#[rstest]
#[case::by_label(
    "{type: by-label, name: f, parameters: {label: role, validValues: [a], allowsNoLabel: true}}",
    Filter::Label { label: "role".to_owned(), values: vec!["a".to_owned()], allow_missing: true }
)]
#[case::decode("{type: decode-filter, name: f}", Filter::Role(Role::Decode))]
#[case::prefill("{type: prefill-filter, name: f}", Filter::Role(Role::Prefill))]
#[case::encode("{type: encode-filter, name: f}", Filter::Role(Role::Encode))]
fn parses_filters(#[case] plugin: &str, #[case] expect: Filter) {
    assert_eq!(single(policy(&format!("plugins: [{plugin}]"))).filters, [expect]);
}

#[rstest]
#[case("by-label-selector")]
#[case("label-selector-filter")]
fn parses_label_selectors(#[case] kind: &str) {
    let parameters = "{matchLabels: {fusioninfer.io/component-type: decoder}, matchExpressions: [{key: gpu, operator: NotIn, values: [a10]}]}";
    let profile = single(policy(&format!("plugins: [{{type: {kind}, parameters: {parameters}}}]")));
    let [Filter::Selector(requirements)] = &profile.filters[..] else { panic!("{:?}", profile.filters) };
    let parsed: Vec<_> = requirements
        .iter()
        .map(|requirement| (requirement.key.as_str(), requirement.operator, requirement.values.join(",")))
        .collect();
    let component = "fusioninfer.io/component-type";
    assert_eq!(parsed, [(component, Operator::In, "decoder".to_owned()), ("gpu", Operator::NotIn, "a10".to_owned())]);
}

/// Parses a configuration with `plugins` and the profiles `prefill` and `decode`.
fn prefill_decode_config(plugins: &str) -> Result<ParsedConfig, ConfigError> {
    parse_config(&config(&format!(
        "plugins:\n{plugins}\n- {{type: by-label, name: p, parameters: {{label: role, validValues: [prefiller]}}}}\n\
         - {{type: by-label, name: d, parameters: {{label: role, validValues: [decoder]}}}}\n\
         schedulingProfiles:\n- {{name: prefill, plugins: [{{pluginRef: p}}]}}\n- {{name: decode, plugins: [{{pluginRef: d}}]}}\n"
    )))
}

#[rstest]
#[case::legacy("- {type: pd-profile-handler, parameters: {threshold: 10, hashBlockSize: 5}}", Decider::UncachedBytesAbove { bytes: 10 })]
#[case::legacy_without_threshold("- {type: pd-profile-handler}\n- {type: prefill-header-handler}", Decider::UncachedBytesAbove { bytes: 0 })]
#[case::legacy_with_default_decider(
    "- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}\n- {type: pd-profile-handler}",
    Decider::MinTokens { uncached: 16, prompt: 0 }
)]
#[case::legacy_with_named_decider(
    "- {type: pd-profile-handler, parameters: {deciderPluginName: always-disagg-pd-decider}}\n- {type: always-disagg-pd-decider}",
    Decider::Always
)]
#[case::disaggregated(
    "- {type: disagg-headers-handler}\n- {type: disagg-profile-handler, parameters: {deciders: {prefill: mine}}}\n\
     - {type: prefix-based-pd-decider, name: mine, parameters: {nonCachedTokens: 512, promptTokens: 1024}}",
    Decider::MinTokens { uncached: 512, prompt: 1024 }
)]
#[case::disaggregated_with_previous_parameter(
    "- {type: always-disagg-pd-decider}\n- {type: disagg-profile-handler, parameters: {deciderPluginName: always-disagg-pd-decider}}",
    Decider::Always
)]
fn parses_deciders(#[case] plugins: &str, #[case] expect: Decider) {
    let ParsedConfig { policy, warnings } = prefill_decode_config(plugins).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(policy.prefix_configs.len(), 1, "deciders need a prefix index");
    let ProfileHandler::PrefillDecode { prefill, decode, decider } = policy.profile_handler else {
        panic!("expected two profiles")
    };
    let role = |profile: &Profile| match &profile.filters[..] {
        [Filter::Label { values, .. }] => values[0].clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((decider, role(&prefill).as_str(), role(&decode).as_str()), (expect, "prefiller", "decoder"));
}

#[rstest]
#[case::no_decider("- {type: disagg-profile-handler}")]
#[case::zero(
    "- {type: prefix-based-pd-decider}\n- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}"
)]
fn decider_without_threshold_never_prefills(#[case] plugins: &str) {
    let ParsedConfig { policy, warnings } = prefill_decode_config(plugins).unwrap();
    assert!(matches!(policy.profile_handler, ProfileHandler::Single(_)));
    assert!(warnings[0].message.starts_with("no prompt is sent to a prefill endpoint"), "{warnings:?}");
}

#[rstest]
#[case::set("{primaryPort: 8000}", Some(8000))]
#[case::zero("{primaryPort: 0}", None)]
#[case::missing("{}", None)]
fn parses_primary_port(#[case] parameters: &str, #[case] expect: Option<u16>) {
    let handler = format!("- {{type: pd-profile-handler, parameters: {parameters}}}");
    assert_eq!(prefill_decode_config(&handler).unwrap().policy.primary_port, expect);
    let data_parallel = policy(
        "plugins: [{type: data-parallel-profile-handler, parameters: {primaryPort: 9000}}, {type: queue-scorer}]",
    );
    assert_eq!(data_parallel.primary_port, Some(9000));
}

#[rstest]
#[case::listed("plugins: [{type: passthrough-parser}]\nparser: {pluginRef: passthrough-parser}", Parser::Passthrough)]
#[case::not_listed(
    "requestHandler: {parsers: [{pluginRef: openai-parser}, {pluginRef: passthrough-parser}]}",
    Parser::Passthrough
)]
#[case::not_referenced("plugins: [{type: passthrough-parser}]", Parser::RequireModel)]
#[case::openai("parser: {pluginRef: openai-parser}", Parser::RequireModel)]
fn selects_parser(#[case] rest: &str, #[case] expect: Parser) {
    assert_eq!(policy(rest).parser, expect);
}

#[rstest]
#[case::metrics(
    "plugins: [{type: metrics-data-source, parameters: {path: /metrics}}, {type: core-metrics-extractor}]\ndataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}"
)]
#[case::gates("featureGates: [dataLayer, flowControl=false, somethingElse=false]")]
#[case::flow_control_without_its_gate("flowControl: {maxBytes: 1Gi}")]
fn implicit_plugins_cause_no_warning(#[case] rest: &str) {
    policy(rest);
}

#[rstest]
#[case::latency("plugins: [{type: latency-scorer}]", "plugins[0] (latency-scorer): latency is not predicted")]
#[case::session(
    "plugins: [{type: session-affinity-scorer, name: s}]",
    "plugins[0] (s): session tokens are not tracked"
)]
#[case::precise(
    "plugins: [{type: precise-prefix-cache-scorer, parameters: {indexerConfig: {}}}]",
    "plugins[0] (precise-prefix-cache-scorer): KV cache events of engines"
)]
#[case::shedding(
    "plugins: [{type: utilization-detector}]\nsaturationDetector: {pluginRef: utilization-detector}",
    "plugins[0] (utilization-detector): the limit of each engine is learned"
)]
#[case::https(
    "plugins: [{type: metrics-data-source, parameters: {scheme: https}}]",
    "plugins[0] (metrics-data-source): metrics are scraped over plain HTTP"
)]
#[case::gate("featureGates: [flowControl]", "featureGates: flowControl has no effect")]
#[case::replicas("dataLayer: {peerDiscovery: {pluginRef: x}}", "dataLayer.peerDiscovery: replicas")]
#[case::encoders(
    "plugins: [{type: disagg-profile-handler, parameters: {deciders: {encode: always-disagg-multimodal-decider}}}, {type: always-disagg-multimodal-decider}]\n\
     schedulingProfiles: [{name: encode}, {name: decode}]",
    "plugins (disagg-profile-handler).parameters.deciders.encode: images"
)]
#[case::unused_profile(
    "plugins: [{type: pd-profile-handler}]\nschedulingProfiles: [{name: prefill}, {name: decode}, {name: x}]",
    "schedulingProfiles[x]: pd-profile-handler does not use this profile"
)]
fn unsupported_parts_cause_warnings(#[case] rest: &str, #[case] expect: &str) {
    let warnings = warnings(rest);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with(expect) && !warnings[0].contains('\n'), "{warnings:?}");
}

#[rstest]
#[case::misspelled_type(
    "plugins: [{type: queue-scorrer}]",
    "plugins[0].type: unknown plugin type \"queue-scorrer\"",
    "did you mean queue-scorer?"
)]
#[case::custom_type(
    "plugins: [{type: custom-thing}]",
    "plugins[0].type: unknown plugin type \"custom-thing\"",
    "supported types are queue-scorer, "
)]
#[case::parameter(
    "plugins: [{type: prefix-cache-scorer, parameters: {blocksize: 5}}]",
    "plugins[0].parameters: invalid parameters of prefix-cache-scorer: unknown field `blocksize`, expected one of `blockSize`",
    "correct"
)]
#[case::parameter_type(
    "plugins: [{type: prefix-cache-scorer, parameters: {blockSize: many}}]",
    "plugins[0].parameters: invalid parameters of prefix-cache-scorer: invalid type",
    "correct"
)]
#[case::parameter_range(
    "plugins: [{type: load-aware-scorer, parameters: {threshold: 0}}]",
    "plugins[0].parameters: invalid parameters of load-aware-scorer: threshold must be greater than 0",
    "correct"
)]
#[case::duplicate_name(
    "plugins: [{type: queue-scorer}, {type: queue-scorer}]",
    "plugins[1].name: duplicate name \"queue-scorer\"",
    "correct"
)]
#[case::reference(
    "schedulingProfiles: [{name: d, plugins: [{pluginRef: x}]}]",
    "schedulingProfiles[d].plugins: no plugin is named \"x\"",
    "add it to plugins"
)]
#[case::decider_reference(
    "plugins: [{type: disagg-profile-handler, parameters: {deciders: {prefill: x}}}]\nschedulingProfiles: [{name: decode}]",
    "plugins (disagg-profile-handler).parameters.deciders.prefill: no plugin is named \"x\"",
    "add it to plugins"
)]
#[case::not_a_decider(
    "plugins: [{type: queue-scorer}, {type: pd-profile-handler, parameters: {deciderPluginName: queue-scorer}}]\nschedulingProfiles: [{name: decode}]",
    "plugins (pd-profile-handler).parameters.deciderPluginName: plugin \"queue-scorer\" is not a decider",
    "correct"
)]
#[case::parser_reference("parser: {pluginRef: x}", "parser.pluginRef: no plugin is named \"x\"", "add it to plugins")]
#[case::weight(
    "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: d, plugins: [{pluginRef: queue-scorer, weight: -1}]}]",
    "schedulingProfiles[d].plugins: the weight of \"queue-scorer\" must be a number greater than or equal to 0",
    "correct"
)]
#[case::pickers(
    "plugins: [{type: random-picker}, {type: max-score-picker}]",
    "schedulingProfiles[default].plugins: \"max-score-picker\" is a second picker",
    "correct"
)]
#[case::handlers(
    "plugins: [{type: single-profile-handler}, {type: pd-profile-handler}]",
    "plugins: \"single-profile-handler\" and \"pd-profile-handler\" are both profile handlers",
    "remove one of them"
)]
#[case::profiles(
    "schedulingProfiles: [{name: a}, {name: b}]",
    "schedulingProfiles: single-profile-handler requires one profile, but 2 are configured",
    "correct"
)]
#[case::duplicate_profile(
    "schedulingProfiles: [{name: a}, {name: a}]",
    "schedulingProfiles: duplicate name \"a\"",
    "correct"
)]
#[case::prefill_decode_config(
    "plugins: [{type: pd-profile-handler}]\nschedulingProfiles: [{name: decode}]",
    "schedulingProfiles: pd-profile-handler requires a profile named \"prefill\"",
    "correct"
)]
#[case::gate(
    "featureGates: [unknownGate]",
    "featureGates: unknown feature gate \"unknownGate\"",
    "remove the feature gate"
)]
#[case::field("unknown: {}", "invalid EndpointPickerConfig: line 3 column 1: unknown field `unknown`", "correct")]
#[case::discovery(
    "dataLayer: {discovery: {pluginRef: file-discovery}}",
    "dataLayer.discovery is not supported",
    "remove it"
)]
#[case::unsupported(
    "plugins: [{type: vllmgrpc-parser}]",
    "plugins[0].type: vllmgrpc-parser is not supported: requests of vLLM's gRPC",
    "remove the plugin"
)]
fn invalid_config_is_rejected_with_hint(#[case] rest: &str, #[case] expect: &str, #[case] hint: &str) {
    let error = parse_config(&config(rest)).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with(expect), "{message}");
    assert!(error.hint().starts_with(hint), "{}", error.hint());
    assert!(!message.contains('\n') && !error.hint().contains('\n'), "{message}");
}

#[test]
fn other_kind_is_rejected() {
    let message = parse_config("apiVersion: v1\nkind: ConfigMap\n").unwrap_err().to_string();
    assert!(
        message.starts_with("apiVersion \"v1\", kind \"ConfigMap\": expected kind EndpointPickerConfig of llm-d.ai")
    );
}

/// Each known plugin type is listed once and accepted.
#[test]
fn known_types_are_unique_and_accepted() {
    let mut types: Vec<&str> = plugin_types::known_types().collect();
    types.sort_unstable();
    assert_eq!(types.windows(2).find(|pair| pair[0] == pair[1]), None);
    for plugin_type in types {
        let result = parse_config(&config(&format!("plugins: [{{type: {plugin_type}}}]")));
        assert!(!matches!(result, Err(ConfigError::UnknownType { .. })), "{plugin_type}");
    }
}

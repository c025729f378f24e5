use rstest::rstest;

use super::*;
use crate::{
    filter::{Filter, Operator, Stage},
    policy::{Decider, Handler},
    profile::{Order, Profile},
    score::{Scorer, prefix::Prefix},
};

fn config(rest: &str) -> String {
    format!("apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n{rest}")
}

fn policy(rest: &str) -> Policy {
    let Configuration { policy, warnings } = read(&config(rest)).unwrap();
    assert_eq!(warnings, [], "nothing is left out");
    policy
}

fn single(policy: Policy) -> Profile {
    match policy.handler {
        Handler::Single(profile) => profile,
        Handler::PrefillDecode { .. } => panic!("a pair"),
    }
}

fn warnings(rest: &str) -> Vec<String> {
    read(&config(rest)).unwrap().warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_configured_is_queue_cache_and_prefix() {
    let policy = read("").unwrap().policy;
    assert_eq!(policy.prefixes, [Prefix { block: 64, most_blocks: 256, capacity: 31_250 }]);
    let profile = single(policy);
    assert_eq!(profile.scorers, [(Scorer::Queue, 2.0), (Scorer::KvCache, 2.0), (Scorer::Prefix(0), 3.0)]);
    assert_eq!((profile.order, profile.most), (Order::Best, 1));
}

#[rstest]
#[case("llm-d.ai/v1alpha1")]
#[case("llm-d.ai/v1")]
#[case("inference.networking.x-k8s.io/v1alpha1")]
fn groups_old_and_new(#[case] version: &str) {
    assert!(
        read(&format!("apiVersion: {version}\nkind: EndpointPickerConfig\nplugins:\nschedulingProfiles:\n")).is_ok()
    );
}

#[rstest]
#[case::queue("queue-scorer", Scorer::Queue)]
#[case::running("running-requests-size-scorer", Scorer::Running)]
#[case::kv_cache("kv-cache-utilization-scorer", Scorer::KvCache)]
#[case::lora("lora-affinity-scorer", Scorer::Lora)]
#[case::prefix("prefix-cache-scorer", Scorer::Prefix(0))]
#[case::in_flight("active-request-scorer", Scorer::InFlight { idle: 0, busiest: 1.0 })]
#[case::load_aware("load-aware-scorer", Scorer::QueueBelow { threshold: 128.0 })]
#[case::tokens("token-load-scorer", Scorer::Tokens { threshold: 4_194_304.0 })]
#[case::no_hit("no-hit-lru-scorer", Scorer::NoHit)]
fn one_scorer_with_a_weight(#[case] kind: &str, #[case] scorer: Scorer) {
    let text = format!(
        "plugins:\n- type: {kind}\n- type: max-score-picker\n  parameters: {{maxNumOfEndpoints: 2}}\n\
         schedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: max-score-picker\n  - pluginRef: {kind}\n    weight: 100\n"
    );
    let profile = single(policy(&text));
    assert_eq!((profile.scorers, profile.most), (vec![(scorer, 100.0)], 2));
}

#[test]
fn without_profiles_all_plugins_make_one() {
    let profile = single(policy("plugins: [{type: queue-scorer, name: q}, {type: random-picker}]"));
    assert_eq!((profile.scorers, profile.order), (vec![(Scorer::Queue, 1.0)], Order::Random));
}

#[rstest]
#[case::of_the_scorer("[{type: prefix-cache-scorer, parameters: {blockSize: 5, lruCapacityPerServer: 7}}]", 5, 256, 7)]
#[case::in_tokens("[{type: prefix-cache-scorer, parameters: {blockSizeTokens: 16, autoTune: false}}]", 64, 256, 31_250)]
#[case::of_a_producer_listed_later(
    "[{type: prefix-cache-scorer}, {type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 16, maxPrefixTokensToMatch: 4096}}]",
    64,
    256,
    31_250
)]
#[case::of_the_producer_that_is_named(
    "[{type: approx-prefix-cache-producer}, {type: approx-prefix-cache-producer, name: fine, parameters: {blockSize: 8, maxPrefixBlocksToMatch: 9}},
      {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: fine}}]",
    8, 9, 31_250
)]
fn how_prompts_are_remembered(
    #[case] plugins: &str,
    #[case] block: usize,
    #[case] most: usize,
    #[case] capacity: usize,
) {
    let policy = policy(&format!("plugins: {plugins}"));
    assert_eq!(policy.prefixes, [Prefix { block, most_blocks: most, capacity }]);
}

#[test]
fn equal_settings_share_a_memory() {
    let scorer = |name: &str, block: usize| {
        format!("{{type: prefix-cache-scorer, name: {name}, parameters: {{blockSize: {block}}}}}")
    };
    let policy = policy(&format!("plugins: [{}, {}, {}]", scorer("a", 8), scorer("b", 16), scorer("c", 8)));
    assert_eq!(policy.prefixes.len(), 2);
    let expect = [0, 1, 0].map(|at| (Scorer::Prefix(at), 1.0));
    assert_eq!(single(policy).scorers, expect);
}

#[rstest]
#[case::by_label(
    "{type: by-label, name: f, parameters: {label: role, validValues: [a], allowsNoLabel: true}}",
    Filter::Label { label: "role".to_owned(), values: vec!["a".to_owned()], without: true }
)]
#[case::decode("{type: decode-filter, name: f}", Filter::Stage(Stage::Decode))]
#[case::prefill("{type: prefill-filter, name: f}", Filter::Stage(Stage::Prefill))]
#[case::encode("{type: encode-filter, name: f}", Filter::Stage(Stage::Encode))]
fn filters(#[case] plugin: &str, #[case] expect: Filter) {
    assert_eq!(single(policy(&format!("plugins: [{plugin}]"))).filters, [expect]);
}

#[rstest]
#[case("by-label-selector")]
#[case("label-selector-filter")]
fn label_selectors(#[case] kind: &str) {
    let parameters = "{matchLabels: {fusioninfer.io/component-type: decoder}, matchExpressions: [{key: gpu, operator: NotIn, values: [a10]}]}";
    let profile = single(policy(&format!("plugins: [{{type: {kind}, parameters: {parameters}}}]")));
    let [Filter::Selector(requirements)] = &profile.filters[..] else { panic!("{:?}", profile.filters) };
    let found: Vec<_> = requirements.iter().map(|one| (one.key.as_str(), one.operator, one.values.join(","))).collect();
    let component = "fusioninfer.io/component-type";
    assert_eq!(found, [(component, Operator::In, "decoder".to_owned()), ("gpu", Operator::NotIn, "a10".to_owned())]);
}

/// Two profiles, and whatever decides between them.
fn pair(plugins: &str) -> Result<Configuration, PolicyError> {
    read(&config(&format!(
        "plugins:\n{plugins}\n- {{type: by-label, name: p, parameters: {{label: role, validValues: [prefiller]}}}}\n\
         - {{type: by-label, name: d, parameters: {{label: role, validValues: [decoder]}}}}\n\
         schedulingProfiles:\n- {{name: prefill, plugins: [{{pluginRef: p}}]}}\n- {{name: decode, plugins: [{{pluginRef: d}}]}}\n"
    )))
}

#[rstest]
#[case::legacy("- {type: pd-profile-handler, parameters: {threshold: 10, hashBlockSize: 5}}", Decider::Over { bytes: 10 })]
#[case::legacy_without_threshold("- {type: pd-profile-handler}\n- {type: prefill-header-handler}", Decider::Over { bytes: 0 })]
#[case::legacy_and_a_decider(
    "- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}\n- {type: pd-profile-handler}",
    Decider::AtLeast { new: 16, prompt: 0 }
)]
#[case::legacy_and_the_decider_it_names(
    "- {type: pd-profile-handler, parameters: {deciderPluginName: always-disagg-pd-decider}}\n- {type: always-disagg-pd-decider}",
    Decider::Always
)]
#[case::stages(
    "- {type: disagg-headers-handler}\n- {type: disagg-profile-handler, parameters: {deciders: {prefill: mine}}}\n\
     - {type: prefix-based-pd-decider, name: mine, parameters: {nonCachedTokens: 512, promptTokens: 1024}}",
    Decider::AtLeast { new: 512, prompt: 1024 }
)]
#[case::stages_as_they_were(
    "- {type: always-disagg-pd-decider}\n- {type: disagg-profile-handler, parameters: {deciderPluginName: always-disagg-pd-decider}}",
    Decider::Always
)]
fn who_decides(#[case] plugins: &str, #[case] expect: Decider) {
    let Configuration { policy, warnings } = pair(plugins).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(policy.prefixes.len(), 1, "what is new is known without a prefix scorer too");
    let Handler::PrefillDecode { prefill, decode, decider } = policy.handler else { panic!("single") };
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
fn nobody_is_sent_to_a_prefiller(#[case] plugins: &str) {
    let Configuration { policy, warnings } = pair(plugins).unwrap();
    assert!(matches!(policy.handler, Handler::Single(_)));
    assert!(warnings[0].told.starts_with("no prompt is sent to a prefiller"), "{warnings:?}");
}

#[rstest]
#[case::stated("{primaryPort: 8000}", Some(8000))]
#[case::none("{primaryPort: 0}", None)]
#[case::not_stated("{}", None)]
fn a_port_that_stands_for_all(#[case] parameters: &str, #[case] expect: Option<u16>) {
    let handler = format!("- {{type: pd-profile-handler, parameters: {parameters}}}");
    assert_eq!(pair(&handler).unwrap().policy.primary_port, expect);
    let ranks = policy(
        "plugins: [{type: data-parallel-profile-handler, parameters: {primaryPort: 9000}}, {type: queue-scorer}]",
    );
    assert_eq!(ranks.primary_port, Some(9000));
}

#[rstest]
#[case::listed("plugins: [{type: passthrough-parser}]\nparser: {pluginRef: passthrough-parser}", Bodies::Pass)]
#[case::not_listed(
    "requestHandler: {parsers: [{pluginRef: openai-parser}, {pluginRef: passthrough-parser}]}",
    Bodies::Pass
)]
#[case::not_referred_to("plugins: [{type: passthrough-parser}]", Bodies::Refused)]
#[case::openai("parser: {pluginRef: openai-parser}", Bodies::Refused)]
fn parsers(#[case] rest: &str, #[case] expect: Bodies) {
    assert_eq!(policy(rest).bodies, expect);
}

#[rstest]
#[case::metrics(
    "plugins: [{type: metrics-data-source, parameters: {path: /metrics}}, {type: core-metrics-extractor}]\ndataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}"
)]
#[case::gates("featureGates: [dataLayer, flowControl=false, somethingElse=false]")]
#[case::flow_control_without_its_gate("flowControl: {maxBytes: 1Gi}")]
fn what_needs_no_word(#[case] rest: &str) {
    policy(rest);
}

#[rstest]
#[case::latency("plugins: [{type: latency-scorer}]", "plugins[0] (latency-scorer): latency is not predicted here")]
#[case::session("plugins: [{type: session-affinity-scorer, name: s}]", "plugins[0] (s): sessions are not followed")]
#[case::precise(
    "plugins: [{type: precise-prefix-cache-scorer, parameters: {indexerConfig: {}}}]",
    "plugins[0] (precise-prefix-cache-scorer): engines' cache events"
)]
#[case::shedding(
    "plugins: [{type: utilization-detector}]\nsaturationDetector: {pluginRef: utilization-detector}",
    "plugins[0] (utilization-detector): no request is shed"
)]
#[case::https(
    "plugins: [{type: metrics-data-source, parameters: {scheme: https}}]",
    "plugins[0] (metrics-data-source): metrics pages are read over plain HTTP"
)]
#[case::gate("featureGates: [flowControl]", "featureGates: flowControl is not done")]
#[case::replicas("dataLayer: {peerDiscovery: {pluginRef: x}}", "dataLayer.peerDiscovery: replicas")]
#[case::encoders(
    "plugins: [{type: disagg-profile-handler, parameters: {deciders: {encode: always-disagg-multimodal-decider}}}, {type: always-disagg-multimodal-decider}]\n\
     schedulingProfiles: [{name: encode}, {name: decode}]",
    "plugins (disagg-profile-handler).parameters.deciders.encode: images"
)]
#[case::a_profile_too_many(
    "plugins: [{type: pd-profile-handler}]\nschedulingProfiles: [{name: prefill}, {name: decode}, {name: x}]",
    "schedulingProfiles[x]: pd-profile-handler never asks this profile"
)]
fn what_is_not_done_is_said(#[case] rest: &str, #[case] expect: &str) {
    let told = warnings(rest);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with(expect) && !told[0].contains('\n'), "{told:?}");
}

#[rstest]
#[case::type_(
    "plugins: [{type: queue-scorrer}]",
    "plugins[0].type: \"queue-scorrer\" is not known",
    "did you mean queue-scorer?"
)]
#[case::foreign_type(
    "plugins: [{type: custom-thing}]",
    "plugins[0].type: \"custom-thing\" is not known",
    "types that choose are queue-scorer, "
)]
#[case::parameter(
    "plugins: [{type: prefix-cache-scorer, parameters: {blocksize: 5}}]",
    "plugins[0].parameters of prefix-cache-scorer: unknown field `blocksize`, expected one of `blockSize`",
    "correct"
)]
#[case::parameter_type(
    "plugins: [{type: prefix-cache-scorer, parameters: {blockSize: many}}]",
    "plugins[0].parameters of prefix-cache-scorer: invalid type",
    "correct"
)]
#[case::parameter_range(
    "plugins: [{type: load-aware-scorer, parameters: {threshold: 0}}]",
    "plugins[0].parameters of load-aware-scorer: threshold must be more than 0",
    "correct"
)]
#[case::twice(
    "plugins: [{type: queue-scorer}, {type: queue-scorer}]",
    "plugins[1].name: \"queue-scorer\" is given twice",
    "correct"
)]
#[case::reference(
    "schedulingProfiles: [{name: d, plugins: [{pluginRef: x}]}]",
    "schedulingProfiles[d].plugins: \"x\" is not among the plugins",
    "list it under plugins"
)]
#[case::decider_reference(
    "plugins: [{type: disagg-profile-handler, parameters: {deciders: {prefill: x}}}]\nschedulingProfiles: [{name: decode}]",
    "plugins (disagg-profile-handler).parameters.deciders.prefill: \"x\" is not among the plugins",
    "list it under plugins"
)]
#[case::no_decider(
    "plugins: [{type: queue-scorer}, {type: pd-profile-handler, parameters: {deciderPluginName: queue-scorer}}]\nschedulingProfiles: [{name: decode}]",
    "plugins (pd-profile-handler).parameters.deciderPluginName: \"queue-scorer\" is no decider",
    "correct"
)]
#[case::parser_reference(
    "parser: {pluginRef: x}",
    "parser.pluginRef: \"x\" is not among the plugins",
    "list it under plugins"
)]
#[case::weight(
    "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: d, plugins: [{pluginRef: queue-scorer, weight: -1}]}]",
    "schedulingProfiles[d].plugins: the weight of \"queue-scorer\" must be a number from 0 on",
    "correct"
)]
#[case::pickers(
    "plugins: [{type: random-picker}, {type: max-score-picker}]",
    "schedulingProfiles[default].plugins: \"max-score-picker\" is the second picker",
    "correct"
)]
#[case::handlers(
    "plugins: [{type: single-profile-handler}, {type: pd-profile-handler}]",
    "plugins: \"single-profile-handler\" and \"pd-profile-handler\" are both profile handlers",
    "keep the one"
)]
#[case::profiles(
    "schedulingProfiles: [{name: a}, {name: b}]",
    "schedulingProfiles: single-profile-handler needs one profile, 2 are stated",
    "correct"
)]
#[case::same_profile(
    "schedulingProfiles: [{name: a}, {name: a}]",
    "schedulingProfiles: the name \"a\" is given twice",
    "correct"
)]
#[case::pair(
    "plugins: [{type: pd-profile-handler}]\nschedulingProfiles: [{name: decode}]",
    "schedulingProfiles: pd-profile-handler needs a profile named \"prefill\"",
    "correct"
)]
#[case::gate("featureGates: [timeTravel]", "featureGates: \"timeTravel\" is not known", "leave it out")]
#[case::section("sourdough: {}", "not an EndpointPickerConfig: line 3 column 1: unknown field `sourdough`", "correct")]
#[case::discovery(
    "dataLayer: {discovery: {pluginRef: file-discovery}}",
    "dataLayer.discovery is not supported",
    "leave it out"
)]
#[case::needed(
    "plugins: [{type: vllmgrpc-parser}]",
    "plugins[0].type: vllmgrpc-parser is not supported: requests of vLLM's gRPC",
    "leave the plugin out"
)]
fn what_is_not_understood_is_said(#[case] rest: &str, #[case] expect: &str, #[case] hint: &str) {
    let error = read(&config(rest)).unwrap_err();
    let told = error.to_string();
    assert!(told.starts_with(expect), "{told}");
    assert!(error.hint().starts_with(hint), "{}", error.hint());
    assert!(!told.contains('\n') && !error.hint().contains('\n'), "{told}");
}

#[test]
fn another_kind_is_refused() {
    let told = read("apiVersion: v1\nkind: ConfigMap\n").unwrap_err().to_string();
    assert!(told.starts_with("apiVersion \"v1\", kind \"ConfigMap\": expected kind EndpointPickerConfig of llm-d.ai"));
}

/// A type is taken in one way only, and every type that is said to be known is.
#[test]
fn types_are_known_once() {
    let mut all: Vec<&str> = plugins::known().collect();
    all.sort_unstable();
    assert_eq!(all.windows(2).find(|two| two[0] == two[1]), None);
    for kind in all {
        let told = read(&config(&format!("plugins: [{{type: {kind}}}]")));
        let unknown = matches!(told, Err(PolicyError::UnknownType { .. }));
        assert!(!unknown, "{kind}");
    }
}

//! What each plugin means here.

use super::{
    PolicyError, Warning,
    document::PluginSpec,
    elsewhere::{self, Elsewhere},
    parameters::{
        self, InFlightSpec, LabelSpec, MOST, NewTokens, Nothing, PairSpec, PickerSpec, QueueSpec, RanksSpec,
        Remembering, SelectorSpec, StagesSpec, TokensSpec,
    },
};
use crate::{
    filter::{Filter, Stage},
    policy::{Bodies, Decider},
    profile::Order,
    score::{Scorer, prefix::Prefix},
};

/// A plugin understood.
#[derive(Debug, Clone)]
pub(super) enum Plugin {
    Scorer(Scorer),
    Filter(Filter),
    Picker(Order, usize),
    Handler(HandlerSpec),
    /// `None` sends nobody to a prefiller.
    Decider(Option<Decider>),
    Producer(Prefix),
    Parser(Bodies),
    /// Nothing here follows from it.
    Passed,
}

#[derive(Debug, Clone)]
pub(super) enum HandlerSpec {
    Single,
    Ranks(RanksSpec),
    Pair(PairSpec),
    Stages(StagesSpec),
}

/// All plugins, as listed.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    named: Vec<(String, Plugin)>,
    pub prefixes: Vec<Prefix>,
}

/// Types that have a meaning of their own here.
pub(super) const OURS: [&str; 33] = [
    "queue-scorer",
    "running-requests-size-scorer",
    "kv-cache-utilization-scorer",
    "prefix-cache-scorer",
    "precise-prefix-cache-scorer",
    "lora-affinity-scorer",
    "active-request-scorer",
    "load-aware-scorer",
    "token-load-scorer",
    "no-hit-lru-scorer",
    "max-score-picker",
    "random-picker",
    "weighted-random-picker",
    "single-profile-handler",
    "pd-profile-handler",
    "disagg-profile-handler",
    "data-parallel-profile-handler",
    "prefix-based-pd-decider",
    "always-disagg-pd-decider",
    "always-disagg-multimodal-decider",
    "by-label",
    "by-label-selector",
    "label-selector-filter",
    "encode-filter",
    "prefill-filter",
    "decode-filter",
    "approx-prefix-cache-producer",
    "precise-prefix-cache-producer",
    "openai-parser",
    "anthropic-parser",
    "vllmhttp-parser",
    "sglanghttp-parser",
    "passthrough-parser",
];

/// Every type that is taken.
pub(super) fn known() -> impl Iterator<Item = &'static str> {
    OURS.into_iter().chain(elsewhere::TYPES.iter().map(|(kind, _)| *kind))
}

const PRECISE: &str = "engines' cache events are not read here: what was sent to an engine counts as what it has";

impl Plugins {
    pub(super) fn of(specs: &[PluginSpec], warnings: &mut Vec<Warning>) -> Result<Self, PolicyError> {
        let mut plugins = Self::default();
        let producer = |(_, spec): &(usize, &PluginSpec)| spec.r#type.ends_with("-prefix-cache-producer");
        // Scorers read the memory of a producer, which may be listed after them.
        let (first, then): (Vec<_>, Vec<_>) = specs.iter().enumerate().partition(producer);
        for (at, spec) in first.into_iter().chain(then) {
            let name = spec.name().to_owned();
            if plugins.get(&name).is_some() {
                return Err(PolicyError::SameName { at, name });
            }
            let plugin = plugins.plugin(at, spec, warnings)?;
            plugins.named.push((name, plugin));
        }
        Ok(plugins)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Plugin> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, plugin)| plugin)
    }

    pub(super) fn handlers(&self) -> impl Iterator<Item = (&str, &HandlerSpec)> {
        self.named.iter().filter_map(|(name, plugin)| match plugin {
            Plugin::Handler(handler) => Some((name.as_str(), handler)),
            _ => None,
        })
    }

    /// The decider of that name.
    pub(super) fn decider(&self, field: &str, name: &str) -> Result<Option<Decider>, PolicyError> {
        let (field, expected) = (field.to_owned(), "decider");
        match self.get(name) {
            Some(Plugin::Decider(decider)) => Ok(*decider),
            Some(_) => Err(PolicyError::AnotherPlugin { field, name: name.to_owned(), expected }),
            None => Err(PolicyError::UnknownPlugin { field, name: name.to_owned() }),
        }
    }

    /// The parser of that name, or type where none is listed.
    pub(super) fn parser(&self, field: &str, name: &str) -> Result<Bodies, PolicyError> {
        match self.get(name) {
            Some(Plugin::Parser(bodies)) => Ok(*bodies),
            Some(_) => {
                let (field, name) = (field.to_owned(), name.to_owned());
                Err(PolicyError::AnotherPlugin { field, name, expected: "parser" })
            }
            None => self.named_or_known(field, name).map(|()| bodies(name)),
        }
    }

    /// Other pickers add what is referred to by its type and not listed.
    pub(super) fn named_or_known(&self, field: &str, name: &str) -> Result<(), PolicyError> {
        if self.get(name).is_some() || known().any(|kind| kind == name) {
            return Ok(());
        }
        Err(PolicyError::UnknownPlugin { field: format!("{field}.pluginRef"), name: name.to_owned() })
    }

    /// The memory with these settings; equal settings remember the same.
    pub(super) fn memory(&mut self, prefix: Prefix) -> usize {
        let found = self.prefixes.iter().position(|known| *known == prefix);
        found.unwrap_or_else(|| {
            self.prefixes.push(prefix);
            self.prefixes.len() - 1
        })
    }

    /// The memory that a plugin which states nothing of its own reads.
    pub(super) fn any_prefix(&self) -> Prefix {
        let mut stated = self.named.iter().filter_map(|(_, plugin)| match plugin {
            Plugin::Producer(prefix) => Some(*prefix),
            _ => None,
        });
        stated.next().or(self.prefixes.first().copied()).unwrap_or_else(|| Remembering::default().prefix())
    }

    fn prefix_scorer(&mut self, at: usize, spec: &PluginSpec) -> Result<Plugin, PolicyError> {
        let stated: Remembering = parameters::of(at, spec)?;
        let named = stated.prefix_match_info_producer_name.as_deref().and_then(|name| match self.get(name) {
            Some(Plugin::Producer(prefix)) => Some(*prefix),
            _ => None,
        });
        let producer = || match self.named.iter().find(|(_, plugin)| matches!(plugin, Plugin::Producer(_))) {
            Some((_, Plugin::Producer(prefix))) => *prefix,
            _ => stated.prefix(),
        };
        let prefix = stated.stated().or(named).unwrap_or_else(producer);
        Ok(Plugin::Scorer(Scorer::Prefix(self.memory(prefix))))
    }

    fn no_hit_scorer(&mut self, at: usize, spec: &PluginSpec) -> Result<Plugin, PolicyError> {
        parameters::of::<parameters::NoHitSpec>(at, spec)?;
        let prefix = self.any_prefix();
        self.memory(prefix);
        Ok(Plugin::Scorer(Scorer::NoHit))
    }

    fn plugin(&mut self, at: usize, spec: &PluginSpec, warnings: &mut Vec<Warning>) -> Result<Plugin, PolicyError> {
        let mut warn = |told: &str| {
            warnings.push(Warning { field: format!("plugins[{at}] ({})", spec.name()), told: told.to_owned() });
        };
        match spec.r#type.as_str() {
            "prefix-cache-scorer" => self.prefix_scorer(at, spec),
            "no-hit-lru-scorer" => self.no_hit_scorer(at, spec),
            "precise-prefix-cache-scorer" => {
                warn(PRECISE);
                let prefix = self.any_prefix();
                Ok(Plugin::Scorer(Scorer::Prefix(self.memory(prefix))))
            }
            "precise-prefix-cache-producer" => {
                warn(PRECISE);
                Ok(Plugin::Producer(Remembering::default().prefix()))
            }
            kind => match elsewhere::of(kind) {
                Some(Elsewhere::Needed(why)) => Err(PolicyError::Impossible { at, kind: kind.to_owned(), why }),
                Some(Elsewhere::PassedOver(told)) => {
                    warn(told);
                    Ok(Plugin::Passed)
                }
                Some(Elsewhere::Done) => {
                    if spec.parameters["scheme"] == "https" {
                        warn(
                            "metrics pages are read over plain HTTP: endpoints that speak TLS only are judged by what was sent to them",
                        );
                    }
                    Ok(Plugin::Passed)
                }
                None => stateless(at, spec),
            },
        }
    }
}

/// Plugins that share nothing with others.
fn stateless(at: usize, spec: &PluginSpec) -> Result<Plugin, PolicyError> {
    let bare = |plugin| parameters::of::<Nothing>(at, spec).map(|Nothing {}| plugin);
    let wrong = |cause: &str| PolicyError::Parameters { at, kind: spec.r#type.clone(), cause: cause.to_owned() };
    let picker = |order| {
        let stated: PickerSpec = parameters::of(at, spec)?;
        Ok(Plugin::Picker(order, stated.max_num_of_endpoints.unwrap_or(MOST)))
    };
    match spec.r#type.as_str() {
        "queue-scorer" => bare(Plugin::Scorer(Scorer::Queue)),
        "running-requests-size-scorer" => bare(Plugin::Scorer(Scorer::Running)),
        "kv-cache-utilization-scorer" => bare(Plugin::Scorer(Scorer::KvCache)),
        "lora-affinity-scorer" => bare(Plugin::Scorer(Scorer::Lora)),
        "active-request-scorer" => {
            let InFlightSpec { idle_threshold: idle, max_busy_score: busiest, .. } = parameters::of(at, spec)?;
            let within = (0.0..=1.0).contains(&busiest);
            within.then_some(()).ok_or_else(|| wrong("maxBusyScore must be from 0 to 1"))?;
            Ok(Plugin::Scorer(Scorer::InFlight { idle, busiest }))
        }
        "load-aware-scorer" => {
            let QueueSpec { threshold } = parameters::of(at, spec)?;
            (threshold > 0.0).then_some(()).ok_or_else(|| wrong("threshold must be more than 0"))?;
            Ok(Plugin::Scorer(Scorer::QueueBelow { threshold }))
        }
        "token-load-scorer" => {
            let TokensSpec { queue_threshold_tokens: threshold } = parameters::of(at, spec)?;
            (threshold > 0.0).then_some(()).ok_or_else(|| wrong("queueThresholdTokens must be more than 0"))?;
            Ok(Plugin::Scorer(Scorer::Tokens { threshold }))
        }
        "max-score-picker" => picker(Order::Best),
        "random-picker" => picker(Order::Random),
        "weighted-random-picker" => picker(Order::Drawn),
        "approx-prefix-cache-producer" => {
            parameters::of::<Remembering>(at, spec).map(|stated| Plugin::Producer(stated.prefix()))
        }
        "openai-parser" | "anthropic-parser" | "vllmhttp-parser" | "sglanghttp-parser" | "passthrough-parser" => {
            Ok(Plugin::Parser(bodies(&spec.r#type)))
        }
        kind if kind.ends_with("-decider") => decider(at, spec).map(Plugin::Decider),
        kind if kind.ends_with("-handler") => handler(at, spec).map(Plugin::Handler),
        _ => filter(at, spec).map(Plugin::Filter),
    }
}

fn decider(at: usize, spec: &PluginSpec) -> Result<Option<Decider>, PolicyError> {
    match spec.r#type.as_str() {
        "prefix-based-pd-decider" => {
            let NewTokens { non_cached_tokens: new, prompt_tokens: prompt } = parameters::of(at, spec)?;
            Ok((new > 0).then_some(Decider::AtLeast { new, prompt }))
        }
        "always-disagg-pd-decider" | "always-disagg-multimodal-decider" => {
            parameters::of::<Nothing>(at, spec).map(|Nothing {}| Some(Decider::Always))
        }
        kind => Err(PolicyError::UnknownType { at, kind: kind.to_owned() }),
    }
}

fn handler(at: usize, spec: &PluginSpec) -> Result<HandlerSpec, PolicyError> {
    match spec.r#type.as_str() {
        "single-profile-handler" => parameters::of::<Nothing>(at, spec).map(|Nothing {}| HandlerSpec::Single),
        "data-parallel-profile-handler" => parameters::of(at, spec).map(HandlerSpec::Ranks),
        "pd-profile-handler" => parameters::of(at, spec).map(HandlerSpec::Pair),
        "disagg-profile-handler" => parameters::of(at, spec).map(HandlerSpec::Stages),
        kind => Err(PolicyError::UnknownType { at, kind: kind.to_owned() }),
    }
}

fn filter(at: usize, spec: &PluginSpec) -> Result<Filter, PolicyError> {
    let stage = |stage| parameters::of::<Nothing>(at, spec).map(|Nothing {}| Filter::Stage(stage));
    match spec.r#type.as_str() {
        "by-label" => parameters::of::<LabelSpec>(at, spec).map(|stated| {
            let LabelSpec { label, valid_values: values, allows_no_label: without } = stated;
            Filter::Label { label, values, without }
        }),
        "by-label-selector" | "label-selector-filter" => {
            parameters::of::<SelectorSpec>(at, spec).map(|stated| Filter::Selector(stated.requirements()))
        }
        "encode-filter" => stage(Stage::Encode),
        "prefill-filter" => stage(Stage::Prefill),
        "decode-filter" => stage(Stage::Decode),
        kind => Err(PolicyError::UnknownType { at, kind: kind.to_owned() }),
    }
}

fn bodies(parser: &str) -> Bodies {
    if parser == "passthrough-parser" { Bodies::Pass } else { Bodies::Refused }
}

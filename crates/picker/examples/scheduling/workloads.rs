//! Shapes of load. Each is described by its own numbers, which do not depend on the policy.

use std::time::Duration;

use fastrand::Rng;

use crate::{
    distribution::{exponential, log_normal, zipf},
    trace::{Request, Role, Text, Trace},
};

/// Number of engines.
pub(crate) const ENGINES: usize = 8;

/// A shape of load and the engines that serve it.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Builds the requests that arrive within a duration.
    pub(crate) trace: fn(Duration, &mut Rng) -> Trace,
    /// Duration of a step of the first engine relative to that of the others.
    pub(crate) slowdown: f64,
    /// Number of gateways that send requests independently of each other.
    pub(crate) gateways: usize,
    /// Range of the seconds that an engine takes to return its metrics.
    pub(crate) metrics_delay: (f64, f64),
}

/// The time that a busy engine takes to return a metrics page of 50 KB.
const METRICS_DELAY: (f64, f64) = (0.005, 0.03);

/// All shapes of load.
pub(crate) const WORKLOADS: [Workload; 8] = [
    workload("multi-turn chat", chat),
    workload("shared-prefix RAG", rag),
    workload("long documents", long_documents),
    workload("bursts", bursts),
    workload("LoRA mix", lora_mix),
    workload("mixed prompt sizes", mixed_sizes),
    Workload { slowdown: 2.0, ..workload("one slow engine", slow_engine) },
    Workload { gateways: 2, metrics_delay: (0.5, 0.95), ..workload("stale metrics, 2 gateways", stale_metrics) },
];

const fn workload(name: &'static str, trace: fn(Duration, &mut Rng) -> Trace) -> Workload {
    Workload { name, trace, slowdown: 1.0, gateways: 1, metrics_delay: METRICS_DELAY }
}

/// Returns the arrivals of a Poisson process.
fn poisson(rate: f64, duration: Duration, rng: &mut Rng) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut time = exponential(rate, rng);
    while time < duration {
        times.push(time);
        time += exponential(rate, rng);
    }
    times
}

fn output(median: f64, rng: &mut Rng) -> Text {
    Text::new(log_normal(median, 0.7, 800, rng), rng)
}

/// Half of the clients state a limit, which is higher than what they need.
fn limit(rng: &mut Rng) -> Option<usize> {
    rng.bool().then_some(1_024)
}

/// Conversations of several turns, with one of four system prompts.
fn conversations(rate: f64, duration: Duration, rng: &mut Rng) -> Trace {
    let systems: Vec<Text> = (0..4).map(|_| Text::new(log_normal(600.0, 0.5, 4_000, rng), rng)).collect();
    let mut trace = Trace::new();
    for time in poisson(rate, duration, rng) {
        let mut messages = vec![(Role::System, systems[zipf(systems.len(), 1.0, rng)])];
        let limit = limit(rng);
        for turn in 0..rng.usize(1..=9) {
            messages.push((Role::User, Text::new(log_normal(120.0, 1.0, 4_000, rng), rng)));
            let output = output(180.0, rng);
            let request = Request::new(None, &messages, output, limit);
            messages.push((Role::Assistant, output));
            if turn == 0 {
                trace.push(time, request);
            } else {
                // Reading and typing.
                trace.push_next(Duration::from_secs(2) + exponential(1.0 / 8.0, rng), request);
            }
        }
    }
    trace
}

fn chat(duration: Duration, rng: &mut Rng) -> Trace {
    conversations(9.0, duration, rng)
}

/// Questions about documents, some of which are much more popular than others; the document precedes the question.
fn rag(duration: Duration, rng: &mut Rng) -> Trace {
    let system = Text::new(300, rng);
    let documents: Vec<Text> = (0..200).map(|_| Text::new(log_normal(4_000.0, 0.5, 16_000, rng), rng)).collect();
    let mut trace = Trace::new();
    for time in poisson(14.0, duration, rng) {
        let document = documents[zipf(documents.len(), 0.9, rng)];
        let question = Text::new(log_normal(40.0, 0.6, 400, rng), rng);
        let messages = [(Role::System, system), (Role::User, document), (Role::User, question)];
        trace.push(time, Request::new(None, &messages, output(120.0, rng), limit(rng)));
    }
    trace
}

/// Summaries of long texts, each of which occurs once.
fn long_documents(duration: Duration, rng: &mut Rng) -> Trace {
    let system = Text::new(200, rng);
    let mut trace = Trace::new();
    for time in poisson(3.0, duration, rng) {
        let document = Text::new(log_normal(9_000.0, 0.7, 60_000, rng), rng);
        let messages = [(Role::System, system), (Role::User, document)];
        trace.push(time, Request::new(None, &messages, output(250.0, rng), limit(rng)));
    }
    trace
}

/// Short questions, with four seconds of tenfold load every twenty seconds.
fn bursts(duration: Duration, rng: &mut Rng) -> Trace {
    let system = Text::new(400, rng);
    let mut times = poisson(12.0, duration, rng);
    for start in (5..duration.as_secs()).step_by(20) {
        times.extend(
            poisson(108.0, Duration::from_secs(4), rng).into_iter().map(|time| Duration::from_secs(start) + time),
        );
    }
    times.sort_unstable();
    let mut trace = Trace::new();
    for time in times {
        let messages = [(Role::System, system), (Role::User, Text::new(log_normal(300.0, 1.0, 6_000, rng), rng))];
        trace.push(time, Request::new(None, &messages, output(120.0, rng), limit(rng)));
    }
    trace
}

/// Requests for sixteen adapters of different popularity, each with a system prompt, and for the base model.
fn lora_mix(duration: Duration, rng: &mut Rng) -> Trace {
    let systems: Vec<Text> = (0..=16).map(|_| Text::new(log_normal(300.0, 0.5, 2_000, rng), rng)).collect();
    let mut trace = Trace::new();
    for time in poisson(20.0, duration, rng) {
        let adapter = if rng.u8(..5) == 0 { None } else { Some(zipf(16, 0.8, rng)) };
        let system = systems[adapter.map_or(16, |adapter| adapter)];
        let messages = [(Role::System, system), (Role::User, Text::new(log_normal(400.0, 0.9, 6_000, rng), rng))];
        trace.push(time, Request::new(adapter, &messages, output(150.0, rng), limit(rng)));
    }
    trace
}

/// Many short prompts and a few very long ones.
fn mixed(rate: f64, duration: Duration, rng: &mut Rng) -> Trace {
    let mut trace = Trace::new();
    for time in poisson(rate, duration, rng) {
        let tokens = match rng.u8(..100) {
            0..85 => log_normal(200.0, 0.8, 2_000, rng),
            85..95 => log_normal(3_000.0, 0.5, 10_000, rng),
            _ => log_normal(16_000.0, 0.4, 50_000, rng),
        };
        let messages = [(Role::User, Text::new(tokens, rng))];
        trace.push(time, Request::new(None, &messages, output(150.0, rng), limit(rng)));
    }
    trace
}

fn mixed_sizes(duration: Duration, rng: &mut Rng) -> Trace {
    mixed(20.0, duration, rng)
}

fn slow_engine(duration: Duration, rng: &mut Rng) -> Trace {
    conversations(7.0, duration, rng)
}

fn stale_metrics(duration: Duration, rng: &mut Rng) -> Trace {
    mixed(18.0, duration, rng)
}

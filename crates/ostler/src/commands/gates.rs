//! `--feature-gates`: switches of the system, spelt as Kubernetes spells its own.

use std::str::FromStr;

const ACCELERATOR_AWARE: &str = "AcceleratorAwareScheduling";

#[derive(clap::Args, Clone, Default)]
pub(crate) struct FeatureGates {
    /// Switches; AcceleratorAwareScheduling=false chooses runtimes without looking at accelerators
    #[arg(long, value_name = "GATE=BOOL,…", value_delimiter = ',')]
    feature_gates: Vec<Gate>,
}

/// The one gate there is, on or off.
#[derive(Clone)]
struct Gate(bool);

impl FeatureGates {
    /// The last word counts; on without one.
    pub(crate) fn accelerator_aware(&self) -> bool {
        self.feature_gates.last().is_none_or(|gate| gate.0)
    }

    /// How the operator runs with them.
    pub(crate) fn options(&self) -> operator::Options {
        operator::Options { accelerator_aware: self.accelerator_aware(), ..operator::Options::default() }
    }
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((ACCELERATOR_AWARE, value)) => value.parse().map(Self).map_err(|_| "not true or false".to_owned()),
            _ => Err(format!("the gate is {ACCELERATOR_AWARE}=true or =false")),
        }
    }
}

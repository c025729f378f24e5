//! `--feature-gates`, in the syntax of Kubernetes components.

use std::str::FromStr;

const ACCELERATOR_AWARE: &str = "AcceleratorAwareScheduling";

#[derive(clap::Args, Clone, Default)]
pub(crate) struct FeatureGates {
    /// Enable or disable features; the only gate is AcceleratorAwareScheduling (true)
    ///
    /// AcceleratorAwareScheduling=false selects runtimes without considering accelerators.
    #[arg(long, value_name = "GATE=BOOL,…", value_delimiter = ',')]
    feature_gates: Vec<FeatureGate>,
}

/// Value of the gate `AcceleratorAwareScheduling`, which is the only one.
#[derive(Clone)]
struct FeatureGate {
    is_enabled: bool,
}

// === impl FeatureGates ===

impl FeatureGates {
    /// Returns whether selection considers accelerators. The last value counts; the default is true.
    pub(crate) fn accelerator_aware(&self) -> bool {
        self.feature_gates.last().is_none_or(|gate| gate.is_enabled)
    }

    /// Returns the operator's options with these gates.
    pub(crate) fn options(&self) -> operator::Options {
        operator::Options { accelerator_aware: self.accelerator_aware(), ..operator::Options::default() }
    }
}

// === impl FeatureGate ===

impl FromStr for FeatureGate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((ACCELERATOR_AWARE, value)) => match value.parse() {
                Ok(is_enabled) => Ok(Self { is_enabled }),
                Err(_) => Err("expected true or false".to_owned()),
            },
            _ => Err(format!("expected {ACCELERATOR_AWARE}=true or {ACCELERATOR_AWARE}=false")),
        }
    }
}

//! Settings of the controller.

use std::time::Duration;

/// Settings of the controller, the same for all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of sleeping engines per accelerator while another one is awake.
    pub sleeper_limit: usize,
    /// How long a sleeping engine is retained after it was last awake; forever if absent.
    pub sleeper_ttl: Option<Duration>,
    /// How long the requests of an engine may run before it is put to sleep.
    pub drain: Duration,
    /// Wait between the removal of the pool labels and the first poll of the number of requests.
    pub settle: Duration,
    /// Whether an engine that wakes up has to return the same completion as when it was first ready.
    pub verify_completion: bool,
    /// Accelerator memory in MiB that a sleeping engine may retain.
    pub residue_mib: u64,
    /// Interval at which the health of instances that serve is checked, because the kubelet probes only their launcher; never if absent.
    pub health_interval: Option<Duration>,
    /// Mode of requesters without the annotation `mode`.
    pub mode: Mode,
    /// Launchers that the controller creates.
    pub launcher: LauncherSettings,
}

/// How the engine of a requester runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As a Pod.
    #[default]
    Direct,
    /// As an instance of a launcher, which is a Pod that can run several engines.
    Launcher,
}

/// Launchers that the controller creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherSettings {
    /// Image with the program `ostler`, which is copied into the container of the engine.
    pub image: String,
    /// Maximum number of instances of one launcher.
    pub max_instances: usize,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Settings {
            sleeper_limit: 1,
            sleeper_ttl: None,
            drain: Duration::from_secs(20),
            settle: Duration::from_millis(200),
            verify_completion: false,
            residue_mib: 4096,
            health_interval: Some(Duration::from_secs(5)),
            mode: Mode::Direct,
            launcher: LauncherSettings::default(),
        }
    }
}

// === impl Mode ===

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        match text {
            "direct" => Ok(Mode::Direct),
            "launcher" => Ok(Mode::Launcher),
            _ => Err(format!("\"{text}\" is neither \"direct\" nor \"launcher\"")),
        }
    }
}

// === impl LauncherSettings ===

impl Default for LauncherSettings {
    fn default() -> Self {
        LauncherSettings { image: concat!("ostler:", env!("CARGO_PKG_VERSION")).to_owned(), max_instances: 16 }
    }
}

//! The endpoint picker (EPP) of the Gateway API Inference Extension behind Envoy, built from its Go module.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::super::directories::target_directory;
use super::backends::Backends;
use super::envoy;
use super::peer::{self, Peer};

pub(super) const NAME: &str = "EPP 1.5.0 behind Envoy";

const MODULE: &str = "sigs.k8s.io/gateway-api-inference-extension";
const VERSION: &str = "v1.5.0";
/// Oldest version of Go with which the picker is built.
const GO_VERSION: &str = "1.26";

const ENVOY_PORT: u16 = 26_807;
const PICKER_PORT: u16 = 26_808;
const HEALTH_PORT: u16 = 26_809;
const METRICS_PORT: u16 = 26_810;

/// A picker that was built, and its definitions.
pub(super) struct UpstreamPicker {
    program: PathBuf,
    /// Directory with the CustomResourceDefinitions of the kinds that it watches.
    pub(super) definitions: PathBuf,
}

/// Returns the picker, or `None` if it cannot be built. With `small`, it is not built: that takes minutes.
pub(super) fn find(small: bool) -> Option<UpstreamPicker> {
    let program = target_directory().join(format!("epp-{VERSION}/epp"));
    if !program.is_file() && (small || !build(&program)) {
        eprintln!("{NAME}: skipped: {} does not exist", program.display());
        return None;
    }
    Some(UpstreamPicker { program, definitions: module_cache()?.join(format!("{MODULE}@{VERSION}/config/crd/bases")) })
}

/// Starts the picker without a configuration: with queue, KV cache and prefix scorers. Returns `None` if Envoy cannot be
/// downloaded.
pub(super) fn start(backends: &Backends, picker: &UpstreamPicker) -> Result<Option<Peer>> {
    let Some(envoy) = envoy::start_before_picker(backends, ENVOY_PORT, PICKER_PORT)? else { return Ok(None) };
    let mut command = Command::new(&picker.program);
    command.env("KUBECONFIG", backends.kubeconfig());
    command.args(["--pool-name", "pool", "--pool-namespace", "default", "--secure-serving=false"]);
    command.args(["--metrics-endpoint-auth=false", "--tracing=false", "--zap-log-level=error"]);
    for (flag, port) in
        [("--grpc-port", PICKER_PORT), ("--grpc-health-port", HEALTH_PORT), ("--metrics-port", METRICS_PORT)]
    {
        command.args([flag, &port.to_string()]);
    }
    let picker = peer::start_process(backends, "epp", &mut command)?;
    Ok(Some(Peer::new(NAME, ENVOY_PORT, picker, vec![envoy])))
}

/// Builds the picker. Returns whether it succeeded.
fn build(program: &Path) -> bool {
    let directory = program.with_file_name("module");
    if let Err(error) = write_module(&directory) {
        eprintln!("{NAME}: failed to write {}: {error}", directory.display());
        return false;
    }
    let mut build = Command::new("go");
    build.args(["build", "-mod=mod", "-o"]).arg(program).arg(format!("{MODULE}/cmd/epp"));
    build.current_dir(directory).env_remove("GOFLAGS");
    crate::process::run(&mut build).is_ok()
}

/// Writes a module that requires the version of the picker. Unlike `go install`, which reads the list of all versions, building
/// in it needs no more of a module proxy than the modules themselves.
fn write_module(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let content = format!("module epp\n\ngo {GO_VERSION}\n\nrequire {MODULE} {VERSION}\n\ntool {MODULE}/cmd/epp\n");
    std::fs::write(directory.join("go.mod"), content)
}

fn module_cache() -> Option<PathBuf> {
    let output = Command::new("go").args(["env", "GOMODCACHE"]).output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

//! The endpoint picker (EPP) of the Gateway API Inference Extension, built from its Go module.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

const MODULE: &str = "sigs.k8s.io/gateway-api-inference-extension";
const VERSION: &str = "v1.5.0";
/// Oldest version of Go with which it is built.
const GO_VERSION: &str = "1.26";

/// An EPP that was built, and its definitions.
pub(crate) struct Epp {
    pub(crate) program: PathBuf,
    /// Directory with the CustomResourceDefinitions of the kinds that it watches.
    pub(crate) definitions: PathBuf,
}

// === impl Epp ===

impl Epp {
    /// Returns EPP, which is built if it has not been built before. That takes minutes.
    ///
    /// # Errors
    /// There is no `go`, or it fails to build the module.
    pub(crate) fn build() -> Result<Self> {
        let program = program();
        if !program.is_file() {
            build(&program)?;
        }
        Self::built()
    }

    /// Returns EPP if it has been built before.
    ///
    /// # Errors
    /// It has not, or there is no `go`.
    pub(crate) fn built() -> Result<Self> {
        let program = program();
        if !program.is_file() {
            bail!("{} does not exist", program.display());
        }
        let output = Command::new("go").args(["env", "GOMODCACHE"]).output().context("failed to run `go`")?;
        let modules = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        Ok(Self { program, definitions: modules.join(format!("{MODULE}@{VERSION}/config/crd/bases")) })
    }
}

fn program() -> PathBuf {
    workspace::root().join(format!("target/epp-{VERSION}/epp"))
}

fn build(program: &Path) -> Result<()> {
    let directory = program.with_file_name("module");
    write_module(&directory).with_context(|| directory.display().to_string())?;
    let mut build = Command::new("go");
    build.args(["build", "-mod=mod", "-o"]).arg(program).arg(format!("{MODULE}/cmd/epp"));
    process::run(build.current_dir(directory).env_remove("GOFLAGS"))
}

/// Writes a module that requires EPP. Unlike `go install`, which reads the list of all versions, building in it needs no more of a
/// module proxy than the modules themselves.
fn write_module(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let content = format!("module epp\n\ngo {GO_VERSION}\n\nrequire {MODULE} {VERSION}\n\ntool {MODULE}/cmd/epp\n");
    std::fs::write(directory.join("go.mod"), content)
}

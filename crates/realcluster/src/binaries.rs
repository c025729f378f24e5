//! Locates the binaries, and the manifests in the sources of their Go modules.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::components::Components;

/// Binaries of the add-ons.
const ADDONS: [&str; 4] = ["lws", "volcano-scheduler", "volcano-controller-manager", "volcano-webhook-manager"];

/// A directory with `bin/NAME` and `stamps/NAME` (the version), and the Go module cache.
#[derive(Clone, Debug)]
pub struct Binaries {
    root: PathBuf,
    module_cache: PathBuf,
}

// === impl Binaries ===

impl Binaries {
    /// Finds the binaries of all components and add-ons in `$OSTLER_REALCLUSTER` (default: `~/.cache/ostler/realcluster`)
    /// and the module cache in `$GOMODCACHE`.
    ///
    /// # Errors
    /// The binaries that are missing.
    pub fn find_all() -> Result<Self> {
        Self::require(Components::all().binaries().chain(ADDONS))
    }

    /// Finds the binaries of `components` in the same directories.
    ///
    /// # Errors
    /// The binaries that are missing.
    pub fn find_for(components: Components) -> Result<Self> {
        Self::require(components.binaries())
    }

    fn require(names: impl Iterator<Item = &'static str>) -> Result<Self> {
        let root = match std::env::var_os("OSTLER_REALCLUSTER") {
            Some(path) => PathBuf::from(path),
            None => home()?.join(".cache/ostler/realcluster"),
        };
        let binaries = Self { root, module_cache: module_cache()? };
        let missing: Vec<&str> = names.filter(|name| !binaries.path(name).is_file()).collect();
        if !missing.is_empty() {
            bail!("missing binaries in {}: {}", binaries.root.display(), missing.join(", "));
        }
        Ok(binaries)
    }

    /// Returns the path of the binary `name`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// Returns the source directory of Go module `module` at the version that binary `name` was built from.
    ///
    /// # Errors
    /// The module is not in the module cache.
    pub fn module_source(&self, module: &str, name: &str) -> Result<PathBuf> {
        let stamp = self.root.join("stamps").join(name);
        let version = std::fs::read_to_string(&stamp)
            .with_context(|| format!("failed to read the version of {name} from {}", stamp.display()))?;
        let directory = self.module_cache.join(format!("{module}@{}", version.trim()));
        if !directory.is_dir() {
            bail!("source of module {module} not found: {}", directory.display());
        }
        Ok(directory)
    }

    /// Returns the source directory of the newest cached version of Go module `module`.
    #[must_use]
    pub fn newest_module_source(&self, module: &str) -> Option<PathBuf> {
        let (directory, name) = module.rsplit_once('/')?;
        let versions = std::fs::read_dir(self.module_cache.join(directory)).ok()?.flatten().map(|entry| entry.path());
        let of_module = |path: &PathBuf| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}@")))
        };
        versions.filter(of_module).max()
    }
}

/// Returns the Go module cache, by the rules of the `go` command.
fn module_cache() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GOMODCACHE") {
        return Ok(PathBuf::from(path));
    }
    match std::env::var_os("GOPATH") {
        Some(path) => Ok(Path::new(&path).join("pkg/mod")),
        None => Ok(home()?.join("go/pkg/mod")),
    }
}

fn home() -> Result<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).context("HOME is not set")
}

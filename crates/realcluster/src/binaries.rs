//! Where the binaries are, and the manifests that come with their sources.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::parts::Parts;

/// What is added to a whole control plane.
const ADDONS: [&str; 4] = ["lws", "volcano-scheduler", "volcano-controller-manager", "volcano-webhook-manager"];

/// A folder with `bin/NAME` and `stamps/NAME` (the version), and Go's cache of modules.
#[derive(Clone, Debug)]
pub struct Binaries {
    root: PathBuf,
    modules: PathBuf,
}

// === impl Binaries ===

impl Binaries {
    /// A whole control plane with all that we add to it, in `$OSTLER_REALCLUSTER` (`~/.cache/ostler/realcluster` without
    /// it) and `$GOMODCACHE`.
    ///
    /// # Errors
    /// What is not there.
    pub fn find() -> Result<Self> {
        Self::with(Parts::all().binaries().chain(ADDONS))
    }

    /// What `parts` need, there.
    ///
    /// # Errors
    /// What is not there.
    pub fn of(parts: Parts) -> Result<Self> {
        Self::with(parts.binaries())
    }

    fn with(names: impl Iterator<Item = &'static str>) -> Result<Self> {
        let root = match std::env::var_os("OSTLER_REALCLUSTER") {
            Some(named) => PathBuf::from(named),
            None => home()?.join(".cache/ostler/realcluster"),
        };
        let found = Self { root, modules: modules()? };
        let missing: Vec<&str> = names.filter(|name| !found.path(name).is_file()).collect();
        if !missing.is_empty() {
            bail!("{} not built in {}", missing.join(", "), found.root.display());
        }
        Ok(found)
    }

    /// The binary of that name.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// The source of Go module `module`, at the version that binary `name` was built from.
    ///
    /// # Errors
    /// The module is not in the cache.
    pub fn module(&self, module: &str, name: &str) -> Result<PathBuf> {
        let stamp = self.root.join("stamps").join(name);
        let version =
            std::fs::read_to_string(&stamp).with_context(|| format!("version of {name}: {}", stamp.display()))?;
        let folder = self.modules.join(format!("{module}@{}", version.trim()));
        if !folder.is_dir() {
            bail!("no source of {module}: {}", folder.display());
        }
        Ok(folder)
    }

    /// The newest source of Go module `module` in the cache, if there is one.
    #[must_use]
    pub fn newest(&self, module: &str) -> Option<PathBuf> {
        let (folder, name) = module.rsplit_once('/')?;
        let versions = std::fs::read_dir(self.modules.join(folder)).ok()?.flatten().map(|entry| entry.path());
        let of_module = |path: &PathBuf| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}@")))
        };
        versions.filter(of_module).max()
    }
}

/// Go's own rule for where it keeps modules.
fn modules() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("GOMODCACHE") {
        return Ok(PathBuf::from(named));
    }
    match std::env::var_os("GOPATH") {
        Some(path) => Ok(Path::new(&path).join("pkg/mod")),
        None => Ok(home()?.join("go/pkg/mod")),
    }
}

fn home() -> Result<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).context("HOME is not set")
}

//! The images that this host can run: an image maps to a program of the host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;

use crate::files;
use crate::report::errors::error_with_hint;

/// Content of the file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    images: BTreeMap<String, ImageOverride>,
}

/// The program of this host that runs instead of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageOverride {
    /// Command of containers without a `command`. The directory of the program is prepended to their PATH.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Simulated failure of the image on all nodes, for testing how failures are handled.
    #[serde(default)]
    pub broken: Option<ImageFailure>,
}

/// A configured failure of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ImageFailure {
    /// The image cannot be pulled.
    Pull,
    /// Containers of the image exit immediately.
    Crash,
}

/// Maps images to programs of this host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Images {
    /// Entries of `--config`, by image name with or without a tag.
    overrides: BTreeMap<String, ImageOverride>,
    /// Path of this executable, for the image `ostler`.
    own_executable: Option<PathBuf>,
    /// Path of the installed vLLM, for all vLLM images.
    vllm: Option<PathBuf>,
}

/// Last component of the name of ostler's image.
const OSTLER_IMAGE: &str = "ostler";

// === impl Images ===

impl Images {
    /// Reads the file of `--config` and finds the vLLM of `$OSTLER_VLLM` or PATH.
    pub(crate) fn read(config: Option<&Path>) -> Result<Self> {
        let config = config.map_or_else(|| Ok(Config::default()), read_config)?;
        let overrides =
            config.images.into_iter().map(|(image, program)| (familiar_name(&image).to_owned(), program)).collect();
        Ok(Self { overrides, own_executable: std::env::current_exe().ok(), vllm: find_vllm()? })
    }

    /// Returns the program for `image`, or `None` if this host has none.
    pub(crate) fn resolve(&self, image: &str) -> Option<ImageOverride> {
        self.find_override(image).filter(|program| program.broken.is_none()).cloned().or_else(|| {
            let vllm = self.vllm.as_ref().filter(|_| is_vllm_image(familiar_name(image)))?;
            Some(ImageOverride::with_entrypoint(&[&vllm.display().to_string(), "serve"]))
        })
    }

    /// Returns the configured failure of `image`.
    pub(crate) fn failure(&self, image: &str) -> Option<ImageFailure> {
        self.find_override(image).and_then(|program| program.broken)
    }

    /// Returns the error of pulling `image`: it is configured to fail, or its registry is in the top-level domain `.invalid`,
    /// which never resolves (RFC 2606).
    pub(crate) fn pull_error(&self, image: &str) -> Option<String> {
        let host = image.split('/').next().filter(|host| image.len() > host.len())?.split(':').next()?;
        if host.ends_with(".invalid") {
            return Some(format!("failed to resolve reference \"{image}\": lookup {host}: no such host"));
        }
        let not_found = format!("failed to resolve reference \"{image}\": {image}: not found");
        (self.failure(image) == Some(ImageFailure::Pull)).then_some(not_found)
    }

    /// Returns this executable if `image` is ostler's own image and `--config` does not map it.
    pub(crate) fn own_override(&self, image: &str) -> Option<ImageOverride> {
        let is_own_image = self.find_override(image).is_none()
            && without_tag(familiar_name(image)).rsplit('/').next() == Some(OSTLER_IMAGE);
        let program = self.own_executable.as_ref().filter(|_| is_own_image)?;
        Some(ImageOverride::with_entrypoint(&[&program.display().to_string()]))
    }

    fn find_override(&self, image: &str) -> Option<&ImageOverride> {
        let image = familiar_name(image);
        self.overrides.get(image).or_else(|| self.overrides.get(without_tag(image)))
    }

    /// Returns the path of the installed vLLM.
    pub(crate) fn vllm(&self) -> Option<&Path> {
        self.vllm.as_deref()
    }
}

// === impl ImageOverride ===

impl ImageOverride {
    fn with_entrypoint(command: &[&str]) -> Self {
        Self { entrypoint: command.iter().map(|arg| (*arg).to_owned()).collect(), broken: None }
    }

    /// Returns the directory of the entry point, which is prepended to PATH.
    pub(crate) fn entrypoint_directory(&self) -> Option<&Path> {
        Path::new(self.entrypoint.first()?).parent().filter(|directory| directory.is_absolute())
    }
}

fn read_config(path: &Path) -> Result<Config> {
    serde_saphyr::from_str(&files::read_text(path)?).map_err(|error| {
        let cause = error.to_string().lines().next().unwrap_or_default().to_owned();
        error_with_hint(
            format!("{}: {cause}", path.display()),
            "write for example `images: {vllm/vllm-openai: {entrypoint: [/opt/vllm/bin/vllm, serve]}, a/b:v2: {broken: pull}}`",
        )
    })
}

/// Returns the program of `$OSTLER_VLLM`, which must exist, or `vllm` on PATH. Symbolic links are resolved: the directory of
/// the program also contains its Python interpreter.
fn find_vllm() -> Result<Option<PathBuf>> {
    if let Some(value) = std::env::var_os("OSTLER_VLLM").filter(|value| !value.is_empty()) {
        let path = PathBuf::from(value);
        return match path.canonicalize() {
            Ok(program) => Ok(Some(program)),
            Err(error) => Err(error_with_hint(
                format!("OSTLER_VLLM={}: {error}", path.display()),
                "set OSTLER_VLLM to the path of the `vllm` program",
            )),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program =
        std::env::split_paths(&path).map(|directory| directory.join("vllm")).find(|program| program.is_file());
    Ok(program.and_then(|program| program.canonicalize().ok()))
}

/// Removes the default registry and the digest: `docker.io/library/busybox@sha256:…` becomes `busybox`.
fn familiar_name(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    image.strip_prefix("library/").unwrap_or(image)
}

/// Removes the tag. A colon before a slash belongs to the port of the registry.
fn without_tag(image: &str) -> &str {
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}

/// Returns whether the image is `vllm/vllm-openai` or one of its builds for other hardware.
fn is_vllm_image(image: &str) -> bool {
    without_tag(image).rsplit('/').next().is_some_and(|component| component.starts_with("vllm"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn images() -> Images {
        let program = |entrypoint: &str| ImageOverride::with_entrypoint(&[entrypoint]);
        let overrides = [("busybox", ""), ("vllm/vllm-openai:v1", "/a/vllm"), ("host:5000/x", "/b/x")];
        let overrides = overrides.map(|(image, entrypoint)| (image.to_owned(), program(entrypoint)));
        Images {
            overrides: overrides.into(),
            own_executable: Some("/usr/bin/ostler".into()),
            vllm: Some("/opt/bin/vllm".into()),
        }
    }

    #[rstest]
    #[case::any_tag("busybox:1.36", Some(""))]
    #[case::default_registry("docker.io/library/busybox", Some(""))]
    #[case::configured_tag("vllm/vllm-openai:v1", Some("/a/vllm"))]
    #[case::other_tag("vllm/vllm-openai:v2", Some("/opt/bin/vllm"))]
    #[case::other_build("docker.io/vllm/vllm-openai-cpu:v0.32.0@sha256:0", Some("/opt/bin/vllm"))]
    #[case::registry_port("host:5000/x", Some("/b/x"))]
    #[case::unknown_image("lmsysorg/sglang:v1", None)]
    fn resolves_images(#[case] image: &str, #[case] expected: Option<&str>) {
        let program = images().resolve(image);
        assert_eq!(program.as_ref().map(|program| program.entrypoint[0].as_str()), expected);
    }

    #[rstest]
    #[case::available("vllm/vllm-openai:v1", None)]
    #[case::configured_failure(
        "vllm/vllm-openai:broken",
        Some("failed to resolve reference \"vllm/vllm-openai:broken\": vllm/vllm-openai:broken: not found")
    )]
    #[case::invalid_host(
        "registry.invalid:5000/vllm",
        Some("failed to resolve reference \"registry.invalid:5000/vllm\": lookup registry.invalid: no such host")
    )]
    #[case::no_registry("registry.invalid", None)]
    #[case::crash("vllm/vllm-openai:oom", None)]
    fn reports_pull_errors(#[case] image: &str, #[case] expected: Option<&str>) {
        let mut images = images();
        for (image, broken) in
            [("vllm/vllm-openai:broken", ImageFailure::Pull), ("vllm/vllm-openai:oom", ImageFailure::Crash)]
        {
            images
                .overrides
                .insert(image.to_owned(), ImageOverride { broken: Some(broken), ..ImageOverride::default() });
        }
        assert_eq!(images.pull_error(image).as_deref(), expected);
    }

    #[rstest]
    #[case::default_image("ostler:0.1.0", true)]
    #[case::other_registry("host:5000/team/ostler@sha256:0", true)]
    #[case::other_image("ostler-router:1", false)]
    #[case::configured("busybox", false)]
    fn maps_own_image_to_this_executable(#[case] image: &str, #[case] expected: bool) {
        assert_eq!(
            images().own_override(image).map(|program| program.entrypoint),
            expected.then(|| vec!["/usr/bin/ostler".to_owned()])
        );
        let mut images = images();
        images.overrides.insert("ostler".to_owned(), ImageOverride::default());
        assert_eq!(images.own_override("ostler:0.1.0"), None, "the configuration takes precedence");
    }
}

//! Which images this machine can run: programs that stand in the place of what an image would bring.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;

use crate::files;
use crate::report::errors::hinted;

/// The file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    images: BTreeMap<String, Program>,
}

/// What stands for an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    /// For containers without a `command`; its folder comes first on their PATH.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// What is wrong with the image, on every node; for trying out what follows.
    #[serde(default)]
    pub broken: Option<Broken>,
}

/// How an image fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Broken {
    /// No registry has it.
    Pull,
    /// Its containers end at once.
    Crash,
}

/// By the image's name, with or without a tag.
#[derive(Debug, Clone, Default)]
pub(crate) struct Images {
    stated: BTreeMap<String, Program>,
    /// This program, for its own image.
    own: Option<PathBuf>,
    /// The engine that was found, for every image that carries it.
    vllm: Option<PathBuf>,
}

/// The last part of the name of this program's image.
const OWN: &str = "ostler";

// === impl Images ===

impl Images {
    /// Those of the configuration, and the vLLM of `$OSTLER_VLLM` or PATH.
    pub(crate) fn read(config: Option<&Path>) -> Result<Self> {
        let config = config.map_or_else(|| Ok(Config::default()), read)?;
        let stated = config.images.into_iter().map(|(image, program)| (name(&image).to_owned(), program)).collect();
        Ok(Self { stated, own: std::env::current_exe().ok(), vllm: vllm()? })
    }

    /// What runs for `image`; `None` where nothing of this machine does.
    pub(crate) fn find(&self, image: &str) -> Option<Program> {
        self.stated_for(image).filter(|stated| stated.broken.is_none()).cloned().or_else(|| {
            let vllm = self.vllm.as_ref().filter(|_| carries_vllm(name(image)))?;
            Some(Program::starting(&[&vllm.display().to_string(), "serve"]))
        })
    }

    /// How `image` fails, if it is meant to.
    pub(crate) fn broken(&self, image: &str) -> Option<Broken> {
        self.stated_for(image).and_then(|stated| stated.broken)
    }

    /// Why nobody can pull `image`: it is meant to fail, or its registry is below `.invalid`, where no host ever is
    /// (RFC 2606).
    pub(crate) fn unavailable(&self, image: &str) -> Option<String> {
        let host = image.split('/').next().filter(|host| image.len() > host.len())?.split(':').next()?;
        if host.ends_with(".invalid") {
            return Some(format!("failed to resolve reference \"{image}\": lookup {host}: no such host"));
        }
        let missing = format!("failed to resolve reference \"{image}\": {image}: not found");
        (self.broken(image) == Some(Broken::Pull)).then_some(missing)
    }

    /// This program, if `image` is its own and nothing else is stated for it.
    pub(crate) fn own(&self, image: &str) -> Option<Program> {
        let is_own = self.stated_for(image).is_none() && untagged(name(image)).rsplit('/').next() == Some(OWN);
        let program = self.own.as_ref().filter(|_| is_own)?;
        Some(Program::starting(&[&program.display().to_string()]))
    }

    fn stated_for(&self, image: &str) -> Option<&Program> {
        let image = name(image);
        self.stated.get(image).or_else(|| self.stated.get(untagged(image)))
    }

    /// The vLLM that was found.
    pub(crate) fn vllm(&self) -> Option<&Path> {
        self.vllm.as_deref()
    }
}

// === impl Program ===

impl Program {
    fn starting(words: &[&str]) -> Self {
        Self { entrypoint: words.iter().map(|word| (*word).to_owned()).collect(), broken: None }
    }

    /// The folder of the entry point; programs beside it are found first.
    pub(crate) fn folder(&self) -> Option<&Path> {
        Path::new(self.entrypoint.first()?).parent().filter(|folder| folder.is_absolute())
    }
}

fn read(path: &Path) -> Result<Config> {
    serde_saphyr::from_str(&files::text_of(path)?).map_err(|error| {
        let cause = error.to_string().lines().next().unwrap_or_default().to_owned();
        hinted(
            format!("{}: {cause}", path.display()),
            "images: {vllm/vllm-openai: {entrypoint: [/opt/vllm/bin/vllm, serve]}, busybox: {}, a/b:v2: {broken: pull}}",
        )
    })
}

/// `$OSTLER_VLLM`, which must be there, or `vllm` on PATH. Links are followed: beside the program lies its Python.
fn vllm() -> Result<Option<PathBuf>> {
    if let Some(named) = std::env::var_os("OSTLER_VLLM").filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return match path.canonicalize() {
            Ok(found) => Ok(Some(found)),
            Err(error) => {
                Err(hinted(format!("OSTLER_VLLM={}: {error}", path.display()), "the path of the `vllm` program"))
            }
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("vllm")).find(|program| program.is_file());
    Ok(found.and_then(|program| program.canonicalize().ok()))
}

/// `docker.io/library/busybox` is `busybox`, and a digest names no other program.
fn name(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    image.strip_prefix("library/").unwrap_or(image)
}

fn untagged(image: &str) -> &str {
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}

/// `vllm/vllm-openai`, and its builds for other hardware.
fn carries_vllm(image: &str) -> bool {
    untagged(image).rsplit('/').next().is_some_and(|last| last.starts_with("vllm"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn images() -> Images {
        let program = |entrypoint: &str| Program::starting(&[entrypoint]);
        let stated = [("busybox", ""), ("vllm/vllm-openai:v1", "/a/vllm"), ("host:5000/x", "/b/x")];
        let stated = stated.map(|(image, entrypoint)| (image.to_owned(), program(entrypoint)));
        Images { stated: stated.into(), own: Some("/here/ostler".into()), vllm: Some("/found/bin/vllm".into()) }
    }

    #[rstest]
    #[case::any_tag("busybox:1.36", Some(""))]
    #[case::the_default_registry("docker.io/library/busybox", Some(""))]
    #[case::this_tag("vllm/vllm-openai:v1", Some("/a/vllm"))]
    #[case::another_tag("vllm/vllm-openai:v2", Some("/found/bin/vllm"))]
    #[case::a_build("docker.io/vllm/vllm-openai-cpu:v0.32.0@sha256:0", Some("/found/bin/vllm"))]
    #[case::a_port_is_no_tag("host:5000/x", Some("/b/x"))]
    #[case::something_else("lmsysorg/sglang:v1", None)]
    fn found(#[case] image: &str, #[case] expect: Option<&str>) {
        let found = images().find(image);
        assert_eq!(found.as_ref().map(|program| program.entrypoint[0].as_str()), expect);
    }

    #[rstest]
    #[case::there("vllm/vllm-openai:v1", None)]
    #[case::meant_to_fail(
        "vllm/vllm-openai:broken",
        Some("failed to resolve reference \"vllm/vllm-openai:broken\": vllm/vllm-openai:broken: not found")
    )]
    #[case::no_such_host(
        "registry.invalid:5000/vllm",
        Some("failed to resolve reference \"registry.invalid:5000/vllm\": lookup registry.invalid: no such host")
    )]
    #[case::a_name_of_one_part("registry.invalid", None)]
    #[case::ends_at_once("vllm/vllm-openai:oom", None)]
    fn what_cannot_be_pulled(#[case] image: &str, #[case] expect: Option<&str>) {
        let mut images = images();
        for (image, broken) in [("vllm/vllm-openai:broken", Broken::Pull), ("vllm/vllm-openai:oom", Broken::Crash)] {
            images.stated.insert(image.to_owned(), Program { broken: Some(broken), ..Program::default() });
        }
        assert_eq!(images.unavailable(image).as_deref(), expect);
    }

    #[rstest]
    #[case::the_shipped_one("ostler:0.1.0", true)]
    #[case::of_a_registry("host:5000/team/ostler@sha256:0", true)]
    #[case::another("ostler-router:1", false)]
    #[case::stated("busybox", false)]
    fn own(#[case] image: &str, #[case] expect: bool) {
        assert_eq!(
            images().own(image).map(|program| program.entrypoint),
            expect.then(|| vec!["/here/ostler".to_owned()])
        );
        let mut images = images();
        images.stated.insert("ostler".to_owned(), Program::default());
        assert_eq!(images.own("ostler:0.1.0"), None, "what is stated counts");
    }
}

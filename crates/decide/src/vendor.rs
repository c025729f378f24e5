//! Vendors of accelerators, by the resource that Pods request and by the image of the engine.

/// Vendors with the prefixes of the resources of their device plugins.
const RESOURCE_PREFIXES: [(&str, &str); 8] = [
    ("nvidia.com/", "nvidia"),
    ("amd.com/", "amd"),
    ("gpu.intel.com/", "intel"),
    ("intel.com/gpu", "intel"),
    ("habana.ai/", "habana"),
    ("google.com/tpu", "google"),
    ("aws.amazon.com/neuron", "aws"),
    ("huawei.com/", "huawei"),
];

/// Vendors with the words in image names and tags that state the platform of a build.
const IMAGE_WORDS: [(&str, &str); 9] = [
    ("cuda", "nvidia"),
    ("cu", "nvidia"),
    ("rocm", "amd"),
    ("gaudi", "habana"),
    ("hpu", "habana"),
    ("xpu", "intel"),
    ("neuron", "aws"),
    ("ascend", "huawei"),
    ("tpu", "google"),
];

/// Registry of NVIDIA, whose images are built for CUDA. Repositories such as `lmsysorg/sglang` contain builds for several platforms.
const NVIDIA_REGISTRY: &str = "nvcr.io/";

/// Repository of vLLM for CUDA. Other platforms have repositories of their own, such as `vllm/vllm-openai-rocm` (docs.vllm.ai, Using
/// Docker).
const VLLM_FOR_CUDA: &str = "vllm/vllm-openai";

/// Returns the vendor whose device plugin advertises the resource, if it is known.
pub(crate) fn of_resource(name: &str) -> Option<&'static str> {
    RESOURCE_PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, vendor)| *vendor)
}

/// Returns the vendor whose platform the name or the tag of an image states: `cuda12.8`, `cu126`, `rocm6.4`. Without such a word, images
/// of NVIDIA's registry and of vLLM's repository for CUDA are built for CUDA.
pub(crate) fn of_image(image: &str) -> Option<&'static str> {
    let image = image.to_ascii_lowercase();
    let without_digest = image.split('@').next().unwrap_or_default();
    let words = without_digest.split(|c: char| !c.is_ascii_alphanumeric());
    let vendor = |word: &str| {
        let platform = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let has_version = platform.len() < word.len();
        let known = IMAGE_WORDS.iter().find(|(name, _)| *name == platform)?;
        // `cu` needs a version, which distinguishes it from other words.
        (platform != "cu" || has_version).then_some(known.1)
    };
    let stated = words.filter(|word| !word.is_empty()).find_map(vendor);
    let repository = match without_digest.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => without_digest,
    };
    let is_for_cuda = || {
        let path = repository.strip_suffix(VLLM_FOR_CUDA);
        image.starts_with(NVIDIA_REGISTRY)
            || path.is_some_and(|registry| registry.is_empty() || registry.ends_with('/'))
    };
    stated.or_else(|| is_for_cuda().then_some("nvidia"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("nvidia.com/gpu", Some("nvidia"))]
    #[case("nvidia.com/mig-3g.20gb", Some("nvidia"))]
    #[case("gpu.intel.com/i915", Some("intel"))]
    #[case("acme.com/npu", None)]
    fn knows_resources(#[case] name: &str, #[case] expected: Option<&str>) {
        assert_eq!(of_resource(name), expected);
    }

    #[rstest]
    #[case("nvcr.io/nvidia/pytorch:25.01-cuda12.8", Some("nvidia"))]
    #[case("lmsysorg/sglang:v0.5.23-cu126", Some("nvidia"))]
    #[case("rocm/vllm:latest", Some("amd"))]
    #[case("lmsysorg/sglang:v0.4.6-rocm630", Some("amd"))]
    #[case("vault.habana.ai/gaudi-docker/vllm:1", Some("habana"))]
    #[case("vllm/vllm-tpu:v0.32.0", Some("google"))]
    #[case("example.com/cu/engine:1", None)]
    #[case("vllm/vllm-openai:v0.32.0", Some("nvidia"))]
    #[case("registry:5000/vllm/vllm-openai", Some("nvidia"))]
    #[case("vllm/vllm-openai-cpu:v0.32.0", None)]
    #[case("example.com/myvllm/vllm-openai:v0.32.0", None)]
    #[case("vllm/vllm-openai-rocm:v0.32.0", Some("amd"))]
    #[case("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", Some("nvidia"))]
    #[case("engine@sha256:cu126", None)]
    fn knows_images(#[case] image: &str, #[case] expected: Option<&str>) {
        assert_eq!(of_image(image), expected);
    }
}

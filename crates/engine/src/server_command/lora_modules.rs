//! Values of vLLM's `--lora-modules`.

use serde::Deserialize;

/// A LoRA adapter of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LoraModule {
    /// Name in requests.
    pub name: String,
    /// Location of its files.
    pub path: String,
}

/// Parses `NAME=PATH`, and objects with the fields `name` and `path`. Others are ignored; vLLM rejects them.
pub(super) fn parse(values: &[String]) -> Vec<LoraModule> {
    let parse_one = |value: &String| match value.split_once('=') {
        Some((name, path)) if !value.starts_with('{') => {
            Some(LoraModule { name: name.to_owned(), path: path.to_owned() })
        }
        _ => serde_json::from_str(value).ok(),
    };
    values.iter().filter_map(parse_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_both_forms() {
        let values = ["sql=/loras/sql", r#"{"name":"code","path":"a/b=c","base_model_name":"m"}"#, "x", "{}"];
        let modules = parse(&values.map(str::to_owned));
        let modules: Vec<_> = modules.iter().map(|module| (module.name.as_str(), module.path.as_str())).collect();
        assert_eq!(modules, [("sql", "/loras/sql"), ("code", "a/b=c")]);
    }
}

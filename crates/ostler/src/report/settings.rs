//! Settings of Pod templates, each with its origin.

use decide::{OverriddenValue, Setting};

/// Longest value in characters; longer ones, such as probes and volumes, are truncated.
const MAX_VALUE_WIDTH: usize = 64;

/// Renders `field  value  origin` and the overridden values, one line per setting.
pub(crate) fn lines<'s>(settings: impl Iterator<Item = &'s Setting>) -> Vec<String> {
    let rows: Vec<[String; 3]> = settings.map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (field, value) = (width(0), width(1));
    rows.iter().map(|[name, effective, origin]| format!("{name:<field$}  {effective:<value$}  {origin}")).collect()
}

fn row(setting: &Setting) -> [String; 3] {
    let overridden = setting
        .overridden
        .iter()
        .map(|OverriddenValue { origin, value }| format!("overrides {} ({})", truncate(value), origin.as_str()));
    let origins: Vec<String> = [setting.origin.as_str().to_owned()].into_iter().chain(overridden).collect();
    [setting.field.to_string(), truncate(&setting.value), origins.join("; ")]
}

fn truncate(value: &str) -> String {
    let line = value.replace('\n', " ");
    if line.chars().count() <= MAX_VALUE_WIDTH {
        return line;
    }
    line.chars().take(MAX_VALUE_WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use decide::{Origin, SettingField};

    use super::*;

    #[test]
    fn shows_origin_and_overridden_values() {
        let mut max_model_len = Setting::new(SettingField::Flag("--max-model-len".to_owned()), "4096", Origin::Runtime);
        max_model_len.override_with("8192".to_owned(), Origin::Service);
        let probe = Setting::new(SettingField::named("livenessProbe"), "x".repeat(100), Origin::Runtime);
        let lines = lines([max_model_len, probe].iter());
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
            "args --max-model-len 8192 service; overrides 4096 (runtime)"
        );
        assert!(lines[1].contains('…') && lines[1].chars().count() < 110, "{}", lines[1]);
    }
}

//! Values of pod templates, each with who said it.

use decide::merge::origin::{Said, Setting};

/// A longer value is cut: probes and volumes are whole objects.
const WIDTH: usize = 64;

/// `field  value  who`, and who said otherwise.
pub(crate) fn settings<'s>(all: impl Iterator<Item = &'s Setting>) -> Vec<String> {
    let rows: Vec<[String; 3]> = all.map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (field, value) = (width(0), width(1));
    rows.iter().map(|[name, said, who]| format!("{name:<field$}  {said:<value$}  {who}")).collect()
}

fn row(setting: &Setting) -> [String; 3] {
    let others =
        setting.overridden.iter().map(|Said { origin, value }| format!("{} said {}", origin.as_str(), cut(value)));
    let who = [setting.origin.as_str().to_owned()].into_iter().chain(others).collect::<Vec<_>>().join("; ");
    [setting.field.clone(), cut(&setting.value), who]
}

fn cut(value: &str) -> String {
    let line = value.replace('\n', " ");
    if line.chars().count() <= WIDTH {
        return line;
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use decide::merge::origin::Origin;

    use super::*;

    #[test]
    fn who_said_what_and_who_said_otherwise() {
        let mut size = Setting::new("args --max-model-len", "4096", Origin::Runtime);
        size.override_with("8192".to_owned(), Origin::Service);
        let probe = Setting::new("livenessProbe", "x".repeat(100), Origin::Runtime);
        let lines = settings([size, probe].iter());
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
            "args --max-model-len 8192 service; runtime said 4096"
        );
        assert!(lines[1].contains('…') && lines[1].chars().count() < 110, "{}", lines[1]);
    }
}

//! Splits the script of `sh -c "…"` into commands. Supports quotes, variables and separators.

/// Returns the script of `sh -c SCRIPT`, for any shell and any flags that contain `c`.
pub(super) fn script(words: &[String]) -> Option<&str> {
    let shell = words.first()?.rsplit('/').next()?;
    if !matches!(shell, "sh" | "bash" | "dash" | "zsh" | "ash") {
        return None;
    }
    let flag = words.iter().position(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('c'))?;
    words.get(flag + 1).map(String::as_str)
}

/// Returns the commands of `script` as words. `$NAME` and `${NAME}` are expanded from `env`; unset variables are empty.
pub(super) fn commands(script: &str, env: &[(String, String)]) -> Vec<Vec<String>> {
    let mut parser = Parser { commands: vec![Vec::new()], word: None, env };
    let mut chars = script.chars().peekable();
    let mut quote = None;
    while let Some(character) = chars.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some('\''), _) => parser.push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                parser.word.get_or_insert_default();
            }
            (_, '\\') => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => parser.push(escaped),
            },
            (_, '$') => parser.variable(&mut chars),
            (Some(_), _) => parser.push(character),
            (None, ';' | '&' | '|' | '\n' | '(' | ')') => parser.end_command(),
            (None, _) if character.is_whitespace() => parser.end_word(),
            (None, _) => parser.push(character),
        }
    }
    parser.end_command();
    parser.commands
}

struct Parser<'a> {
    commands: Vec<Vec<String>>,
    word: Option<String>,
    env: &'a [(String, String)],
}

impl Parser<'_> {
    fn push(&mut self, character: char) {
        self.word.get_or_insert_default().push(character);
    }

    fn end_word(&mut self) {
        if let (Some(word), Some(command)) = (self.word.take(), self.commands.last_mut()) {
            command.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.commands.push(Vec::new());
    }

    fn variable(&mut self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
        let braced = chars.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(character) = chars.next_if(|character| character.is_ascii_alphanumeric() || *character == '_') {
            name.push(character);
        }
        let mut fallback = String::new();
        if braced {
            fallback = chars.by_ref().take_while(|character| *character != '}').collect();
        }
        let value = self.env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
        let fallback = fallback.strip_prefix(":-").unwrap_or_default();
        self.word.get_or_insert_default().push_str(value.filter(|value| !value.is_empty()).unwrap_or(fallback));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_words_quotes_variables_and_separators() {
        let env = [("A".to_owned(), "x y".to_owned())];
        let parsed = commands("one '$A' \"$A\"&& two ${B:-b}\\\n three; four \"\"", &env);
        let parsed: Vec<_> = parsed.into_iter().filter(|words| !words.is_empty()).collect();
        insta::assert_debug_snapshot!(parsed, @r#"
        [
            [
                "one",
                "$A",
                "x y",
            ],
            [
                "two",
                "b",
                "three",
            ],
            [
                "four",
                "",
            ],
        ]
        "#);
    }
}

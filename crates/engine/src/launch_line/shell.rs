//! Just enough shell to find a command inside `sh -c "…"`: quotes, variables, separators.

/// The script of `sh -c SCRIPT` (any shell, any flags with a `c` in them).
pub(super) fn script(words: &[String]) -> Option<&str> {
    let shell = words.first()?.rsplit('/').next()?;
    if !matches!(shell, "sh" | "bash" | "dash" | "zsh" | "ash") {
        return None;
    }
    let flag = words.iter().position(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('c'))?;
    words.get(flag + 1).map(String::as_str)
}

/// The commands of `script`, each as words, with `$NAME` and `${NAME}` taken from `env` (unset: empty).
pub(super) fn commands(script: &str, env: &[(String, String)]) -> Vec<Vec<String>> {
    let mut reader = Reader { commands: vec![Vec::new()], word: None, env };
    let mut letters = script.chars().peekable();
    let mut quote = None;
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some('\''), _) => reader.push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                reader.word.get_or_insert_default();
            }
            (_, '\\') => match letters.next() {
                Some('\n') | None => {}
                Some(escaped) => reader.push(escaped),
            },
            (_, '$') => reader.variable(&mut letters),
            (Some(_), _) => reader.push(letter),
            (None, ';' | '&' | '|' | '\n' | '(' | ')') => reader.end_command(),
            (None, _) if letter.is_whitespace() => reader.end_word(),
            (None, _) => reader.push(letter),
        }
    }
    reader.end_command();
    reader.commands
}

struct Reader<'a> {
    commands: Vec<Vec<String>>,
    word: Option<String>,
    env: &'a [(String, String)],
}

impl Reader<'_> {
    fn push(&mut self, letter: char) {
        self.word.get_or_insert_default().push(letter);
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

    fn variable(&mut self, letters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
        let braced = letters.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(letter) = letters.next_if(|letter| letter.is_ascii_alphanumeric() || *letter == '_') {
            name.push(letter);
        }
        let mut fallback = String::new();
        if braced {
            fallback = letters.by_ref().take_while(|letter| *letter != '}').collect();
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
    fn words_quotes_variables_and_separators() {
        let env = [("A".to_owned(), "x y".to_owned())];
        let found = commands("one '$A' \"$A\"&& two ${B:-b}\\\n three; four \"\"", &env);
        let found: Vec<_> = found.into_iter().filter(|words| !words.is_empty()).collect();
        insta::assert_debug_snapshot!(found, @r#"
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

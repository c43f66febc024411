//! A command line as people keep it: shell quoting, continued lines, comments.

/// One word and the line on which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) line: u32,
}

/// The words of a POSIX shell. Line feeds and NULs (`/proc/PID/cmdline`) end a
/// word like a blank does. A quote that isn't closed goes to the end.
pub(super) fn split(text: &str) -> Vec<Word> {
    // The kernel separates arguments by NUL, and nothing in them is quoted.
    if text.contains('\0') {
        let words = text.split('\0').filter(|word| !word.is_empty());
        return words.map(|word| Word { text: word.to_owned(), line: 1 }).collect();
    }
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut line = 1;
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        let begin = line;
        let push = |word: &mut Option<Word>, c: char| {
            let new = || Word { text: String::new(), line: begin };
            word.get_or_insert_with(new).text.push(c);
        };
        match c {
            '\'' | '"' => {
                word.get_or_insert_with(|| Word { text: String::new(), line });
                while let Some(inner) = letters.next() {
                    match inner {
                        end if end == c => break,
                        '\\' if c == '"' => match letters.next() {
                            Some(escaped @ ('"' | '\\' | '$' | '`')) => push(&mut word, escaped),
                            Some('\n') => line += 1,
                            Some(other) => {
                                push(&mut word, '\\');
                                push(&mut word, other);
                            }
                            None => break,
                        },
                        inner => {
                            push(&mut word, inner);
                            line += u32::from(inner == '\n');
                        }
                    }
                }
            }
            '\\' => match letters.next() {
                Some('\r') if letters.peek() == Some(&'\n') => {
                    letters.next();
                    line += 1;
                }
                Some('\n') => line += 1,
                Some(escaped) => push(&mut word, escaped),
                None => {}
            },
            '#' if word.is_none() => while letters.next_if(|c| *c != '\n').is_some() {},
            c if c.is_whitespace() => {
                words.extend(word.take());
                line += u32::from(c == '\n');
            }
            c => push(&mut word, c),
        }
    }
    words.extend(word);
    words
}

/// `key=value,...`, in which a comma is said twice.
#[derive(Debug, Clone, Default)]
pub(super) struct Properties {
    items: Vec<(String, String, bool)>,
}

impl Properties {
    /// A first word without `=` is the value of `head`; a later one is `on`,
    /// and `nofoo` is not understood as `foo=off`. JSON, which newer QEMU takes
    /// too, is flattened: `{"a": {"b": 1}}` is `a.b=1`.
    pub(super) fn read(text: &str, head: &str) -> Self {
        if text.trim_start().starts_with('{')
            && let Ok(serde_json::Value::Object(object)) = serde_json::from_str(text)
        {
            let mut items = Vec::new();
            for (key, value) in &object {
                flatten(key, value, &mut items);
            }
            for (key, _, _) in &mut items {
                if key == "qom-type" || (head == "driver" && key == "driver") {
                    key.clear();
                    key.push_str(head);
                }
            }
            return Self { items };
        }
        let mut items = Vec::new();
        for (place, part) in split_commas(text).into_iter().enumerate() {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key.to_owned(), value.to_owned()),
                None if place == 0 => (head.to_owned(), part),
                None if part.is_empty() => continue,
                None => (part, "on".to_owned()),
            };
            items.push((key, value, false));
        }
        Self { items }
    }

    /// The value of a key, which is then understood; the last one holds.
    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        self.take_if(key, |text| Some(text.to_owned()))
    }

    /// The value of a key if it means something.
    pub(super) fn take_if<T>(
        &mut self,
        key: &str,
        mut read: impl FnMut(&str) -> Option<T>,
    ) -> Option<T> {
        let mut found = None;
        for (name, value, used) in &mut self.items {
            if name == key
                && !*used
                && let Some(value) = read(value)
            {
                *used = true;
                found = Some(value);
            }
        }
        found
    }

    /// All values of a key that may be given several times.
    pub(super) fn take_all<T>(&mut self, key: &str, read: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let mut all = Vec::new();
        for (name, value, used) in &mut self.items {
            // JSON's lists are numbered.
            let name = name.rsplit_once('.').map_or(name.as_str(), |(name, number)| {
                if number.bytes().all(|b| b.is_ascii_digit()) { name } else { "" }
            });
            if name == key
                && !*used
                && let Some(value) = read(value)
            {
                *used = true;
                all.push(value);
            }
        }
        all
    }

    /// A switch.
    pub(super) fn switch(&mut self, key: &str) -> Option<bool> {
        self.take_if(key, switch)
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.items.iter().rev().find(|item| item.0 == key).map(|item| item.1.as_str())
    }

    /// What was not understood, as it could be written.
    pub(super) fn rest(&self) -> Option<String> {
        let rest: Vec<String> = self
            .items
            .iter()
            .filter(|item| !item.2)
            .map(|(key, value, _)| format!("{key}={}", value.replace(',', ",,")))
            .collect();
        (!rest.is_empty()).then(|| rest.join(","))
    }
}

pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "yes" | "true" | "y" => Some(true),
        "off" | "no" | "false" | "n" => Some(false),
        _ => None,
    }
}

fn flatten(key: &str, value: &serde_json::Value, items: &mut Vec<(String, String, bool)>) {
    use serde_json::Value;
    match value {
        Value::Object(object) => {
            for (inner, value) in object {
                flatten(&format!("{key}.{inner}"), value, items);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                flatten(&format!("{key}.{number}"), value, items);
            }
        }
        Value::String(text) => items.push((key.to_owned(), text.clone(), false)),
        Value::Bool(on) => {
            items.push((key.to_owned(), if *on { "on" } else { "off" }.to_owned(), false));
        }
        other => items.push((key.to_owned(), other.to_string(), false)),
    }
}

fn split_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        if c == ',' && letters.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

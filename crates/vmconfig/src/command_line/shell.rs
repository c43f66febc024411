//! The commands of a shell script, as far as they can be known without running
//! it, every byte with its place.
//!
//! Quotes, continued lines, comments and here-documents are the shell's.
//! Variables and arrays are followed while they are assigned in a straight line;
//! what depends on a branch, a loop, an argument or another program is not
//! guessed: the word keeps its text, and [`ShellWord::unresolved`] names it. An array to
//! which a branch adds keeps what it had, and the addition is such a word. A unit of
//! systemd is read as a script whose `Environment=` assigns.
//!
//! Source: POSIX, Shell Command Language; Bash's manual, "Arrays"; `systemd.exec(5)`,
//! "Environment".

use std::collections::HashMap;

use crate::source::Span;

/// Bytes that variables may grow to beyond what is written; more is not
/// resolved, since a variable that is doubled at each line has no end.
const EXPANDED_BYTES: usize = 1 << 20;

/// One word without its quotes.
#[derive(Debug, Default, Clone)]
pub struct ShellWord {
    /// The word.
    pub text: String,
    /// Place of each byte: of a variable's value, where it was assigned.
    at: Vec<usize>,
    /// What could not be resolved in it: where it stands.
    pub unresolved: Vec<Span>,
    /// Where all of it stands, of a word that is made of several values.
    whole: Option<Span>,
}

impl ShellWord {
    /// A word that stands nowhere, such as an argument of a running program.
    #[must_use]
    pub fn of_argument(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// An empty word that is to be made of values that stand at this place.
    #[must_use]
    pub(crate) fn made(whole: Span) -> Self {
        Self { whole: Some(whole), ..Self::default() }
    }

    /// Adds a text that stands for what is at a place.
    #[must_use]
    pub(crate) fn with(mut self, text: &str, place: Span) -> Self {
        let last = text.len().saturating_sub(1);
        let end = place.end.max(place.start + 1) - 1;
        let at = |byte: usize| if byte == last { end } else { (place.start + byte).min(end) };
        self.at.extend((0..text.len()).map(at));
        self.text.push_str(text);
        self
    }

    /// Where the whole word stands.
    #[must_use]
    pub fn span(&self) -> Span {
        self.whole.unwrap_or_else(|| self.part(0, self.text.len()))
    }

    /// The place of bytes `from..to` of the word.
    #[must_use]
    pub fn part(&self, from: usize, to: usize) -> Span {
        let start = self.at.get(from).or(self.at.last()).copied().unwrap_or(0);
        let end = to.checked_sub(1).and_then(|last| self.at.get(last)).map_or(start, |at| at + 1);
        Span { start, end: end.max(start) }
    }

    fn push(&mut self, at: usize, letter: char) {
        self.text.push(letter);
        self.at.extend(at..at + letter.len_utf8());
    }

    fn append(&mut self, other: &Self) {
        self.text.push_str(&other.text);
        self.at.extend_from_slice(&other.at);
        self.unresolved.extend_from_slice(&other.unresolved);
    }

    /// The rest behind its first `bytes`, which stand at a character's end.
    fn rest(&self, bytes: usize) -> Self {
        Self {
            text: self.text[bytes..].to_owned(),
            at: self.at[bytes.min(self.at.len())..].to_vec(),
            unresolved: self.unresolved.clone(),
            whole: None,
        }
    }
}

/// One simple command.
#[derive(Debug, Default, Clone)]
pub struct ShellCommand {
    /// Its words; assignments in front of it are left out.
    pub words: Vec<ShellWord>,
    /// Whether it ends with its line, so that a careless text may go on.
    pub ends_with_line: bool,
}

/// The commands of `text`, in its order. A line that begins with a dash goes on
/// with the command before it, as pasted command lines do.
#[must_use]
pub fn commands(text: &str) -> Vec<ShellCommand> {
    // The kernel separates arguments by NUL, and nothing in them is quoted.
    if text.contains('\0') {
        let mut words = Vec::new();
        let mut at = 0;
        for part in text.split('\0') {
            if !part.is_empty() {
                let mut word = ShellWord::default();
                part.char_indices().for_each(|(byte, letter)| word.push(at + byte, letter));
                words.push(word);
            }
            at += part.len() + 1;
        }
        return vec![ShellCommand { words, ends_with_line: false }];
    }
    let is_unit = text.lines().any(|line| line.trim_end() == "[Service]");
    let mut reader = ShellReader { text, is_unit, ..ShellReader::default() };
    reader.read();
    reader.commands
}

/// What is known of a variable.
#[derive(Debug, Clone)]
enum Variable {
    Scalar(ShellWord),
    Array(Vec<ShellWord>),
    /// Assigned where it depends on something.
    Unknown,
}

impl Variable {
    /// Bytes that it adds where it is used; at least one, so that there is an
    /// end to using it.
    fn bytes(&self) -> usize {
        let bytes = match self {
            Self::Scalar(word) => word.text.len(),
            Self::Array(words) => words.iter().map(|word| word.text.len() + 1).sum(),
            Self::Unknown => 0,
        };
        bytes.max(1)
    }
}

#[derive(Default)]
struct ShellReader<'a> {
    text: &'a str,
    /// A unit of systemd: close to a shell's words, with specifiers (`%i`).
    is_unit: bool,
    at: usize,
    commands: Vec<ShellCommand>,
    words: Vec<ShellWord>,
    word: Option<ShellWord>,
    variables: HashMap<String, Variable>,
    expanded_bytes: usize,
    /// The value that was assigned last in this command.
    assigned: Option<ShellWord>,
    /// Branches and loops around this place.
    depth: usize,
    /// Behind `&&` or `||`.
    conditional: bool,
    /// Delimiters of here-documents that begin on the next line.
    here_documents: Vec<(String, bool)>,
}

/// Words that open and close what may not run, or run more than once.
const OPENING: &[&str] = &["if", "for", "while", "until", "case", "select"];
const CLOSING: &[&str] = &["fi", "done", "esac"];
/// Words behind which a command begins.
const LEADING: &[&str] = &["then", "else", "elif", "do", "{", "}", "!", "time", "in"];
/// Commands that assign their arguments.
const ASSIGNING: &[&str] = &["export", "local", "declare", "readonly", "typeset"];

impl ShellReader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<(usize, char)> {
        let letter = self.peek()?;
        let at = self.at;
        self.at += letter.len_utf8();
        Some((at, letter))
    }

    fn eat(&mut self, letter: char) -> bool {
        let found = self.peek() == Some(letter);
        self.at += if found { letter.len_utf8() } else { 0 };
        found
    }

    fn read(&mut self) {
        while let Some((at, letter)) = self.next() {
            match letter {
                '\\' => self.escape(),
                '\'' => self.single_quotes(),
                '"' => self.double_quotes(),
                '$' => self.expand(at, false),
                '`' => self.backquotes(at),
                '%' if self.is_unit => self.specifier(at),
                '#' if self.word.is_none() => self.skip_line(),
                '<' if self.text[self.at..].starts_with('<')
                    && !self.text[self.at..].starts_with("<<") =>
                {
                    self.here_document();
                }
                '(' if self.begins_array() => self.array(),
                '\n' => self.end_line(),
                ';' => self.end_command(false, false),
                '&' | '|' => {
                    let conditional = self.eat(letter);
                    self.end_command(false, conditional);
                }
                letter if letter.is_whitespace() => self.end_word(),
                letter => self.word.get_or_insert_default().push(at, letter),
            }
        }
        self.end_command(false, false);
    }

    fn escape(&mut self) {
        match self.next() {
            Some((_, '\n')) | None => {}
            Some((_, '\r')) => {
                self.eat('\n');
            }
            Some((at, letter)) => self.word.get_or_insert_default().push(at, letter),
        }
    }

    fn single_quotes(&mut self) {
        let mut word = self.word.take().unwrap_or_default();
        while let Some((at, letter)) = self.next() {
            if letter == '\'' {
                break;
            }
            word.push(at, letter);
        }
        self.word = Some(word);
    }

    fn double_quotes(&mut self) {
        self.word.get_or_insert_default();
        while let Some((at, letter)) = self.next() {
            match letter {
                '"' => break,
                '\\' => match self.next() {
                    Some((_, '\n')) | None => {}
                    Some((escaped, letter @ ('"' | '\\' | '$' | '`'))) => {
                        self.word.get_or_insert_default().push(escaped, letter);
                    }
                    Some((other, letter)) => {
                        let word = self.word.get_or_insert_default();
                        word.push(at, '\\');
                        word.push(other, letter);
                    }
                },
                '$' => self.expand(at, true),
                '`' => self.backquotes(at),
                '%' if self.is_unit => self.specifier(at),
                letter => self.word.get_or_insert_default().push(at, letter),
            }
        }
    }

    fn skip_line(&mut self) {
        self.at += self.text[self.at..].find('\n').unwrap_or(self.text.len() - self.at);
    }

    fn end_line(&mut self) {
        self.end_word();
        for (delimiter, strip) in std::mem::take(&mut self.here_documents) {
            while self.at < self.text.len() {
                let from = self.at;
                self.skip_line();
                let line = self.text[from..self.at].trim_end_matches('\r');
                self.eat('\n');
                if delimiter == if strip { line.trim_start_matches('\t') } else { line } {
                    break;
                }
            }
        }
        if self.words.is_empty() {
            return self.end_command(true, false);
        }
        let next = self.text[self.at..].trim_start().as_bytes();
        let is_option = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'-';
        if next.first() == Some(&b'-') && next.get(1).is_some_and(is_option) {
            // Not looked at again for each empty line in between.
            self.at = self.text.len() - next.len();
        } else {
            self.end_command(true, false);
        }
    }

    /// `<<WORD`, `<<-'WORD'`: its text begins on the next line.
    fn here_document(&mut self) {
        self.eat('<');
        let strip = self.eat('-');
        let rest = self.text[self.at..].trim_start_matches([' ', '\t']);
        let end = rest.find(|c: char| c.is_whitespace() || ";&|".contains(c)).unwrap_or(rest.len());
        self.at += self.text[self.at..].len() - rest.len() + end;
        let delimiter: String = rest[..end].chars().filter(|c| !"'\"\\".contains(*c)).collect();
        if !delimiter.is_empty() {
            self.here_documents.push((delimiter, strip));
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if self.assigns()
            && let Some((name, adds, from)) = assignment(&word.text)
        {
            let value = word.rest(from);
            // `Environment=NAME=VALUE OTHER=VALUE`: the others are read as a shell's.
            if self.is_unit
                && name == "Environment"
                && let Some((name, adds, from)) = assignment(&value.text)
            {
                self.assign(&name, adds, Variable::Scalar(value.rest(from)));
                return;
            }
            self.assigned = Some(value.clone());
            self.assign(&name, adds, Variable::Scalar(value));
            return;
        }
        if self.words.is_empty() {
            let keyword = word.text.as_str();
            if OPENING.contains(&keyword) {
                self.depth += 1;
            } else if CLOSING.contains(&keyword) {
                self.depth = self.depth.saturating_sub(1);
                return;
            }
            // `ExecStart=/usr/bin/kvm -m 1G` of a unit of systemd: no command
            // begins with a dash.
            if keyword.starts_with('-') {
                self.words.extend(self.assigned.take());
            }
            if LEADING.contains(&keyword) || matches!(keyword, "if" | "while" | "until") {
                return;
            }
        }
        self.words.push(word);
    }

    /// Whether an assignment may stand here.
    fn assigns(&self) -> bool {
        self.words.first().is_none_or(|first| ASSIGNING.contains(&first.text.as_str()))
    }

    fn end_command(&mut self, ends_with_line: bool, conditional: bool) {
        self.end_word();
        if !self.words.is_empty() {
            let words = std::mem::take(&mut self.words);
            self.commands.push(ShellCommand { words, ends_with_line });
        }
        self.conditional = conditional;
        self.assigned = None;
    }

    fn begins_array(&self) -> bool {
        let Some(word) = &self.word else { return false };
        self.assigns() && assignment(&word.text).is_some_and(|(_, _, from)| from == word.text.len())
    }

    /// `NAME=( ... )`, behind its parenthesis.
    fn array(&mut self) {
        let word = self.word.take().unwrap_or_default();
        let outer = std::mem::take(&mut self.words);
        // A first word keeps the reader from taking what follows for assignments.
        self.words.push(ShellWord::default());
        while let Some((at, letter)) = self.next() {
            match letter {
                ')' => break,
                '\\' => self.escape(),
                '\'' => self.single_quotes(),
                '"' => self.double_quotes(),
                '$' => self.expand(at, false),
                '`' => self.backquotes(at),
                '#' if self.word.is_none() => self.skip_line(),
                letter if letter.is_whitespace() => self.end_word(),
                letter => self.word.get_or_insert_default().push(at, letter),
            }
        }
        self.end_word();
        let words = std::mem::replace(&mut self.words, outer).split_off(1);
        if let Some((name, adds, _)) = assignment(&word.text) {
            let depends = self.depth > 0 || self.conditional;
            match self.variables.get_mut(&name) {
                // What it has already it keeps; that there may be more is reported.
                Some(Variable::Array(known)) if adds && depends => {
                    let span = Span { start: word.span().start, end: self.at };
                    let mut more = ShellWord::default();
                    self.text[span.start..span.end]
                        .char_indices()
                        .for_each(|(byte, letter)| more.push(span.start + byte, letter));
                    more.unresolved.push(span);
                    known.push(more);
                }
                _ => self.assign(&name, adds, Variable::Array(words)),
            }
        }
    }

    fn assign(&mut self, name: &str, adds: bool, value: Variable) {
        if self.depth > 0 || self.conditional {
            self.variables.insert(name.to_owned(), Variable::Unknown);
            return;
        }
        let known = if adds { self.variables.remove(name) } else { None };
        let value = match (known, value) {
            (Some(Variable::Scalar(mut all)), Variable::Scalar(more)) => {
                all.append(&more);
                Variable::Scalar(all)
            }
            (Some(Variable::Array(mut all)), Variable::Array(more)) => {
                all.extend(more);
                Variable::Array(all)
            }
            (Some(_), _) => Variable::Unknown,
            (None, value) => value,
        };
        self.variables.insert(name.to_owned(), value);
    }

    /// What stands behind a dollar.
    fn expand(&mut self, at: usize, quoted: bool) {
        let rest = &self.text[self.at..];
        let (name, all, fallback, length) = match rest.as_bytes().first() {
            Some(b'{') => {
                let Some(end) = closing(rest, '{', '}') else {
                    return self.unknown(at, rest.len());
                };
                let inside = &rest[1..end];
                let name_end = name_length(inside);
                let (name, operator) = inside.split_at(name_end);
                match operator {
                    "" => (name, false, None, end + 1),
                    "[@]" | "[*]" => (name, true, None, end + 1),
                    _ => {
                        let plain = |text: &&str| !text.contains(['$', '`', '"', '\'', '\\']);
                        let fallback = operator
                            .strip_prefix(":-")
                            .or(operator.strip_prefix('-'))
                            .filter(plain);
                        if fallback.is_none() || name.is_empty() {
                            return self.unknown(at, end + 1);
                        }
                        (name, false, fallback, end + 1)
                    }
                }
            }
            Some(b'(') => {
                let length = closing(rest, '(', ')').map_or(rest.len(), |end| end + 1);
                return self.unknown(at, length);
            }
            Some(byte) if byte.is_ascii_alphabetic() || *byte == b'_' => {
                let length = name_length(rest);
                (&rest[..length], false, None, length)
            }
            // Arguments and the shell's own: `$1`, `$@`, `$$`.
            Some(byte) if byte.is_ascii_digit() || b"@*#?$!-".contains(byte) => {
                return self.unknown(at, 1);
            }
            _ => return self.word.get_or_insert_default().push(at, '$'),
        };
        let value = match (self.variables.get(name), fallback) {
            (None, Some(fallback)) => {
                let from = self.at + length - 1 - fallback.len();
                let mut word = ShellWord::default();
                fallback.char_indices().for_each(|(byte, c)| word.push(from + byte, c));
                Variable::Scalar(word)
            }
            (Some(known), _) if self.expanded_bytes + known.bytes() <= EXPANDED_BYTES => {
                self.expanded_bytes += known.bytes();
                known.clone()
            }
            _ => Variable::Unknown,
        };
        let words = match value {
            Variable::Unknown => return self.unknown(at, length),
            Variable::Scalar(word) if quoted => vec![word],
            Variable::Scalar(word) => fields(&word),
            Variable::Array(words) if all && quoted => words,
            Variable::Array(words) if all => words.iter().flat_map(fields).collect(),
            // Without an index it is the first element.
            Variable::Array(words) => words.into_iter().take(1).collect(),
        };
        self.at += length;
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            self.word.get_or_insert_default().append(&word);
            if words.peek().is_some() {
                self.end_word();
            }
        }
    }

    /// Keeps what begins with the dollar at `at` and goes on for `length` bytes.
    fn unknown(&mut self, at: usize, length: usize) {
        let end = self.at + length;
        let word = self.word.get_or_insert_default();
        for (byte, letter) in self.text[at..end].char_indices() {
            word.push(at + byte, letter);
        }
        word.unresolved.push(Span { start: at, end });
        self.at = end;
    }

    /// `%i` of a unit, which systemd fills in; `%%` is a percent sign.
    ///
    /// Source: `systemd.unit(5)`, "Specifiers".
    fn specifier(&mut self, at: usize) {
        match self.peek() {
            Some('%') => {
                self.eat('%');
                self.word.get_or_insert_default().push(at, '%');
            }
            Some(letter) if letter.is_ascii_alphabetic() => self.unknown(at, 1),
            _ => self.word.get_or_insert_default().push(at, '%'),
        }
    }

    fn backquotes(&mut self, at: usize) {
        let rest = &self.text[self.at..];
        let length = rest.find('`').map_or(rest.len(), |end| end + 1);
        self.unknown(at, length);
    }
}

/// The name that a word assigns, whether it adds, and where the value begins.
fn assignment(word: &str) -> Option<(String, bool, usize)> {
    let length = name_length(word);
    let rest = &word[length..];
    let adds = rest.starts_with("+=");
    (length > 0 && (adds || rest.starts_with('=')))
        .then(|| (word[..length].to_owned(), adds, length + 1 + usize::from(adds)))
}

/// Bytes of the variable's name at the beginning of `text`.
fn name_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    if bytes.first().is_none_or(u8::is_ascii_digit) {
        return 0;
    }
    bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count()
}

/// Where the parenthesis that `text` begins with is closed.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        if letter == open {
            depth += 1;
        } else if letter == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// The words that an unquoted value falls into.
fn fields(word: &ShellWord) -> Vec<ShellWord> {
    // Blanks in what is not known are no separators.
    if word.unresolved == [word.span()] {
        return vec![word.clone()];
    }
    let mut words: Vec<ShellWord> = Vec::new();
    let mut current: Option<ShellWord> = None;
    for (byte, letter) in word.text.char_indices() {
        if letter.is_whitespace() {
            words.extend(current.take());
        } else {
            let at = word.at.get(byte).copied().unwrap_or(0);
            current.get_or_insert_default().push(at, letter);
        }
    }
    words.extend(current);
    if let Some(first) = words.first_mut() {
        first.unresolved.clone_from(&word.unresolved);
    }
    words
}

/// The arguments as words of a POSIX shell, separated by spaces.
#[must_use]
pub fn join<S: AsRef<str>>(args: &[S]) -> String {
    args.iter().map(|arg| quote(arg.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Quoted only if a shell would take the plain text for something else.
#[must_use]
pub fn quote(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) {
        arg.to_owned()
    } else {
        format!("'{}'", arg.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&[&str]]) {
        let found: Vec<Vec<String>> = commands(text)
            .into_iter()
            .map(|command| command.words.into_iter().map(|word| word.text).collect())
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn quotes_lines_and_comments() {
        check("a 'b c' \"d\\\"e\\n\" f\\ g # h", &[&["a", "b c", "d\"e\\n", "f g"]]);
        check("a \\\n  b; c && d | e\nf", &[&["a", "b"], &["c"], &["d"], &["e"], &["f"]]);
        check("qemu\n  -smp 4\n  -m 1G\nnext", &[&["qemu", "-smp", "4", "-m", "1G"], &["next"]]);
        check("cat <<'END' >x\nqemu -smp 4 it's\nEND\nls", &[&["cat", ">x"], &["ls"]]);
        check("a\0b c\0", &[&["a", "b c"]]);
        check("a 'open", &[&["a", "open"]]);
        check("", &[]);
    }

    #[test]
    fn variables_in_a_straight_line() {
        check("N=4\nq -smp $N", &[&["q", "-smp", "4"]]);
        check("A='-m 1G'\nA+=' -s'\nq $A \"$A\"", &[&["q", "-m", "1G", "-s", "-m 1G -s"]]);
        check(
            "a=(-m 1G # memory\n 'x y')\na+=(-s)\nq \"${a[@]}\"",
            &[&["q", "-m", "1G", "x y", "-s"]],
        );
        check(
            "declare -a a=(b c)\nexport X=1\nq ${a[*]}${X}",
            &[&["declare", "-a"], &["export"], &["q", "b", "c1"]],
        );
        check("q ${M:-2G} -x${Y-1}", &[&["q", "2G", "-x1"]]);
        check("run() {\n N=1\n q $N\n}", &[&["run()", "{"], &["q", "1"]]);
    }

    #[test]
    fn what_depends_on_something_is_not_guessed() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<String> = commands(text)
                .iter()
                .flat_map(|command| &command.words)
                .flat_map(|word| &word.unresolved)
                .map(|span| text[span.start..span.end].to_owned())
                .collect();
            assert_eq!(found, expected, "{text}");
        };
        check(
            "q $1 \"$@\" $(nproc) `nproc` ${X%.*} $X",
            &["$1", "$@", "$(nproc)", "`nproc`", "${X%.*}", "$X"],
        );
        check("N=1\nif a; then N=2; fi\nq $N", &["$N"]);
        check("N=1\n[ -e x ] && N=2\nq $N", &["$N"]);
        check("for d in a b; do D+=\" -d $d\"; done\nq $D", &["$D"]);
        check("a=($X)\nq ${a[@]}", &["$X"]);
        check("a=(-s)\n[ x ] && a+=(-t -u)\nq ${a[@]}", &["a+=(-t -u)"]);
        check("[ x ] && a+=(-t)\nq ${a[@]}", &["${a[@]}"]);
        check("[Service]\nExecStart=q -n %i -m \"%M\" 5%% %", &["%i", "%M"]);
        check("q ${open", &["${open"]);
    }

    #[test]
    fn a_variable_that_doubles_ends() {
        let mut text = "X=aaaaaaaaaaaaaaaa\n".to_owned();
        text.push_str(&"X=$X$X\n".repeat(200));
        text.push_str("q $X");
        let commands = commands(&text);
        assert!(commands[0].words.iter().any(|word| !word.unresolved.is_empty()));
    }

    #[test]
    fn a_value_stands_where_it_was_assigned() {
        let text = "N=12\nq -smp cpus=$N";
        let word = commands(text)[0].words[2].clone();
        let (start, end) = (word.part(5, 7).start, word.part(5, 7).end);
        assert_eq!(&text[start..end], "12");
    }
}

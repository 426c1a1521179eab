//! Mistakes of a configuration: collected while it is read, shown with the line they stand on.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Longest excerpt of a line that is shown, characters.
const EXCERPT: usize = 100;

/// Everything that is wrong with a configuration; at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    file: String,
    problems: Vec<Problem>,
    /// Some of the text is not TOML, so that not everything was checked.
    partial: bool,
}

/// One mistake: what is wrong, why that is wrong, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where; `None` when the file as a whole is meant.
    pub place: Option<Place>,
    /// What is wrong.
    pub what: String,
    /// Why that is wrong.
    pub why: String,
    /// What to write or run instead.
    pub todo: String,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Character of the line, from 1.
    pub column: usize,
    /// The line, control characters made visible; cut when very long.
    pub excerpt: String,
    /// Characters to point at from `column` on, at least 1.
    pub width: usize,
}

/// Keeps a file from writing to the terminal what is not text.
fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

impl ConfigErrors {
    /// The problems, in the order of the file.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The same, with the name of the file they are in.
    pub(super) fn in_file(mut self, path: &Path) -> Self {
        self.file = path.display().to_string();
        self
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let todo = match error.kind() {
            io::ErrorKind::NotFound => "check the path, or write a first file: dataplane config example > FILE",
            io::ErrorKind::PermissionDenied => "run as a user who may read it",
            _ => "check that it is an ordinary file",
        };
        let complaint = Complaint::new("the configuration cannot be read", error.to_string(), todo);
        Self { file: path.display().to_string(), problems: vec![complaint.at(None)], partial: false }
    }

    pub(super) fn not_utf8(bytes: &[u8], valid: usize) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut problems = Problems::new(&text);
        let complaint = Complaint::new("this byte is not UTF-8", "TOML is UTF-8 text", "save the file as UTF-8");
        problems.add(&(valid..valid), complaint);
        Self { file: UNNAMED.to_owned(), problems: problems.sorted(), partial: true }
    }
}

/// Stands for the file's name when only its text is known.
const UNNAMED: &str = "config";

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { place, what, why, todo }) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            match place {
                Some(place) => {
                    write!(f, "{}:{}:{}: {what}", self.file, place.line, place.column)?;
                    mark(f, place)?;
                }
                None => write!(f, "{}: {what}", self.file)?,
            }
            write!(f, "\n  why: {why}\n  do:  {todo}")?;
        }
        let rest = if self.partial { "; the rest is checked once this is TOML" } else { "" };
        match self.problems.len() {
            1 if !self.partial => Ok(()),
            1 => write!(f, "\n\n{}: 1 error{rest}", self.file),
            many => write!(f, "\n\n{}: {many} errors{rest}", self.file),
        }
    }
}

/// The line of `place` and a mark below the characters that are meant; nothing for an empty line.
fn mark(f: &mut fmt::Formatter<'_>, place: &Place) -> fmt::Result {
    if place.excerpt.trim().is_empty() {
        return Ok(());
    }
    write!(f, "\n  {} | {}", place.line, place.excerpt)?;
    let shown = place.excerpt.chars().count();
    if place.column > shown + 1 {
        return Ok(());
    }
    let gutter = place.line.to_string().len();
    let width = place.width.min((shown + 1).saturating_sub(place.column)).max(1);
    write!(f, "\n  {:gutter$} | {:indent$}{}", "", "", "^".repeat(width), indent = place.column - 1)
}

/// What is wrong, why, and what to do, without the place.
#[derive(Clone, Debug)]
pub(super) struct Complaint {
    pub(super) what: String,
    pub(super) why: String,
    pub(super) todo: String,
}

impl Complaint {
    pub(super) fn new(what: impl Into<String>, why: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), todo: todo.into() }
    }

    fn at(self, place: Option<Place>) -> Problem {
        let Self { what, why, todo } = self;
        Problem { place, what, why, todo }
    }
}

/// The problems found so far in a text.
pub(super) struct Problems<'t> {
    text: &'t str,
    /// Byte at which each line begins.
    lines: Vec<usize>,
    /// With the byte they begin at.
    list: Vec<(usize, Problem)>,
    /// Lines that are not TOML. What the parser made of them is a guess, so nothing is said about their content, and
    /// nothing about what the file as a whole lacks.
    broken: BTreeSet<usize>,
    /// A header or a list is broken, so that keys may have been put into the wrong section: nothing more is said.
    lost: bool,
}

impl<'t> Problems<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, lines, list: Vec::new(), broken: BTreeSet::new(), lost: false }
    }

    /// The text at `span`, short enough for a message.
    pub(super) fn quote(&self, span: &Range<usize>) -> String {
        const LONGEST: usize = 40;
        let text = self.text.get(span.clone()).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let shown: String = line.chars().take(LONGEST).map(visible).collect();
        let cut = line.len() < text.len() || line.chars().nth(LONGEST).is_some();
        if cut { format!("{shown}…") } else { shown }
    }

    /// Line of a byte, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|start| *start <= at)
    }

    /// The place of a byte range, which may lie outside of the text or inside a character.
    fn place(&self, span: &Range<usize>) -> Place {
        let start = self.text.floor_char_boundary(span.start);
        let line = self.line(start);
        let line_start = self.lines[line - 1];
        let content = self.text[line_start..].lines().next().unwrap_or_default();
        // A span may go on over several lines; the mark does not.
        let end = self.text.floor_char_boundary(span.end.min(line_start + content.len())).max(start);
        Place {
            line,
            column: self.text[line_start..start].chars().count() + 1,
            excerpt: content.chars().take(EXCERPT).map(visible).collect(),
            width: self.text[start..end].chars().count().max(1),
        }
    }

    /// Adds what the TOML parser found: the first error of each line, later ones follow from it.
    pub(super) fn add_syntax(&mut self, errors: &[toml::de::Error]) {
        let mut errors: Vec<_> = errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message())).collect();
        errors.sort_by_key(|(span, _)| span.start);
        for (span, message) in errors {
            self.lost |= message.contains("unclosed") || self.place(&span).excerpt.trim_start().starts_with('[');
            if self.broken.insert(self.line(span.start)) {
                self.push(&span, syntax(message));
            }
        }
    }

    /// Adds a problem of what stands at `span`.
    pub(super) fn add(&mut self, span: &Range<usize>, complaint: Complaint) {
        if !self.lost && !self.broken.contains(&self.line(span.start)) {
            self.push(span, complaint);
        }
    }

    /// Adds a problem that shows only in the file as a whole: something is missing, or two places do not agree.
    pub(super) fn add_of_whole(&mut self, span: &Range<usize>, complaint: Complaint) {
        if self.broken.is_empty() {
            self.push(span, complaint);
        }
    }

    fn push(&mut self, span: &Range<usize>, complaint: Complaint) {
        self.list.push((span.start, complaint.at(Some(self.place(span)))));
    }

    /// The problems in the order of the text.
    fn sorted(mut self) -> Vec<Problem> {
        self.list.sort_by_key(|(at, _)| *at);
        self.list.into_iter().map(|(_, problem)| problem).collect()
    }

    /// `value` if there are no problems.
    pub(super) fn into_result<T>(mut self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.list.is_empty() => return Ok(value),
            None if self.list.is_empty() => {
                let bug = Complaint::new("BUG: refused without a reason", "a check is incomplete", "report it");
                self.list.push((0, bug.at(None)));
            }
            _ => {}
        }
        let partial = !self.broken.is_empty();
        Err(ConfigErrors { file: UNNAMED.to_owned(), problems: self.sorted(), partial })
    }
}

/// The parser's message in our form.
fn syntax(message: &str) -> Complaint {
    let (why, todo) = match message {
        m if m.contains("must be quoted") || m.starts_with("invalid float") => {
            ("words and quantities are strings, and TOML strings are quoted", "write it in quotes, like \"20us\"")
        }
        m if m.contains("duplicate key") => (
            "TOML allows each key, and each [section], once",
            "keep one of the two; lists are written [[port]], [[peer]]",
        ),
        m if m.contains("leading zero") => ("TOML numbers do not begin with 0", "remove the zero; hexadecimal is 0x…"),
        m if m.contains("basic string") || m.contains("literal string") => {
            ("the string does not end, or holds a character it may not hold", "close it with the quote it began with")
        }
        m if m.contains("array elements") || m.contains("in array") => {
            ("a list goes on, over several lines too, until its ]", "close the list with ], or add the comma")
        }
        m if m.contains("unclosed") => ("a bracket that was opened is not closed", "add the missing bracket"),
        _ => {
            ("the line is not TOML", "write key = value, [section] or [[section]]; dataplane config example shows all")
        }
    };
    Complaint::new(format!("not TOML: {message}"), why, todo)
}

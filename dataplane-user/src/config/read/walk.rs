//! Finds the sections and keys of a file, before it is known what they mean.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::error::{Complaint, Problems};
use super::super::nearest::did_you_mean;
use super::super::schema::{SECTIONS, Schema, home_of};
use super::super::settings::without_unit;
use super::super::value::{self, Read};
use super::Reader;

/// What became of a key.
pub(super) enum Field<T> {
    /// The file does not set it.
    Absent,
    /// It was complained about.
    Bad,
    /// Its value and where that stands.
    Good(Spanned<T>),
}

impl<T> Field<T> {
    /// The value, or `default`. After a mistake the default stands in only until the file is refused.
    pub(super) fn or(self, default: T) -> T {
        self.value().unwrap_or(default)
    }

    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Good(value) => Some(value.into_inner()),
            Self::Absent | Self::Bad => None,
        }
    }

    pub(super) fn good(&self) -> Option<(&T, Range<usize>)> {
        match self {
            Self::Good(value) => Some((value.get_ref(), value.span())),
            Self::Absent | Self::Bad => None,
        }
    }

    pub(super) fn is_bad(&self) -> bool {
        matches!(self, Self::Bad)
    }
}

/// One `[section]` of the file.
pub(super) struct Section<'t> {
    pub(super) schema: &'static Schema,
    pub(super) header: Range<usize>,
    pub(super) table: &'t DeTable<'t>,
}

/// Values of which each may occur once, with who has them.
pub(super) struct Claims<T> {
    why: &'static str,
    todo: &'static str,
    pub(super) taken: Vec<(T, String)>,
}

impl<T: PartialEq> Claims<T> {
    pub(super) fn new(why: &'static str, todo: &'static str) -> Self {
        Self { why, todo, taken: Vec::new() }
    }

    /// Takes the value at `span` for `section`, or complains that it is taken.
    pub(super) fn claim(
        &mut self,
        value: T,
        label: &str,
        section: &Section<'_>,
        span: &Range<usize>,
        problems: &mut Problems<'_>,
    ) {
        match self.taken.iter().find(|(taken, _)| *taken == value) {
            Some((_, holder)) => {
                problems
                    .add_of_whole(span, Complaint::new(format!("{label} is taken by {holder}"), self.why, self.todo));
            }
            None => {
                let holder = format!("the {} on line {}", section.schema.header(), problems.line(section.header.start));
                self.taken.push((value, holder));
            }
        }
    }
}

impl<'t> Reader<'t> {
    /// Complains about every section, and every key outside of one, that the format does not have.
    pub(super) fn unknown_sections(&mut self) {
        for (key, value) in self.root {
            let name = key.get_ref().as_ref();
            if SECTIONS.iter().any(|schema| schema.name == name) {
                continue;
            }
            let complaint = if is_section(value.get_ref()) {
                let hint = did_you_mean(name, SECTIONS.iter().map(|schema| schema.name));
                let headers: Vec<_> = SECTIONS.iter().map(|schema| schema.header()).collect();
                let what = format!("there is no section {}{hint}", self.problems.quote(&key.span()));
                Complaint::new(what, format!("the sections are {}", headers.join(", ")), "rename or remove it")
            } else {
                let what = format!("the key {} stands outside of every section", self.problems.quote(&key.span()));
                Complaint::new(what, "every setting belongs to a section", home_of(name))
            };
            self.problems.add(&key.span(), complaint);
        }
    }

    /// The sections of this name, their unknown keys complained about.
    pub(super) fn tables(&mut self, schema: &'static Schema) -> Vec<Section<'t>> {
        let Some((key, value)) = self.root.get_key_value(schema.name) else {
            return Vec::new();
        };
        let entries: &'t [Spanned<DeValue<'t>>] = match value.get_ref() {
            DeValue::Array(list) => {
                if !schema.list {
                    self.wrong_shape(schema, &key.span(), "a list");
                }
                list
            }
            single => {
                if schema.list && single.is_table() {
                    self.wrong_shape(schema, &key.span(), "a single section");
                }
                std::slice::from_ref(value)
            }
        };
        let mut sections = Vec::new();
        for entry in entries {
            match entry.get_ref() {
                DeValue::Table(table) => {
                    let section = Section { schema, header: entry.span(), table };
                    self.unknown_keys(&section);
                    sections.push(section);
                }
                other => self.wrong_shape(schema, &entry.span(), value::kind(other)),
            }
        }
        sections
    }

    /// Reads the section of this name, or takes its defaults when the file has none.
    pub(super) fn table<T: Default>(&mut self, schema: &'static Schema, read: fn(&mut Self, &Section<'_>) -> T) -> T {
        self.tables(schema).first().map(|section| read(self, section)).unwrap_or_default()
    }

    fn wrong_shape(&mut self, schema: &Schema, span: &Range<usize>, found: &str) {
        let why = if schema.list { "there may be several" } else { "there is one" };
        let what = format!("{} is {found} here", schema.name);
        self.problems.add(span, Complaint::new(what, why, format!("write {} on a line of its own", schema.header())));
    }

    pub(super) fn missing_section(&mut self, schema: &Schema, why: &str, example: &str) {
        let header = schema.header();
        let todo = format!("add a section {header} with {example}");
        self.problems.add_of_whole(&(0..0), Complaint::new(format!("there is no {header}"), why, todo));
    }

    pub(super) fn at_most<'s>(&mut self, limit: usize, what: &str, mut sections: impl Iterator<Item = &'s Section<'t>>)
    where
        't: 's,
    {
        if let Some(section) = sections.nth(limit) {
            let why = "the tables that XDP programs and workers share have a place for so many";
            self.problems
                .add_of_whole(&section.header, Complaint::new(format!("more than {limit} {what}"), why, "remove some"));
        }
    }

    fn unknown_keys(&mut self, section: &Section<'_>) {
        for key in section.table.keys() {
            let name = key.get_ref().as_ref();
            if section.schema.keys().any(|known| known == name) {
                continue;
            }
            let header = section.schema.header();
            let hint = did_you_mean(without_unit(name), section.schema.keys());
            let what = format!("{header} has no key {}{hint}", self.problems.quote(&key.span()));
            let why = format!("its keys are {}", section.schema.listed());
            let todo = if hint.is_empty() { home_of(name) } else { "correct the name".to_owned() };
            self.problems.add(&key.span(), Complaint::new(what, why, todo));
        }
    }

    /// Reads a key that has a default.
    pub(super) fn field<T>(
        &mut self,
        section: &Section<'_>,
        key: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Read<T>,
    ) -> Field<T> {
        let Some(value) = section.table.get(key) else {
            return Field::Absent;
        };
        let span = value.span();
        match read(value.get_ref()) {
            Ok(value) => Field::Good(Spanned::new(span, value)),
            Err(complaint) => {
                let what = format!("{key} = {} {}", self.problems.quote(&span), complaint.what);
                self.problems.add(&span, Complaint { what, ..complaint });
                Field::Bad
            }
        }
    }

    /// Reads a key that must be there.
    pub(super) fn required<T>(
        &mut self,
        section: &Section<'_>,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&DeValue<'_>) -> Read<T>,
    ) -> Field<T> {
        let field = self.field(section, key, read);
        if matches!(field, Field::Absent) {
            let what = format!("this {} has no {key}", section.schema.header());
            let why = format!("{key} has no default");
            self.problems.add_of_whole(&section.header, Complaint::new(what, why, format!("add a line {example}")));
            return Field::Bad;
        }
        field
    }
}

/// True for what is written with a header: a table, or a list of tables.
fn is_section(value: &DeValue<'_>) -> bool {
    value.is_table() || value.as_array().is_some_and(|list| list.iter().any(|entry| entry.get_ref().is_table()))
}

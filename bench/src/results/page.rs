//! Values of a file, and Markdown made of them.

use anyhow::{Context, Result};
use serde_json::Value;

/// The value at a JSON pointer (RFC 6901).
///
/// # Errors
/// There is none.
pub fn at<'a>(value: &'a Value, pointer: &str) -> Result<&'a Value> {
    value.pointer(pointer).with_context(|| format!("no {pointer}: make the file again"))
}

/// The number there.
///
/// # Errors
/// There is none.
pub fn number(value: &Value, pointer: &str) -> Result<f64> {
    at(value, pointer)?.as_f64().with_context(|| format!("{pointer} is no number"))
}

/// The text there.
///
/// # Errors
/// There is none.
pub fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    at(value, pointer)?.as_str().with_context(|| format!("{pointer} is no text"))
}

/// The list there.
///
/// # Errors
/// There is none.
pub fn list<'a>(value: &'a Value, pointer: &str) -> Result<&'a [Value]> {
    Ok(at(value, pointer)?.as_array().with_context(|| format!("{pointer} is no list"))?)
}

/// A list of numbers and texts, separated by commas.
///
/// # Errors
/// There is no list.
pub fn joined(value: &Value, pointer: &str) -> Result<String> {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(list(value, pointer)?.iter().map(word).collect::<Vec<_>>().join(", "))
}

/// A table. Bars in cells would end them and are replaced.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.iter().map(|cell| (*cell).to_owned()).collect());
    text += &format!("|{}\n", "---|".repeat(head.len()));
    for row in rows {
        text += &line(row.iter().map(|cell| cell.replace('|', "/")).collect());
    }
    text
}

/// A number with about three digits.
pub fn short(value: f64) -> String {
    let decimals = crate::sim::reproduce::finding::decimals(value);
    format!("{value:.decimals$}")
}

/// A share as percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

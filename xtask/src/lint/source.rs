//! Just enough of Rust's grammar to tell code from comments and literals, and a file's own lines from its tests.

/// The text with every comment, string and character literal blanked; lines stay where they are.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match skip(bytes, at) {
            Some(end) => end.min(bytes.len()),
            None => {
                code.push(if bytes[at].is_ascii() { char::from(bytes[at]) } else { ' ' });
                at += 1;
                continue;
            }
        };
        code.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// The end of the comment or literal that starts at `at`, or `None` where code does.
fn skip(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let after_word = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => Some(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(at + block_comment(rest)),
        [b'"', ..] => Some(at + quoted(rest)),
        [b'r', b'"' | b'#', ..] if !after_word => raw_string(&rest[1..]).map(|length| at + 1 + length),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !after_word => raw_string(&rest[2..]).map(|length| at + 2 + length),
        [b'\'', b'\\', ..] => Some(at + 3 + rest.get(3..)?.iter().position(|byte| *byte == b'\'')? + 1),
        // A lifetime has no closing quote right after its first character.
        [b'\'', first, ..] => {
            let length = 1 + utf8_length(*first);
            (rest.get(length) == Some(&b'\'')).then_some(at + length + 1)
        }
        _ => None,
    }
}

/// Length of a comment that may hold others.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// Length of a string literal with escapes.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of a raw string from its hashes on, or `None` where the hashes belong to a raw identifier.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &rest[..hashes]].concat();
    let inside = &rest[hashes + 1..];
    let length = inside.windows(close.len()).position(|window| window == close).unwrap_or(inside.len());
    Some(hashes + 1 + length + close.len())
}

fn utf8_length(first: u8) -> usize {
    match first {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    }
}

/// Whether code holds a word that is not part of a longer one.
pub fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.as_bytes()[..at].last();
        let after = code.as_bytes().get(at + word.len());
        !before.is_some_and(|byte| is_word(*byte)) && !after.is_some_and(|byte| is_word(*byte))
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Lines of a file up to its last item, where that is a test module; else all lines.
pub fn lines_without_tests(text: &str) -> usize {
    let code = code_only(text);
    let lines = code.lines().map(str::trim_end).collect::<Vec<_>>();
    let Some(start) = lines.iter().rposition(|line| *line == "#[cfg(test)]") else {
        return lines.len();
    };
    let item = lines[start + 1..].iter().position(|line| !line.is_empty() && !line.starts_with("#["));
    let Some(module) = item.map(|offset| start + 1 + offset).filter(|at| lines[*at].starts_with("mod ")) else {
        return lines.len();
    };
    let end = if lines[module].ends_with(';') {
        Some(module)
    } else {
        lines[module..].iter().position(|line| *line == "}").map(|offset| module + offset)
    };
    match end {
        Some(end) if lines[end + 1..].iter().all(|line| line.is_empty()) => start,
        _ => lines.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mentions_unsafe(text: &str) -> bool {
        has_word(&code_only(text), "unsafe")
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        for text in [
            "// unsafe",
            "/* a /* nested */ unsafe */ fn f() {}",
            "let a = \"unsafe \\\" unsafe\";",
            "let a = r#\"unsafe \" unsafe\"#; let b = br\"unsafe\";",
            "let a = 'u'; // unsafe",
            "#![forbid(unsafe_code)]",
            "let not_unsafe = 1;",
            "let quote = '\"'; let other = '\\''; // unsafe \"",
            "let é = \"é unsafe\"; let c = 'é'; // unsafe",
        ] {
            assert!(!mentions_unsafe(text), "{text}");
        }
    }

    #[test]
    fn code_between_them_is() {
        for text in [
            "unsafe { f() }",
            "let a = \"\\\\\"; unsafe { f() } // \"",
            "fn f<'a>(x: &'a str) -> &'a str { unsafe { g(x, 'a') } }",
            "let a = '\"'; unsafe {} let b = '\"';",
            "let r#type = 1; unsafe {}",
            "/* c */ unsafe impl Send for X {}",
            "let r = r\"\\\"; unsafe {}",
            "#[unsafe(no_mangle)] fn f() {}",
        ] {
            assert!(mentions_unsafe(text), "{text}");
        }
    }

    #[test]
    fn blanking_keeps_lines_and_survives_open_ends() {
        assert_eq!(code_only("a /* b\nc */ d").lines().count(), 2);
        for text in ["\"open", "/* open", "r#\"open", "'", "'\\", "b'\\x", "\"\\"] {
            let _ = code_only(text);
        }
    }

    #[test]
    fn trailing_tests_are_not_counted() {
        let code = "fn a() {}\nfn b() {}\n";
        assert_eq!(lines_without_tests(code), 2);
        assert_eq!(lines_without_tests(&format!("{code}#[cfg(test)]\nmod tests {{\n    fn c() {{}}\n}}\n")), 2);
        assert_eq!(lines_without_tests(&format!("{code}#[cfg(test)]\n#[path = \"x\"]\nmod tests;\n")), 2);
    }

    #[test]
    fn code_after_the_tests_makes_them_count() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n}\nfn b() {}\n";
        assert_eq!(lines_without_tests(text), 5);
        assert_eq!(lines_without_tests("#[cfg(test)]\nfn only_in_tests() {}\n"), 2);
    }
}

//! The documents of a YAML text.

/// The documents of a text that hold something. Each but the first has as many empty lines before it as there were
/// lines, so that what is wrong with it is found where the file has it.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut documents = Vec::new();
    let mut current = String::new();
    let mut has_content = false;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let boundary = boundary(line);
        if boundary.is_some() {
            if has_content {
                documents.push(std::mem::take(&mut current));
            }
            current = "\n".repeat(index);
            has_content = false;
        }
        match boundary {
            // What stands behind the dashes stays in its column.
            Some(Boundary::Begin(rest)) => {
                current.push_str("   ");
                current.push_str(rest);
                has_content |= is_content(rest);
            }
            Some(Boundary::End) => current.push('\n'),
            None => {
                current.push_str(line);
                has_content |= is_content(line);
            }
        }
    }
    if has_content {
        documents.push(current);
    }
    documents
}

enum Boundary<'a> {
    /// `---`, and what stands behind it.
    Begin(&'a str),
    /// `...`.
    End,
}

/// A line that begins or ends a document: also within a block of text, says YAML.
fn boundary(line: &str) -> Option<Boundary<'_>> {
    let (marker, rest) = line.split_at_checked(3)?;
    let stands_alone = rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']);
    match marker {
        "---" if stands_alone => Some(Boundary::Begin(rest)),
        "..." if stands_alone => Some(Boundary::End),
        _ => None,
    }
}

fn is_content(line: &str) -> bool {
    let line = line.trim_start_matches('\u{feff}').trim();
    !line.is_empty() && !line.starts_with(['#', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_lines() {
        for (text, expected) in [
            ("a: 1\n", &["a: 1\n"][..]),
            ("---\na: 1\n", &["   \na: 1\n"]),
            ("a: 1\n---\nb: 2", &["a: 1\n", "\n   \nb: 2"]),
            ("a: 1\n---\n# nothing\n---\n\nb: 2\n---\n", &["a: 1\n", "\n\n\n   \n\nb: 2\n"]),
            ("%YAML 1.1\n--- # first\na: 1\n...\n# end\n", &["\n    # first\na: 1\n"]),
            ("--- {a: 1}\n", &["    {a: 1}\n"]),
            ("a: |\n  ---\n  x\n----\n", &["a: |\n  ---\n  x\n----\n"]),
            ("\n# only remarks\n", &[]),
            ("", &[]),
            ("ä\n", &["ä\n"]),
        ] {
            assert_eq!(split(text), expected, "{text:?}");
        }
    }
}

//! Files of variables: `NAME='value'` lines, in a small part of what a shell reads.

/// The longest line that is read.
const MAX_LINE: usize = 64 * 1024;

/// A file of variables has a line that is none. What is wrong with it is not told: the file may hold secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a file of variables")]
pub struct EnvFileError;

/// The value of a variable in a file; empty where there is none. Values stand in single quotes and may run over
/// several lines. What follows the variable is not looked at.
pub fn env_file_value(text: &str, key: &str) -> Result<String, EnvFileError> {
    let mut lines = text.lines();
    while let Some(line) = next_line(&mut lines)? {
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, assigned) = line.split_once('=').ok_or(EnvFileError)?;
        if name.is_empty() || name.ends_with([' ', '\t']) {
            return Err(EnvFileError);
        }
        // As in a shell, `NAME= 'value'` makes the variable empty. So does a `NAME=` with blanks behind it.
        if assigned.starts_with([' ', '\t']) {
            match name == key {
                true => return Ok(String::new()),
                false => continue,
            }
        }
        let mut rest = assigned.strip_prefix('\'').ok_or(EnvFileError)?;
        let mut value = String::new();
        let after = loop {
            match rest.split_once('\'') {
                Some((end, after)) => {
                    value.push_str(end);
                    break after;
                }
                None => {
                    value.push_str(rest);
                    value.push('\n');
                    rest = next_line(&mut lines)?.ok_or(EnvFileError)?;
                }
            }
        };
        let after = after.trim_start_matches([' ', '\t']);
        if !after.is_empty() && !after.starts_with('#') {
            return Err(EnvFileError);
        }
        if name == key {
            return Ok(value);
        }
    }
    Ok(String::new())
}

fn next_line<'a>(lines: &mut std::str::Lines<'a>) -> Result<Option<&'a str>, EnvFileError> {
    match lines.next() {
        Some(line) if line.len() >= MAX_LINE => Err(EnvFileError),
        line => Ok(line.map(|line| line.strip_suffix('\r').unwrap_or(line))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_in_single_quotes() {
        let value = |text: &str| env_file_value(text, "K").map_err(|_| "refused");
        for (text, expected) in [
            ("K='v'", Ok("v")),
            ("# K='no'\n\n \t K='a b' # comment\n", Ok("a b")),
            ("OTHER='x'\r\nK='v'\r\n", Ok("v")),
            ("K='one\ntwo\n\n# three'", Ok("one\ntwo\n\n# three")),
            ("A='\nK='\nK='v'", Ok("v")),
            ("K='$(X) \\n \"'", Ok("$(X) \\n \"")),
            ("K=''", Ok("")),
            ("K= 'v'", Ok("")),
            ("K=\t'v'", Ok("")),
            ("K='v'\t#", Ok("v")),
            ("K\t=''", Err("refused")),
            ("OTHER= 'v'\nK='w'", Ok("w")),
            ("", Ok("")),
            ("OTHER='x'", Ok("")),
            ("K='v'\nnonsense", Ok("v")),
            ("nonsense\nK='v'", Err("refused")),
            ("K=v", Err("refused")),
            ("K=\"v\"", Err("refused")),
            ("K =''", Err("refused")),
            ("=''", Err("refused")),
            ("K='v' x", Err("refused")),
            ("K='v", Err("refused")),
        ] {
            assert_eq!(value(text), expected.map(str::to_owned), "{text:?}");
        }
        let of_length = |length: usize| format!("K='{}'", "x".repeat(length - 4));
        assert_eq!(value(&of_length(65_536)), Err("refused"));
        assert_eq!(value(&of_length(65_535)).map(|value| value.len()), Ok(65_531));
    }
}

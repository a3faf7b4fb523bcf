//! `$(VAR)` in commands and in the values of variables.

/// Writes `text` with each `$(NAME)` replaced by what `lookup` writes for that name; `$$` stands for one `$`, and
/// whatever else follows a `$` stays as it is. Where `lookup` answers that there is no such name, the reference
/// stays as it is written.
pub fn expand(text: &str, mut lookup: impl FnMut(&str, &mut Vec<u8>) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (before, reference) = rest.split_at(dollar);
        out.extend_from_slice(before.as_bytes());
        let after = &reference[1..];
        rest = match after.chars().next() {
            None => {
                out.push(b'$');
                after
            }
            Some('$') => {
                out.push(b'$');
                &after[1..]
            }
            Some('(') => match after.find(')') {
                Some(close) => {
                    let length = out.len();
                    if !lookup(&after[1..close], &mut out) {
                        out.truncate(length);
                        out.extend_from_slice(&reference.as_bytes()[..close + 2]);
                    }
                    &after[close + 1..]
                }
                // What follows an open reference may hold a whole one.
                None => {
                    out.extend_from_slice(b"$(");
                    &after[1..]
                }
            },
            Some(other) => {
                out.push(b'$');
                let (character, tail) = after.split_at(other.len_utf8());
                out.extend_from_slice(character.as_bytes());
                tail
            }
        };
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expanded(text: &str) -> String {
        let bytes = expand(text, |name, out| {
            let value = match name {
                "A" => "a",
                "B" => "$(A)",
                "EMPTY" | "" => "",
                _ => return false,
            };
            out.extend_from_slice(value.as_bytes());
            true
        });
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn references_are_replaced_once_and_what_is_none_stays() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "a"),
            ("x$(A)y$(A)", "xaya"),
            ("$(B)", "$(A)"),
            ("$(EMPTY)", ""),
            ("$()", ""),
            ("$(NONE)", "$(NONE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$$$$(A)", "$$(A)"),
            ("$", "$"),
            ("a$", "a$"),
            ("$$", "$"),
            ("$A", "$A"),
            ("$ü$(A)", "$üa"),
            ("$(A", "$(A"),
            ("$($(A)", "$($(A)"),
            ("$(A$$", "$(A$"),
            ("$(A))", "a)"),
            ("$(A)$(B", "a$(B"),
            ("${A}", "${A}"),
        ] {
            assert_eq!(expanded(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_stays(text in "[^$]*") {
            prop_assert_eq!(expanded(&text), text);
        }

        #[test]
        fn doubled_dollars_bring_any_text_through(text in "[$()A-Cü]*") {
            prop_assert_eq!(expanded(&text.replace('$', "$$")), text);
        }

        #[test]
        fn unknown_names_change_nothing_but_doubled_dollars(text in "([a-z() ]|\\$[a-z(])*") {
            let bytes = expand(&text, |_, out| {
                out.push(b'!');
                false
            });
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), text);
        }
    }
}

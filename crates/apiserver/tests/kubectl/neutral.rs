//! What kubectl prints, without what differs from run to run.

use jiff::Timestamp;

pub fn text(text: &str, namespace: &str, address: &str) -> String {
    let text = text.replace(namespace, "<namespace>").replace(address, "<address>");
    let lines = text.lines().filter(|line| !is_remark(line));
    lines.map(|line| format!("{}\n", self::line(line))).collect()
}

/// `I0102 03:04:05.678901 …`: what the client's library remarks of a watch that was cut off, if it is fast enough.
fn is_remark(line: &str) -> bool {
    let digits = line.strip_prefix('I').and_then(|rest| rest.split_once(' ')).map(|(digits, _)| digits);
    digits.is_some_and(|digits| digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn line(line: &str) -> String {
    let line = with_versions_replaced(&with_describes_times_replaced(line));
    let mut plain = String::new();
    let mut rest = line.as_str();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_of_a_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        // What was asked for is no age: `delay=3s`, `op=Exists for 300s`.
        let may_be_age = !plain.ends_with('=') && !plain.ends_with("for ");
        let shown = if may_be_age && is_age(word) { "<age>".to_owned() } else { self::word(word) };
        plain.push_str(&shown);
        let gap = after.find(is_of_a_word).unwrap_or(after.len());
        let (between, next) = after.split_at(gap);
        // A column of ages is as wide as the ages are.
        let is_column = matches!(shown.as_str(), "<age>" | "AGE") || plain.ends_with("LAST SEEN");
        match between.strip_prefix("   ").filter(|_| is_column) {
            Some(more) => plain.push_str(&format!("   {}", more.trim_start_matches(' '))),
            None => plain.push_str(between),
        }
        rest = next;
    }
    plain
}

fn is_of_a_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-:.+_".contains(c)
}

fn word(word: &str) -> String {
    let core = word.trim_end_matches(['.', ':']);
    let end = &word[core.len()..];
    if is_uid(core) {
        return format!("<uid>{end}");
    }
    if core.len() >= 20 && core.parse::<Timestamp>().is_ok() {
        return format!("<time>{end}");
    }
    if core.len() == 64 && core.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return format!("<hash>{end}");
    }
    // A token of a service account.
    if core.len() > 100 && core.starts_with("eyJ") {
        return format!("<token>{end}");
    }
    if let Some(rest) = core.strip_prefix("kube-api-access-").filter(|rest| rest.len() >= 5) {
        return format!("kube-api-access-<suffix>{}{end}", &rest[5..]);
    }
    word.to_owned()
}

/// `5s`, `2m3s`, `3h`, `3d`, `3y`; but `10m` is a hundredth of a processor.
fn is_age(word: &str) -> bool {
    word.ends_with(['s', 'h', 'd', 'y'])
        && word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
}

fn is_uid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// `resourceVersion: "12"`, in YAML, JSON and `describe`'s words; and what the client is.
fn with_versions_replaced(line: &str) -> String {
    for name in ["resourceVersion: \"", "\"resourceVersion\": \""] {
        if let Some((before, rest)) = line.split_once(name)
            && let Some((_, after)) = rest.split_once('"')
        {
            return format!("{before}{name}<version>\"{after}");
        }
    }
    if let Some((before, _)) = line.split_once("Resource Version:  ") {
        return format!("{before}Resource Version:  <version>");
    }
    for name in ["Client Version: ", "Kustomize Version: "] {
        if line.starts_with(name) {
            return format!("{name}<version>");
        }
    }
    line.to_owned()
}

/// `Mon, 02 Jan 2006 15:04:05 +0000`, as `describe` writes times.
fn with_describes_times_replaced(line: &str) -> String {
    const SHAPE: &str = "aaa, 00 aaa 0000 00:00:00 +0000";
    let shape: String = line
        .chars()
        .map(|c| match c {
            c if c.is_ascii_digit() => '0',
            c if c.is_ascii_alphabetic() => 'a',
            c if c.is_ascii() => c,
            _ => '?',
        })
        .collect();
    match shape.find(SHAPE) {
        Some(at) if line.is_ascii() => {
            let after = with_describes_times_replaced(&line[at + SHAPE.len()..]);
            format!("{}<time>{after}", &line[..at])
        }
        Some(_) | None => line.to_owned(),
    }
}

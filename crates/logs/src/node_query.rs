//! What is asked of the node's logs (`/logs/?query=…`), understood and checked as upstream does it.

use jiff::Timestamp;

use crate::pattern::check_pattern;

/// The most lines that can be asked for.
const MAX_TAIL_LINES: i64 = 100_000;
pub(crate) const MAX_SERVICE_LENGTH: usize = 256;
const MAX_SERVICES: usize = 4;

/// The node's logs that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeLogQuery {
    /// Units of systemd, or files that are called like a service.
    pub(crate) services: Vec<String>,
    /// Files below the directory of logs.
    pub(crate) files: Vec<String>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) tail_lines: Option<i64>,
    pub(crate) boot: Option<i64>,
    pub(crate) pattern: Option<String>,
}

/// What is wrong with what is asked for, in upstream's words.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}", aggregate(problems))]
pub struct InvalidQuery {
    problems: Vec<String>,
}

fn aggregate(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl NodeLogQuery {
    /// Understands a query; nothing where it asks for nothing of the kind.
    pub fn parse<I: Iterator<Item = String>>(
        values: impl Fn(&'static str) -> I,
    ) -> Result<Option<NodeLogQuery>, InvalidQuery> {
        let mut problems = Vec::new();
        let mut query = NodeLogQuery::default();
        let queries: Vec<String> = values("query").collect();
        for text in &queries {
            if text.contains(['/', '\\']) {
                query.files.push(text.clone());
            } else if !text.trim().is_empty() {
                query.services.push(text.clone());
            }
        }
        if !queries.is_empty() && query.files.is_empty() && query.services.is_empty() {
            problems.push(format!("query: Invalid value: {}: may not be empty", list(&queries)));
        }
        let first = |name: &'static str| values(name).next().filter(|text| !text.is_empty());
        let mut time = |name: &'static str| {
            let text = first(name)?;
            let time = text.parse().ok();
            if time.is_none() {
                problems.push(format!("{name}: Invalid value: {}: invalid time format", quoted(&text)));
            }
            time
        };
        (query.since, query.until) = (time("sinceTime"), time("untilTime"));
        let mut number = |name: &'static str| {
            let text = first(name)?;
            let number: Option<i64> = text.parse().ok();
            if number.is_none() {
                let text = quoted(&text);
                problems.push(format!(
                    "{name}: Invalid value: {text}: strconv.Atoi: parsing {text}: invalid syntax"
                ));
            }
            number
        };
        (query.boot, query.tail_lines) = (number("boot"), number("tailLines"));
        query.pattern = first("pattern");
        match problems.is_empty() {
            true => Ok(Some(query).filter(|query| *query != NodeLogQuery::default())),
            false => Err(InvalidQuery { problems }),
        }
    }

    /// Whether anything is asked beside whose logs.
    pub(crate) fn has_options(&self) -> bool {
        let NodeLogQuery { services: _, files: _, since, until, tail_lines, boot, pattern } = self;
        since.is_some() || until.is_some() || tail_lines.is_some() || boot.is_some() || pattern.is_some()
    }

    /// The file that is asked for, where it is one.
    pub fn file(&self) -> Option<String> {
        self.files.first().map(|file| file.replace('\\', "/"))
    }

    /// Whether it makes sense. `stat` says what is wrong with a file.
    pub fn validate(&self, stat: impl Fn(&str) -> Option<String>) -> Result<(), InvalidQuery> {
        let mut problems = Vec::new();
        for service in &self.services {
            let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
            let problem = if service.len() > MAX_SERVICE_LENGTH {
                format!("length must be less than {MAX_SERVICE_LENGTH}")
            } else if !service.bytes().all(is_safe) {
                "input contains unsupported characters".to_owned()
            } else {
                continue;
            };
            problems.push(format!("query: Invalid value: {}: {problem}", quoted(service)));
        }
        if self.services.len() > MAX_SERVICES {
            let count = self.services.len();
            problems.push(format!("query: Too many: {count}: must have at most {MAX_SERVICES} items"));
        }
        let files = || list(&self.files);
        match (&*self.files, &*self.services) {
            ([], []) => problems.push("query: Required value: cannot be empty with options".to_owned()),
            ([], _) => {}
            (some, [_, ..]) => {
                let both = format!("[{}], [{}]", some.join(" "), self.services.join(" "));
                let both = quoted(&both);
                problems.push(format!("query: Invalid value: {both}: cannot specify a file and service"));
            }
            ([_, _, ..], []) => {
                problems
                    .push(format!("query: Invalid value: {}: cannot specify more than one file", files()));
            }
            ([_], []) if self.has_options() => {
                problems.push(format!("query: Invalid value: {}: cannot specify file with options", files()));
            }
            ([_], []) => {
                let problem = self.file().and_then(|file| stat(&file));
                problems
                    .extend(problem.map(|problem| format!("query: Invalid value: {}: {problem}", files())));
            }
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since > until
        {
            problems.push(format!("untilTime: Invalid value: \"{until}\": must be after `sinceTime`"));
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            problems.push(format!("boot: Invalid value: {boot}: must be less than 1"));
        }
        if let Some(lines) = self.tail_lines.filter(|lines| !(0..=MAX_TAIL_LINES).contains(lines)) {
            problems.push(format!(
                "tailLines: Invalid value: {lines}: must be between 0 and {MAX_TAIL_LINES}, inclusive"
            ));
        }
        if let Some(pattern) = &self.pattern
            && let Err(error) = check_pattern(pattern)
        {
            problems.push(format!("pattern: Invalid value: {}: {error}", quoted(pattern)));
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(InvalidQuery { problems }),
        }
    }

    /// The arguments by which journalctl gives the logs of services.
    pub(crate) fn journal_arguments(&self, services: &[&str]) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--utc", "--no-pager", "--output=short-precise"].map(Into::into).into();
        // It would be taken for the node's own time otherwise.
        let time = |time: Timestamp| time.strftime("%Y-%-m-%-d %H:%-M:%-S UTC").to_string();
        arguments.extend(self.since.map(|since| format!("--since={}", time(since))));
        arguments.extend(self.until.map(|until| format!("--until={}", time(until))));
        if let Some(lines) = self.tail_lines {
            arguments.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
        }
        arguments.extend(services.iter().map(|service| format!("--unit={service}")));
        arguments.extend(self.pattern.iter().map(|pattern| format!("--grep={pattern}")));
        if let Some(boot) = self.boot {
            arguments.extend(["--boot".to_owned(), boot.to_string()]);
        }
        arguments
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A list as Go's JSON has it.
fn list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Option<NodeLogQuery>, InvalidQuery> {
        NodeLogQuery::parse(|name| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let found: Vec<String> =
                pairs.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned()).collect();
            found.into_iter()
        })
    }

    fn judged(query: &str) -> String {
        match parse(query) {
            Err(error) => format!("400 {error}"),
            Ok(None) => "nothing".to_owned(),
            Ok(Some(query)) => {
                let stat = |file: &str| file.contains("missing").then(|| format!("statat {file}: nothing"));
                match query.validate(stat) {
                    Err(error) => format!("406 {error}"),
                    Ok(()) => "valid".to_owned(),
                }
            }
        }
    }

    #[test]
    fn queries_are_judged_as_upstream_judges_them() {
        let long = format!("query={}", "x".repeat(257));
        for (query, expected) in [
            ("", "nothing"),
            ("other=x", "nothing"),
            ("query=kubelet", "valid"),
            ("query=kubelet&query=containerd", "valid"),
            ("query=foo.log/", "valid"),
            ("query=   ", r#"400 query: Invalid value: ["   "]: may not be empty"#),
            ("query=", r#"400 query: Invalid value: [""]: may not be empty"#),
            ("query=a;b", r#"406 query: Invalid value: "a;b": input contains unsupported characters"#),
            (&long, &format!("406 query: Invalid value: \"{}\": length must be less than 256", &long[6..])),
            ("query=a&query=b&query=c&query=d&query=e", "406 query: Too many: 5: must have at most 4 items"),
            (
                "query=/a&query=b",
                r#"406 query: Invalid value: "[/a], [b]": cannot specify a file and service"#,
            ),
            (
                "query=/a&query=/b",
                r#"406 query: Invalid value: ["/a","/b"]: cannot specify more than one file"#,
            ),
            ("query=/a&boot=0", r#"406 query: Invalid value: ["/a"]: cannot specify file with options"#),
            ("query=/missing", r#"406 query: Invalid value: ["/missing"]: statat /missing: nothing"#),
            ("boot=0", "406 query: Required value: cannot be empty with options"),
            ("query=a&boot=1", "406 boot: Invalid value: 1: must be less than 1"),
            ("query=a&boot=x", r#"400 boot: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax"#),
            (
                "query=a&tailLines=100001",
                "406 tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
            ),
            ("query=a&pattern=^err(or)?$", "valid"),
            (
                "query=a&pattern=(",
                r#"406 pattern: Invalid value: "(": error parsing regexp: missing closing ): `(`"#,
            ),
            ("query=a&sinceTime=x", r#"400 sinceTime: Invalid value: "x": invalid time format"#),
            (
                "query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z",
                r#"406 untilTime: Invalid value: "2026-01-01T00:00:00Z": must be after `sinceTime`"#,
            ),
            (
                "query=a;b&boot=1",
                r#"406 [query: Invalid value: "a;b": input contains unsupported characters, boot: Invalid value: 1: must be less than 1]"#,
            ),
        ] {
            assert_eq!(judged(query), expected, "{query}");
        }
    }

    #[test]
    fn journalctl_is_asked_as_upstream_asks_it_but_for_times_which_say_their_zone() {
        for (query, expected) in [
            ("query=a", "--unit=a"),
            ("query=a&query=b", "--unit=a --unit=b"),
            (
                "query=a&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-11-12T13:14:15+01:00",
                "--since=2026-1-2 03:4:5 UTC --until=2026-11-12 12:14:15 UTC --unit=a",
            ),
            (
                "query=a&tailLines=7&pattern=x y&boot=-1",
                "--pager-end --lines=7 --unit=a --grep=x y --boot -1",
            ),
        ] {
            let query = parse(query).unwrap().unwrap();
            let services: Vec<&str> = query.services.iter().map(String::as_str).collect();
            let arguments = query.journal_arguments(&services).join(" ");
            assert_eq!(arguments, format!("--utc --no-pager --output=short-precise {expected}"));
        }
    }
}

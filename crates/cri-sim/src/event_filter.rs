//! Which of containerd's events a client wants.

use crablet_cri_api::containerd::services::Envelope;

/// Which events pass: those that one of the filters matches, or all if there are none.
///
/// A filter is a list of selectors with commas between them, all of which must match: a field (`topic`, `namespace`),
/// an operator (`==`, `!=`, `~=`) and a value, bare or in double quotes. Of regular expressions it knows text, `^`, `$`
/// and one group of alternatives, such as `^/(tasks|containers)/`; that is all a kubelet needs.
#[derive(Debug)]
pub(crate) struct EventFilter(Vec<Vec<Selector>>);

#[derive(Debug)]
struct Selector {
    field: Field,
    operator: Operator,
}

#[derive(Debug)]
enum Field {
    Topic,
    Namespace,
}

#[derive(Debug)]
enum Operator {
    Is(String),
    IsNot(String),
    Matches(Vec<Pattern>),
}

#[derive(Debug)]
struct Pattern {
    at_start: bool,
    at_end: bool,
    text: String,
}

impl EventFilter {
    pub(crate) fn parse(filters: &[String]) -> Result<EventFilter, String> {
        let selectors = |filter: &String| split(filter).iter().map(|text| selector(text)).collect();
        filters.iter().map(selectors).collect::<Result<_, String>>().map(EventFilter)
    }

    pub(crate) fn matches(&self, envelope: &Envelope) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|selectors| selectors.iter().all(|selector| selector.matches(envelope)))
    }
}

impl Selector {
    fn matches(&self, envelope: &Envelope) -> bool {
        let value = match self.field {
            Field::Topic => &envelope.topic,
            Field::Namespace => &envelope.namespace,
        };
        match &self.operator {
            Operator::Is(wanted) => value == wanted,
            Operator::IsNot(other) => value != other,
            Operator::Matches(patterns) => patterns.iter().any(|pattern| pattern.matches(value)),
        }
    }
}

impl Pattern {
    fn matches(&self, value: &str) -> bool {
        match (self.at_start, self.at_end) {
            (true, true) => value == self.text,
            (true, false) => value.starts_with(&self.text),
            (false, true) => value.ends_with(&self.text),
            (false, false) => value.contains(&self.text),
        }
    }
}

/// Splits at commas that are not in quotes.
fn split(filter: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for character in filter.chars() {
        quoted ^= character == '"';
        match (character, parts.last_mut()) {
            (',', _) if !quoted => parts.push(String::new()),
            (character, Some(part)) => part.push(character),
            (_, None) => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn selector(text: &str) -> Result<Selector, String> {
    let unknown = || format!("filters: the simulated runtime does not know {text:?}");
    let place = text.find(['=', '!', '~']).ok_or_else(unknown)?;
    let (field, rest) = text.split_at(place);
    let (operator, value) = rest.split_at_checked(2).ok_or_else(unknown)?;
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let field = match field.trim() {
        "topic" => Field::Topic,
        "namespace" => Field::Namespace,
        _ => return Err(unknown()),
    };
    let operator = match operator {
        "==" => Operator::Is(value.to_owned()),
        "!=" => Operator::IsNot(value.to_owned()),
        "~=" => Operator::Matches(patterns(value).ok_or_else(unknown)?),
        _ => return Err(unknown()),
    };
    Ok(Selector { field, operator })
}

fn patterns(expression: &str) -> Option<Vec<Pattern>> {
    let (at_start, text) = match expression.strip_prefix('^') {
        Some(text) => (true, text),
        None => (false, expression),
    };
    let (at_end, text) = match text.strip_suffix('$') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let texts: Vec<String> = match text.split_once('(') {
        None => vec![text.to_owned()],
        Some((before, rest)) => {
            let (alternatives, after) = rest.split_once(')')?;
            let alternatives = alternatives.strip_prefix("?:").unwrap_or(alternatives);
            alternatives.split('|').map(|alternative| format!("{before}{alternative}{after}")).collect()
        }
    };
    let is_plain = |text: &String| {
        !text.contains(['\\', '[', ']', '*', '+', '?', '.', '{', '}', '|', '(', ')', '^', '$'])
    };
    texts
        .iter()
        .all(is_plain)
        .then(|| texts.into_iter().map(|text| Pattern { at_start, at_end, text }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_passes_when_all_of_one_filter_matches() {
        let envelope = Envelope {
            namespace: "k8s.io".to_owned(),
            topic: "/tasks/exit".to_owned(),
            ..Envelope::default()
        };
        for (filters, expected) in [
            (&[][..], true),
            (&["namespace==k8s.io,topic~=^/tasks/"], true),
            (&["namespace==moby"], false),
            (&["namespace==moby", "topic==\"/tasks/exit\""], true),
            (&["topic~=\"^/(tasks|containers)/\""], true),
            (&["topic~=^/(containers|images)/"], false),
            (&["topic~=exit$"], true),
            (&["topic!=/tasks/exit"], false),
            (&[""], true),
        ] {
            let filters: Vec<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
            assert_eq!(EventFilter::parse(&filters).unwrap().matches(&envelope), expected, "{filters:?}");
        }
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        for filter in ["event.id==x", "topic", "topic~=[a-z]", "topic=x", "topic~=(a"] {
            let error = EventFilter::parse(&[filter.to_owned()]).unwrap_err();
            assert_eq!(error, format!("filters: the simulated runtime does not know {filter:?}"));
        }
    }
}

//! Which form of an answer a client accepts, as upstream negotiates it for `/flagz` and `/statusz`.

const GROUP: &str = "config.k8s.io";

/// The form that is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    Text,
    Json(Version),
    Yaml(Version),
}

/// The version of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1Alpha1,
    V1Beta1,
}

impl Version {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Version::V1Alpha1 => "v1alpha1",
            Version::V1Beta1 => "v1beta1",
        }
    }
}

/// What is given to somebody with this `Accept` header, of a resource of this kind: fields only where their kind, group
/// and version are named.
pub(crate) fn negotiate(header: &str, kind: &str) -> Option<Accepted> {
    if header.trim().is_empty() {
        return Some(Accepted::Text);
    }
    let mut clauses: Vec<Clause<'_>> = header.split(',').map(Clause::parse).collect();
    clauses.sort_by(|one, other| other.quality.total_cmp(&one.quality));
    clauses.iter().find_map(|clause| clause.accepted(kind))
}

struct Clause<'a> {
    media: (&'a str, &'a str),
    quality: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let media = if media == "*" { ("*", "*") } else { media.split_once('/').unwrap_or((media, "")) };
        let parameters: Vec<(&str, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim()))
            .collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        let quality = quality.and_then(|(_, value)| value.parse().ok()).unwrap_or(1.0);
        Clause { media, quality, parameters }
    }

    fn accepted(&self, kind: &str) -> Option<Accepted> {
        let value =
            |name: &str| self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        // Neither a stream nor the version of a server is to be had.
        if ["stream", "sv"].iter().any(|name| value(name).is_some_and(|value| !value.is_empty())) {
            return None;
        }
        let matches = |media: (&str, &str)| match self.media {
            ("*", "*") => true,
            (kind, "*") => kind == media.0,
            exactly => exactly == media,
        };
        let wanted = (value("as"), value("g"), value("v"));
        let version = match wanted {
            (None, None, None) => return matches(("text", "plain")).then_some(Accepted::Text),
            (Some(asked), Some(GROUP), Some("v1alpha1")) if asked == kind => Version::V1Alpha1,
            (Some(asked), Some(GROUP), Some("v1beta1")) if asked == kind => Version::V1Beta1,
            _ => return None,
        };
        if matches(("application", "json")) {
            return Some(Accepted::Json(version));
        }
        matches(("application", "yaml")).then_some(Accepted::Yaml(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_given_where_they_are_named_and_text_otherwise() {
        let fields = "as=Flagz;v=v1beta1;g=config.k8s.io";
        for (header, expected) in [
            ("", Some(Accepted::Text)),
            ("*/*", Some(Accepted::Text)),
            ("text/*;q=0.1", Some(Accepted::Text)),
            ("text/html, */*;q=0.8", Some(Accepted::Text)),
            ("application/json", None),
            ("application/vnd.kubernetes.protobuf", None),
            (&format!("application/json;{fields}"), Some(Accepted::Json(Version::V1Beta1))),
            (&format!("*/*;{fields}"), Some(Accepted::Json(Version::V1Beta1))),
            (&format!("text/plain, application/yaml;{fields};q=0.5"), Some(Accepted::Text)),
            (&format!("text/plain;q=0.1,application/yaml;{fields}"), Some(Accepted::Yaml(Version::V1Beta1))),
            ("application/json;as=Flagz;v=v1;g=config.k8s.io", None),
            ("application/json;as=Statusz;v=v1beta1;g=config.k8s.io", None),
            (&format!("application/json;{fields};stream=watch"), None),
            (&format!("text/plain;{fields}"), None),
        ] {
            assert_eq!(negotiate(header, "Flagz"), expected, "{header}");
        }
    }
}

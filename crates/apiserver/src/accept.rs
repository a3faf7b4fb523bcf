//! What a client takes: the `Accept` header.

/// One of the things that are taken.
#[derive(Debug, PartialEq)]
pub(crate) struct Clause<'h> {
    kind: &'h str,
    subkind: &'h str,
    quality: f32,
    parameters: Vec<(&'h str, &'h str)>,
}

/// `as`, `g` and `v`: what an answer is to be converted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversion<'h> {
    pub(crate) kind: &'h str,
    pub(crate) group: &'h str,
    pub(crate) version: &'h str,
}

/// What a header says, the most wanted first.
pub(crate) fn clauses(header: &str) -> Vec<Clause<'_>> {
    let header = if header.is_empty() { "*/*" } else { header };
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(Clause::parse).collect();
    clauses.sort_by(|one, other| {
        let rank = |clause: &Clause<'_>| (clause.kind == "*", clause.subkind == "*");
        other.quality.total_cmp(&one.quality).then_with(|| rank(one).cmp(&rank(other)))
    });
    clauses
}

impl<'h> Clause<'h> {
    fn parse(text: &'h str) -> Option<Clause<'h>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subkind) = match parts.next()? {
            "*" => ("*", "*"),
            media => media.split_once('/')?,
        };
        let mut parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        let quality = quality.map_or(1.0, |(_, quality)| quality.parse().unwrap_or(0.0));
        parameters.retain(|(name, _)| *name != "q");
        Some(Clause { kind, subkind, quality, parameters })
    }

    /// Whether JSON is among what is taken, which is all that is given.
    pub(crate) fn takes_json(&self) -> bool {
        matches!((self.kind, self.subkind), ("application", "json" | "*") | ("*", "*"))
    }

    pub(crate) fn conversion(&self) -> Option<Conversion<'h>> {
        let mut conversion = None;
        for (name, value) in &self.parameters {
            let wanted: &mut Conversion<'h> = match *name {
                "as" | "g" | "v" => conversion.get_or_insert_default(),
                _ => continue,
            };
            match *name {
                "as" => wanted.kind = value,
                "g" => wanted.group = value,
                _ => wanted.version = value,
            }
        }
        conversion
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_wanted_comes_first() {
        for (header, expected) in [
            ("", "*/*"),
            ("*", "*/*"),
            ("nonsense", ""),
            ("a/b;q=0.5, c/d, */*, e/*;q=1", "c/d e/* */* a/b"),
            ("a/b;q=x,c/d;q=0.1", "c/d a/b"),
        ] {
            let found: Vec<String> =
                clauses(header).iter().map(|clause| format!("{}/{}", clause.kind, clause.subkind)).collect();
            assert_eq!(found.join(" "), expected, "{header}");
        }
    }

    #[test]
    fn a_conversion_is_told_by_its_parameters() {
        let header = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let found: Vec<_> = clauses(header).iter().map(Clause::conversion).collect();
        let table = Conversion { kind: "Table", group: "meta.k8s.io", version: "v1" };
        assert_eq!(found, [Some(table), None]);
    }
}

//! Getting, listing and watching.

use std::sync::Arc;

use crablet_api::validate::Errors;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Call, Cluster};
use crate::accept::{self, Conversion};
use crate::answer::{Answer, Document};
use crate::request::Verb;
use crate::schema;
use crate::selectors::Selection;
use crate::state::{Key, Stored};
use crate::status::Refusal;
use crate::table::{Form, IncludeObject};
use crate::watch::{Beginning, From, Watch};

/// The longest a watch lasts where its client does not say, and the longest it can ask for.
const WATCH_LASTS: SignedDuration = SignedDuration::from_mins(45);

impl Cluster {
    pub(super) fn get(&self, call: &Call<'_>) -> Result<Document, Refusal> {
        let resource = call.target.resource;
        let Some(stored) = self.state.get(&call.key()) else {
            return Err(Refusal::not_found(resource, &call.target.name));
        };
        let form = form(call)?;
        if form.is_stored_as_is(resource) {
            return Ok(Document::encoded(200, stored.json().into_owned()));
        }
        self.show(call, 200, stored.decode())
    }

    pub(super) fn list(&self, call: &Call<'_>) -> Result<Document, Refusal> {
        check_options(call)?;
        let selection = Selection::of(call.target.resource, &call.query)?;
        let namespace = Some(call.target.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let limit = call.query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
        let page = self.page(call, namespace)?;
        let mut wanted = page.objects.into_iter().filter(|(key, stored)| selection.matches(key, stored));
        let mut shown: Vec<(Key, Arc<Stored>)> = Vec::new();
        if limit == 0 {
            shown.extend(wanted);
        } else {
            shown.extend(wanted.by_ref().take(limit));
            let left = wanted.count();
            if let (1.., Some((last, _))) = (left, shown.last()) {
                let token = Continue { revision: page.revision, after: last.clone() }.encode();
                let remaining = selection.is_everything().then_some(left);
                return self.show_list(call, page.revision, &shown, Some((token, remaining)));
            }
        }
        self.show_list(call, page.revision, &shown, None)
    }

    fn show_list(
        &self,
        call: &Call<'_>,
        revision: u64,
        objects: &[(Key, Arc<Stored>)],
        more: Option<(String, Option<usize>)>,
    ) -> Result<Document, Refusal> {
        let resource = call.target.resource;
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some((token, remaining)) = more {
            metadata["continue"] = token.into();
            if let Some(remaining) = remaining {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        let form = form(call)?;
        if form.is_stored_as_is(resource) {
            // Objects are JSON already: the list is put around them.
            let mut body = Vec::with_capacity(
                objects.iter().map(|(_, stored)| stored.encoded.len() + 1).sum::<usize>() + 256,
            );
            let (kind, version) = (resource.kind, resource.api_version());
            body.extend_from_slice(
                format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[")
                    .as_bytes(),
            );
            for (position, (_, stored)) in objects.iter().enumerate() {
                if position > 0 {
                    body.push(b',');
                }
                body.push(b'{');
                stored.write_item(resource, &mut body);
            }
            body.extend_from_slice(b"]}");
            return Ok(Document::encoded(200, body));
        }
        let objects: Vec<Value> = objects.iter().map(|(_, stored)| stored.decode()).collect();
        Ok(Document::json(200, &form.show_list(resource, objects, metadata, call.now)))
    }

    /// Where a list begins, and at which version.
    fn page(&self, call: &Call<'_>, namespace: Option<&str>) -> Result<Page, Refusal> {
        let resource = call.target.resource;
        let now = self.state.revision();
        let all = |revision, after: Option<&Key>| self.state.list_at(resource, namespace, revision, after);
        let token = call.query.text("continue");
        if !token.is_empty() {
            let Continue { revision, after } = Continue::decode(resource, token)?;
            let objects = all(revision, Some(&after)).map_err(|_| {
                Refusal::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                )
            })?;
            return Ok(Page { revision, objects });
        }
        let asked = version(call)?;
        let exact = call.query.text("resourceVersionMatch") == "Exact";
        let revision = match asked {
            Some(revision) if revision > now => return Err(too_large(revision, now)),
            Some(revision) if exact && revision > 0 => revision,
            Some(_) | None => now,
        };
        let objects = all(revision, None)
            .map_err(|_| Refusal::expired("The resourceVersion for the provided list is too old."))?;
        Ok(Page { revision, objects })
    }

    pub(super) fn watch(&self, call: &Call<'_>) -> Result<Answer, Refusal> {
        check_options(call)?;
        let resource = call.target.resource;
        let asked = version(call)?;
        let initial = call.query.get("sendInitialEvents").map(|_| call.query.flag("sendInitialEvents"));
        let from = match (initial, asked) {
            (Some(true), _) => From::EverythingWithEnd,
            (Some(false), None | Some(0)) => From::Version(self.state.revision()),
            (None, None | Some(0)) => From::Everything,
            (_, Some(revision)) if revision > self.state.revision() => {
                return Err(too_large(revision, self.state.revision()));
            }
            (_, Some(revision)) => From::Version(revision),
        };
        let lasts = call.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let lasts = lasts.map_or(WATCH_LASTS, SignedDuration::from_secs);
        let mut selection = Selection::of(resource, &call.query)?;
        if !call.target.name.is_empty() {
            selection = selection.and_name(&call.target.name);
        }
        let beginning = Beginning {
            namespace: call.target.namespace.clone(),
            selection,
            form: form(call)?,
            from,
            bookmarks: call.query.flag("allowWatchBookmarks"),
            ends: call.now.checked_add(lasts).unwrap_or(jiff::Timestamp::MAX),
        };
        let watch = Watch::begin(&self.state, resource, beginning, call.now)?;
        Ok(Answer::Watch(Box::new(watch)))
    }
}

struct Page {
    revision: u64,
    objects: Vec<(Key, Arc<Stored>)>,
}

/// Where the next page of a list begins.
struct Continue {
    revision: u64,
    after: Key,
}

impl Continue {
    fn encode(&self) -> String {
        use base64::Engine as _;
        let token = json!({
            "v": "meta.k8s.io/v1",
            "rv": self.revision,
            "start": format!("{}/{}", self.after.namespace, self.after.name),
        });
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(resource: &'static crate::resources::Resource, token: &str) -> Result<Continue, Refusal> {
        use base64::{DecodeError, Engine as _};
        let because = |why: String| {
            Refusal::bad_request(format!("invalid continue token: continue key is not valid{why}"))
        };
        let invalid = || because(String::new());
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let token = engine.decode(token).map_err(|error| {
            let at = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => token.len().saturating_sub(1),
            };
            because(format!(": illegal base64 data at input byte {at}"))
        })?;
        let token = schema::untyped(&token).map_err(|why| because(format!(": {why}")))?;
        let start = token["start"].as_str().ok_or_else(invalid)?;
        let (namespace, name) = start.split_once('/').ok_or_else(invalid)?;
        let revision = token["rv"].as_u64().ok_or_else(invalid)?;
        Ok(Continue { revision, after: Key::new(resource, namespace, name) })
    }
}

/// What a client wants objects in.
pub(crate) fn form(call: &Call<'_>) -> Result<Form, Refusal> {
    // The first that can be had counts.
    for clause in accept::clauses(&call.request.accept).iter().filter(|clause| clause.takes_json()) {
        let Some(Conversion { kind, group, version }) = clause.conversion() else { return Ok(Form::Whole) };
        if (group, version) != ("meta.k8s.io", "v1") {
            continue;
        }
        let is_list = matches!(call.verb, Verb::List | Verb::DeleteCollection);
        match kind {
            "Table" => return include_object(call).map(Form::Table),
            "PartialObjectMetadata" if !is_list => return Ok(Form::Metadata),
            "PartialObjectMetadataList" if is_list => return Ok(Form::Metadata),
            // Upstream cannot make a list of one event, and sends it as it is.
            "PartialObjectMetadataList" if call.verb == Verb::Watch => return Ok(Form::Whole),
            "PartialObjectMetadata" => return Err(not_convertible(call, kind, "a list", "List")),
            "PartialObjectMetadataList" => return Err(not_convertible(call, kind, "not a list", "")),
            _ => {}
        }
    }
    Err(Refusal::not_acceptable(&["application/json", "application/yaml"]))
}

fn include_object(call: &Call<'_>) -> Result<IncludeObject, Refusal> {
    match call.query.text("includeObject") {
        "None" => Ok(IncludeObject::None),
        "Object" => Ok(IncludeObject::Object),
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        other => Err(Refusal::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
        ))),
    }
}

/// Upstream names the type that it has in Go.
fn not_convertible(call: &Call<'_>, wanted: &str, is: &str, suffix: &str) -> Refusal {
    let resource = call.target.resource.storage();
    let package = match resource.group.split('.').next().unwrap_or_default() {
        "" => "core",
        package => package,
    };
    let message = format!(
        "you requested {wanted}, but the requested object is {is} (*{package}.{}{suffix})",
        resource.kind
    );
    Refusal::new(406, "NotAcceptable", message)
}

fn version(call: &Call<'_>) -> Result<Option<u64>, Refusal> {
    let text = call.query.text("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let why = format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        );
        match call.verb {
            // Upstream did not foresee it here.
            Verb::Watch => Refusal::new(500, "", why),
            _ => Refusal::bad_request(format!("invalid resource version: {why}")),
        }
    })
}

fn too_large(asked: u64, now: u64) -> Refusal {
    let mut refusal =
        Refusal::new(504, "Timeout", format!("Too large resource version: {asked}, current: {now}"));
    refusal.retry_after = Some(1);
    refusal.details = Some(json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }));
    refusal
}

/// Which options go together.
fn check_options(call: &Call<'_>) -> Result<(), Refusal> {
    const MATCH: &str = "resourceVersionMatch";
    let (query, is_watch) = (&call.query, call.verb == Verb::Watch);
    let (wanted, has_initial) = (query.text(MATCH), query.get("sendInitialEvents").is_some());
    let mut errors = Errors::default();
    if is_watch && has_initial && wanted != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.forbidden(MATCH, why);
    }
    if !wanted.is_empty() {
        if is_watch && !has_initial {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.forbidden(MATCH, why);
        }
        if !is_watch && query.text("resourceVersion").is_empty() {
            errors.forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        let supported: &[&str] = if is_watch { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
        if is_watch && !supported.contains(&wanted) {
            errors.not_supported(MATCH, wanted, supported);
        }
        if !query.text("continue").is_empty() {
            errors.forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided");
        }
        if !is_watch && !supported.contains(&wanted) {
            errors.not_supported(MATCH, wanted, supported);
        }
        if !is_watch && wanted == "Exact" && query.text("resourceVersion") == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.forbidden(MATCH, why);
        }
    }
    if !is_watch && has_initial {
        errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Refusal::invalid_kind("meta.k8s.io", "ListOptions", "", &errors.into_list())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::request::{Request, Target};
    use crate::state::State;
    use crate::who::User;

    fn request(path: &str, query: &str, accept: &str) -> Request {
        Request {
            method: http::Method::GET,
            path: path.to_owned(),
            query: query.to_owned(),
            accept: accept.to_owned(),
            content_type: String::new(),
            user: User::new("admin", &["system:masters"]),
            body: Vec::new(),
        }
    }

    fn form_of(path: &str, query: &str, accept: &str) -> Result<Form, String> {
        let request = request(path, query, accept);
        let target = Target::of(path).unwrap();
        let query = crate::request::Query::parse(query);
        let verb = target.verb(&request.method, &query).unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let call = Call { request: &request, target, query, verb, now, warnings: Vec::new() };
        form(&call).map_err(|refusal| format!("{} {}", refusal.code, refusal.message))
    }

    #[test]
    fn the_form_is_the_first_that_is_wanted_and_can_be_had() {
        const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        const ONE: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let (all, one) = ("/api/v1/pods", "/api/v1/namespaces/a/pods/b");
        let table = |include| Ok(Form::Table(include));
        for (path, query, accept, expected) in [
            (all, "", "", Ok(Form::Whole)),
            (all, "", "application/json;q=0.1,*/*", Ok(Form::Whole)),
            (all, "", KUBECTL, table(IncludeObject::Metadata)),
            (one, "includeObject=Object", KUBECTL, table(IncludeObject::Object)),
            (all, "includeObject=None&watch=true", KUBECTL, table(IncludeObject::None)),
            (
                all,
                "includeObject=Some",
                KUBECTL,
                Err(
                    "400 Unable to convert to Table as requested: includeObject: Invalid value: \"Some\": must be 'Metadata', 'Object', 'None', or empty",
                ),
            ),
            (one, "", ONE, Ok(Form::Metadata)),
            (all, "watch=true", ONE, Ok(Form::Metadata)),
            (all, "", LIST, Ok(Form::Metadata)),
            (
                all,
                "",
                ONE,
                Err(
                    "406 you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)",
                ),
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/x",
                "",
                LIST,
                Err(
                    "406 you requested PartialObjectMetadataList, but the requested object is not a list (*rbac.ClusterRole)",
                ),
            ),
            (
                all,
                "",
                "text/html",
                Err("406 only the following media types are accepted: application/json, application/yaml"),
            ),
        ] {
            assert_eq!(
                form_of(path, query, accept),
                expected.map_err(str::to_owned),
                "{path}?{query} {accept}"
            );
        }
    }

    #[test]
    fn a_watch_tells_its_columns_once_and_its_bookmarks_as_rows() {
        use crate::watch::Next;
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        let map = |name: &str| json!({"metadata": {"name": name, "namespace": "a"}});
        for name in ["one", "two"] {
            cluster.state.put(&crate::resources::CONFIG_MAPS, map(name));
        }
        let request = request(
            "/api/v1/configmaps",
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&includeObject=None",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
        );
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let Answer::Watch(mut watch) = cluster.handle(&request, now) else { panic!("no watch") };
        let mut next = || match watch.next(&cluster.state, 2, now) {
            Next::Line(line) => serde_json::from_slice::<Value>(&line).unwrap(),
            other => panic!("{other:?}"),
        };
        let events = [next(), next(), next()];
        let columns = events.each_ref().map(|event| event["object"]["columnDefinitions"].is_array());
        assert_eq!(columns, [true, false, false]);
        let types = events.each_ref().map(|event| event["type"].as_str().unwrap());
        assert_eq!(types, ["ADDED", "ADDED", "BOOKMARK"]);
        let cells = events.each_ref().map(|event| event["object"]["rows"][0]["cells"].clone());
        assert_eq!(
            cells,
            [json!(["one", 0, "<unknown>"]), json!(["two", 0, "<unknown>"]), json!(["", 0, "<unknown>"]),]
        );
        let end = &events[2]["object"]["rows"][0]["object"];
        assert_eq!(end["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
}

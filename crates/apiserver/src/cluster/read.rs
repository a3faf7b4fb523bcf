//! Getting, listing and watching.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Call, Cluster};
use crate::answer::{Answer, Document};
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
            return Ok(Document::encoded(200, stored.json.to_vec()));
        }
        self.show(call, 200, stored.decode())
    }

    pub(super) fn list(&self, call: &Call<'_>) -> Result<Document, Refusal> {
        let selection = Selection::of(call.target.resource, &call.query)?;
        let namespace = Some(call.target.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let limit = number(call, "limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
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
                objects.iter().map(|(_, stored)| stored.json.len() + 1).sum::<usize>() + 256,
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
                body.extend_from_slice(&stored.json);
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
        let objects = all(revision, None).map_err(|_| {
            Refusal::expired(format!("The resourceVersion for the provided list is too old."))
        })?;
        Ok(Page { revision, objects })
    }

    pub(super) fn watch(&self, call: &Call<'_>) -> Result<Answer, Refusal> {
        let resource = call.target.resource;
        let asked = version(call)?;
        let initial = call.query.get("sendInitialEvents").map(|_| call.query.flag("sendInitialEvents"));
        if initial == Some(true) && call.query.text("resourceVersionMatch") != "NotOlderThan" {
            return Err(watch_list_needs_match());
        }
        let from = match (initial, asked) {
            (Some(true), _) => From::EverythingWithEnd,
            (Some(false), None | Some(0)) => From::Version(self.state.revision()),
            (None, None | Some(0)) => From::Everything,
            (_, Some(revision)) if revision > self.state.revision() => {
                return Err(too_large(revision, self.state.revision()));
            }
            (_, Some(revision)) => From::Version(revision),
        };
        let lasts = number(call, "timeoutSeconds")?.filter(|seconds| *seconds > 0);
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
        use base64::Engine as _;
        let invalid = || Refusal::bad_request("continue key is not valid");
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let token = engine.decode(token).map_err(|_| invalid())?;
        let token: Value = serde_json::from_slice(&token).map_err(|_| invalid())?;
        let start = token["start"].as_str().ok_or_else(invalid)?;
        let (namespace, name) = start.split_once('/').ok_or_else(invalid)?;
        let revision = token["rv"].as_u64().ok_or_else(invalid)?;
        Ok(Continue { revision, after: Key::new(resource, namespace, name) })
    }
}

/// What a client wants objects in.
pub(crate) fn form(call: &Call<'_>) -> Result<Form, Refusal> {
    let accept = call.request.accept.as_str();
    if accept.is_empty() {
        return Ok(Form::Whole);
    }
    // The first that can be had counts.
    for wanted in accept.split(',') {
        let mut parts = wanted.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "*/*" | "application/*") {
            continue;
        }
        let parameter = |name: &str| {
            let mut all = wanted.split(';').filter_map(|part| part.trim().split_once('='));
            all.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let include = match call.query.text("includeObject") {
            "None" => IncludeObject::None,
            "Object" => IncludeObject::Object,
            _ => IncludeObject::Metadata,
        };
        match (parameter("as"), parameter("g"), parameter("v")) {
            (None, _, _) => return Ok(Form::Whole),
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) => return Ok(Form::Table(include)),
            (
                Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                Some("meta.k8s.io"),
                Some("v1"),
            ) => {
                return Ok(Form::Metadata);
            }
            (Some(_), _, _) => {}
        }
    }
    Err(Refusal::not_acceptable(&["application/json", "application/yaml"]))
}

fn version(call: &Call<'_>) -> Result<Option<u64>, Refusal> {
    let text = call.query.text("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        Refusal::bad_request(format!("resourceVersion: Invalid value: {text:?}: invalid resource version: strconv.ParseUint: parsing {text:?}: invalid syntax"))
    })
}

fn number(call: &Call<'_>, name: &str) -> Result<Option<i64>, Refusal> {
    let text = call.query.text(name);
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| Refusal::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
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

fn watch_list_needs_match() -> Refusal {
    use crablet_api::validate::{ErrorKind, FieldError};
    let error = FieldError {
        path: "resourceVersionMatch".to_owned(),
        kind: ErrorKind::Forbidden,
        value: None,
        detail: "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan".to_owned(),
    };
    Refusal::invalid_kind("meta.k8s.io", "ListOptions", "", &[error])
}

//! Patching objects: the patch is applied to what there is, and the result is an update.

use std::sync::Arc;

use serde_json::Value;

use super::{Call, Cluster, body};
use crate::answer::Document;
use crate::event_conversion;
use crate::object;
use crate::resources::Subresource;
use crate::rules;
use crate::schema::{self, Decoded, Expected, Patch, PatchError};
use crate::state::excerpt::Excerpt;
use crate::status::Refusal;

impl Cluster {
    pub(super) fn patch(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let resource = call.target.resource;
        let media = call.request.content_type.split(';').next().unwrap_or_default().trim();
        if !schema::PATCH_TYPES.contains(&media) {
            return Err(PatchError::UnknownType.refusal());
        }
        let Some(stored) = self.state.get(&call.key()) else {
            return Err(Refusal::not_found(resource, &call.target.name));
        };
        let stored = Arc::clone(stored);
        let api_version = resource.api_version();
        let expected = Expected { schema: resource.schema, api_version: &api_version, kind: resource.kind };
        let validation = body::field_validation(call)?;
        let patch = Patch::read(media, &call.request.body, validation).map_err(|error| error.refusal())?;
        let json = stored.json();
        let (old, spec, decoded) = match patched_status(call, &patch, &expected, &json) {
            Some((Excerpt { object, spec }, decoded)) => (object, Some(spec), decoded),
            None => {
                let old = stored.decode();
                // What is patched is what the client sees, which need not be what is kept.
                let seen = event_conversion::seen(resource, &old);
                let decoded = patch.apply(&expected, &seen).map_err(|error| error.refusal())?;
                drop(seen);
                (old, None, decoded)
            }
        };
        call.warnings.extend(decoded.problems);
        let mut new: Value = decoded.object;
        new["apiVersion"] = api_version.as_str().into();
        new["kind"] = resource.kind.into();
        let new = event_conversion::kept(resource, new);
        if object::name(&new) != call.target.name {
            let why = format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                object::name(&new),
                call.target.name
            );
            return Err(Refusal::bad_request(why));
        }
        let updated = self.replace(call, old, new, spec)?;
        self.show_updated(call, updated)
    }
}

/// A patch of a status, applied to an object that has of its spec only what such a patch is judged by; none if that is
/// not enough. What is refused is told with the whole object.
fn patched_status<'j>(
    call: &Call<'_>,
    patch: &Patch,
    expected: &Expected<'_>,
    json: &'j [u8],
) -> Option<(Excerpt<'j>, Decoded)> {
    let wanted = rules::of(call.target.resource).looked_at_for_status()?;
    if call.target.subresource != Some(Subresource::Status) || patch.touches("spec") {
        return None;
    }
    let excerpt = Excerpt::of(json, wanted)?;
    let decoded = patch.apply(expected, &excerpt.object).ok()?;
    Some((excerpt, decoded))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::answer::Answer;
    use crate::cluster::Settings;
    use crate::request::Request;
    use crate::resources::PODS;
    use crate::state::{Key, State};
    use crate::who::User;

    const POD: &str = "/api/v1/namespaces/default/pods/web-1";

    fn send(cluster: &mut Cluster, method: Method, path: &str, media: &str, body: &Value) -> (u16, String) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            accept: String::new(),
            content_type: media.to_owned(),
            user: User::new("admin", &["system:masters"]),
            body: body.to_string().into_bytes(),
        };
        let Answer::Document(document) = cluster.handle(&request, Timestamp::UNIX_EPOCH) else {
            panic!("{path} is a document")
        };
        (document.code, String::from_utf8(document.body).unwrap())
    }

    /// A cluster with the pod that the benchmarks are about.
    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(Timestamp::UNIX_EPOCH);
        let mut pod: Value = serde_json::from_str(include_str!("../../../api/benches/pod.json")).unwrap();
        pod["metadata"] = json!({"name": "web-1", "labels": {"app": "web"}, "annotations": {"a": "b"}});
        object::remove(&mut pod["spec"], "serviceAccountName");
        object::remove(&mut pod["spec"], "serviceAccount");
        let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": pod["spec"]["nodeName"]}});
        let status = json!({"status": pod["status"]});
        let (json, merge) = ("application/json", "application/merge-patch+json");
        for (method, path, media, body) in [
            (Method::POST, "/api/v1/nodes", json, &node),
            (Method::POST, "/api/v1/namespaces/default/pods", json, &pod),
            (Method::PATCH, &format!("{POD}/status"), merge, &status),
        ] {
            let (code, answer) = send(&mut cluster, method, path, media, body);
            assert!(code < 300, "{path}: {answer}");
        }
        cluster
    }

    /// Patches that are taken, refused, warned of, and that change nothing.
    fn patches() -> Vec<Value> {
        let terminated = json!({"name": "web", "state": {"terminated": {"exitCode": 1}}, "ready": false,
            "restartCount": 0, "image": "i", "imageID": ""});
        let mut running = terminated.clone();
        running["state"] = json!({"running": {}});
        let mut patches = vec![
            json!({}),
            json!({"metadata": {"labels": {"app": "other", "b": null}}}),
            json!({"metadata": {"annotations": null}}),
            json!({"metadata": {"annotations": {"not a name": ""}}}),
            json!({"metadata": {"finalizers": ["example.com/held"]}}),
            json!({"metadata": {"name": "other"}}),
            json!({"metadata": {"uid": "other"}}),
            json!({"metadata": {"resourceVersion": "1"}}),
            json!({"metadata": {"generation": 7, "creationTimestamp": null, "ownerReferences": []}}),
            json!({"x": 1}),
        ];
        patches.extend(
            [
                json!(null),
                json!({}),
                json!({"x": 1, "message": "one"}),
                json!({"message": "two \"}}\\ é"}),
                json!({"message": 1}),
                json!({"phase": "Succeeded", "reason": ""}),
                json!({"containerStatuses": [terminated]}),
                json!({"containerStatuses": [running]}),
                json!({"initContainerStatuses": [terminated]}),
                json!({"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}, {"ip": "10.0.0.8"}]}),
                json!({"nominatedNodeName": "n"}),
                json!({"resourceClaimStatuses": [{"name": "claim", "resourceClaimName": "c"}]}),
                json!({"qosClass": "BestEffort"}),
                json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "not a name"}]}),
            ]
            .map(|status| json!({"status": status})),
        );
        patches
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_status_is_patched_the_same_with_and_without_the_spec(
            turns in proptest::collection::vec((0..patches().len(), any::<bool>(), 0..4_usize), 1..12)
        ) {
            let (mut short, mut long) = (cluster(), cluster());
            let patches = patches();
            for (index, is_strategic, query) in turns {
                let query = ["", "?dryRun=All", "?fieldValidation=Strict", ""][query];
                let path = format!("{POD}/status{query}");
                let media = match is_strategic {
                    true => "application/strategic-merge-patch+json",
                    false => "application/merge-patch+json",
                };
                let patch = &patches[index];
                // A patch that touches the spec, though it leaves it as it is, goes the long way.
                let mut whole = patch.clone();
                whole["spec"] = json!({});
                let answer = send(&mut short, Method::PATCH, &path, media, patch);
                let mut expected = send(&mut long, Method::PATCH, &path, media, &whole);
                // It is told what it said.
                if is_strategic && answer.0 == 422 {
                    expected.1 = expected.1.replacen("map[spec:map[] ", "map[", 1).replacen("spec:map[] ", "", 1);
                }
                prop_assert_eq!(answer, expected, "{}", patch);
                let key = Key::new(&PODS, "default", "web-1");
                prop_assert_eq!(short.state.get(&key), long.state.get(&key), "{}", patch);
            }
        }
    }
}

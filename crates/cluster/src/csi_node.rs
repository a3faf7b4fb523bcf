//! What the cluster knows of the node's CSI drivers: their entries in its `CSINode`, and on the node's object what they
//! call it and where it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Node;
use crablet_api::meta::DeleteOptions;
use crablet_api::storage::{CsiNode, CsiNodeDriver, VolumeNodeResources};
use crablet_client::{Client, Error, PatchType};
use crablet_csi::NodeInfo;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::node::Identity;
use crate::node_registration::{MIGRATED_ANNOTATION, csi_node};
use crate::retry::Backoff;

/// What drivers call the node, by their names, as a JSON text.
const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What the drivers on the node say of it, by their names.
pub type Drivers = BTreeMap<String, NodeInfo>;

/// Tells the cluster of the node's drivers.
pub(crate) struct CsiNodeKeeper {
    pub(crate) client: Client,
    pub(crate) node: watch::Receiver<Option<Identity>>,
    pub(crate) drivers: watch::Receiver<Drivers>,
}

impl CsiNodeKeeper {
    /// Works until it is dropped. What a driver before this agent's start said stays until it comes again.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        let mut told = BTreeSet::new();
        loop {
            let drivers = self.drivers.borrow_and_update().clone();
            let node = self.node.borrow_and_update().clone();
            if let Some(node) = node
                && (!drivers.is_empty() || !told.is_empty())
            {
                let gone: BTreeSet<&String> =
                    told.iter().filter(|name| !drivers.contains_key(*name)).collect();
                match self.tell(&node, &drivers, &gone).await {
                    Ok(()) => {
                        told = drivers.into_keys().collect();
                        backoff.reset();
                    }
                    Err(error) => {
                        let wait = backoff.after(&error);
                        warn!(%error, ?wait, "Cannot tell the API server of the node's CSI drivers; trying again");
                        sleep(wait).await;
                        continue;
                    }
                }
            }
            tokio::select! {
                Ok(()) = self.drivers.changed() => {}
                Ok(()) = self.node.changed() => {}
                else => return,
            }
        }
    }

    /// Tells of all drivers at once, or, where that is refused, of each by itself: what one says that cannot be keeps out no
    /// other.
    async fn tell(&self, node: &Identity, drivers: &Drivers, gone: &BTreeSet<&String>) -> Result<(), Error> {
        match self.write(node, drivers, gone).await {
            Err(error) if error.is_invalid() => {}
            done => return done,
        }
        for (name, info) in drivers {
            match self.write(node, &Drivers::from([(name.clone(), info.clone())]), gone).await {
                Err(error) if error.is_invalid() => {
                    warn!(driver = name, %error, "The API server refuses what a CSI driver says of the node");
                }
                done => done?,
            }
        }
        Ok(())
    }

    async fn write(&self, node: &Identity, drivers: &Drivers, gone: &BTreeSet<&String>) -> Result<(), Error> {
        let at_server = self.client.get::<Node>("", &node.name).await?;
        let (drivers, elsewhere): (Drivers, Drivers) =
            drivers.clone().into_iter().partition(|(_, info)| collision(&at_server, info).is_none());
        for (name, info) in &elsewhere {
            let why = collision(&at_server, info).unwrap_or_default();
            warn!(driver = name, why, "A CSI driver says that the node is elsewhere than its labels do");
        }
        let drivers = &drivers;
        if let Some(patch) = node_patch(&at_server, drivers, gone) {
            let kind = PatchType::StrategicMerge;
            self.client.patch::<Node>("", &node.name, "/status", kind, patch.to_string().into()).await?;
        }
        let mut written = ensure_csi_node(&self.client, node).await?;
        let wanted = entries(&written.spec.drivers, drivers, gone);
        for entries in [lasting(&written.spec.drivers, &wanted), wanted] {
            if written.spec.drivers != entries {
                written.spec.drivers = entries;
                written = self.client.replace(&written).await?;
            }
        }
        Ok(())
    }
}

/// Sees to it that the node's `CSINode` is there, is this node's and not that of an earlier one of its name, which would
/// go with it, and says what the node does without drivers of its own.
pub(crate) async fn ensure_csi_node(client: &Client, node: &Identity) -> Result<CsiNode, Error> {
    let wanted = csi_node(node);
    let mut found = match client.get::<CsiNode>("", &node.name).await {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return client.create(&wanted).await,
        Err(error) => return Err(error),
    };
    let mut owners = found.metadata.owner_references.iter();
    if !owners.any(|owner| owner.kind == "Node" && owner.name == node.name && owner.uid == node.uid) {
        info!(node = %node.name, "The CSINode is that of another node; making it anew");
        match client.delete::<CsiNode>("", &node.name, &DeleteOptions::now(&found.metadata.uid)).await {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(()) | Err(_) => return client.create(&wanted).await,
        }
    }
    let migrated = wanted.metadata.annotations.get(MIGRATED_ANNOTATION);
    match migrated.filter(|migrated| found.metadata.annotations.get(MIGRATED_ANNOTATION) != Some(migrated)) {
        Some(migrated) => {
            found.metadata.annotations.insert(MIGRATED_ANNOTATION, migrated.clone());
            client.replace(&found).await
        }
        None => Ok(found),
    }
}

/// The entries that are there, with those of the node's drivers as they are now, and without those of who went.
fn entries(known: &[CsiNodeDriver], drivers: &Drivers, gone: &BTreeSet<&String>) -> Box<[CsiNodeDriver]> {
    let mut entries: Vec<CsiNodeDriver> =
        known.iter().filter(|entry| !gone.contains(&entry.name.to_string())).cloned().collect();
    for (name, driver) in drivers {
        let entry = entry(name, driver);
        match entries.iter_mut().find(|known| *known.name == **name) {
            Some(known) => *known = entry,
            None => entries.push(entry),
        }
    }
    entries.into()
}

/// The entries that can become those that are wanted. What a driver calls the node, and by which keys it says where that
/// is, does not change in an entry: one that says something else goes first.
fn lasting(known: &[CsiNodeDriver], wanted: &[CsiNodeDriver]) -> Box<[CsiNodeDriver]> {
    let is_same = |one: &CsiNodeDriver, other: &CsiNodeDriver| {
        (&one.node_id, &one.topology_keys) == (&other.node_id, &other.topology_keys)
    };
    let lasts = |known: &&CsiNodeDriver| {
        wanted.iter().find(|wanted| wanted.name == known.name).is_none_or(|wanted| is_same(known, wanted))
    };
    known.iter().filter(lasts).cloned().collect()
}

fn entry(name: &str, info: &NodeInfo) -> CsiNodeDriver {
    let topology = info.accessible_topology.iter().flat_map(BTreeMap::keys);
    let count = i32::try_from(info.max_volumes_per_node.max(0)).unwrap_or(i32::MAX);
    CsiNodeDriver {
        name: name.into(),
        node_id: info.node_id.as_str().into(),
        topology_keys: topology.map(|key| Text::from(key.as_str())).collect(),
        allocatable: (count > 0).then_some(VolumeNodeResources { count: Some(count) }),
    }
}

/// What a driver says of where the node is that a label of the node denies, in upstream's words.
fn collision(node: &Node, info: &NodeInfo) -> Option<String> {
    info.collision(|key| node.metadata.labels.get(key).map(|label| &**label))
}

/// What the node's object lacks. No driver says anything else than a label.
fn node_patch(node: &Node, drivers: &Drivers, gone: &BTreeSet<&String>) -> Option<serde_json::Value> {
    let metadata = &node.metadata;
    let known = metadata.annotations.get(NODE_ID);
    let mut ids: BTreeMap<String, String> =
        known.and_then(|known| serde_json::from_str(known).ok()).unwrap_or_default();
    ids.retain(|name, _| !gone.contains(name));
    let mut labels = BTreeMap::new();
    for (name, driver) in drivers {
        ids.insert(name.clone(), driver.node_id.clone());
        for (key, value) in driver.accessible_topology.iter().flatten() {
            if metadata.labels.get(key).is_none() {
                labels.insert(key, value);
            }
        }
    }
    let ids = (!ids.is_empty()).then(|| json!(ids).to_string());
    if labels.is_empty() && ids.as_deref() == known.map(|known| &**known) {
        return None;
    }
    Some(json!({"metadata": {"labels": labels, "annotations": {NODE_ID: ids}}}))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use crablet_client::{Body, Lane, Transport, TransportError};
    use http::{Request, Response, StatusCode};
    use hyper::body::Bytes;
    use serde_json::Value;

    use super::*;

    /// A server with a node and its `CSINode`, which refuses drivers called `bad`, and what changes in an entry beside how
    /// many volumes the node can have.
    #[derive(Clone, Default)]
    struct Refusing(Arc<Mutex<Value>>);

    #[async_trait]
    impl Transport for Refusing {
        async fn send(&self, request: Request<Bytes>, _: Lane) -> Result<Response<Body>, TransportError> {
            let mut drivers = self.0.lock().unwrap();
            let is_csi_node = request.uri().path().contains("csinodes");
            if request.method() == "PUT" {
                let body: Value = serde_json::from_slice(request.body()).unwrap();
                let body = &body["spec"]["drivers"];
                let changes = |new: &Value| {
                    let of_name = |old: &&Value| old["name"] == new["name"];
                    let old = drivers.as_array().unwrap().iter().find(of_name);
                    let keys =
                        |driver: &Value| driver["topologyKeys"].as_array().cloned().unwrap_or_default();
                    let field = |driver: &Value| (driver["nodeID"].clone(), keys(driver));
                    old.is_some_and(|old| field(old) != field(new))
                };
                if body.as_array().unwrap().iter().any(|driver| driver["name"] == "bad" || changes(driver)) {
                    let status =
                        json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422});
                    return Ok(answer(StatusCode::UNPROCESSABLE_ENTITY, &status));
                }
                *drivers = body.clone();
            }
            let identity = Identity { name: "node".into(), uid: "u".into() };
            let object = match is_csi_node {
                true => {
                    let mut object = serde_json::to_value(csi_node(&identity)).unwrap();
                    object["spec"]["drivers"] = drivers.clone();
                    object
                }
                false => json!({"metadata": {"name": "node", "uid": "u", "labels": {"zone": "z1"}}}),
            };
            Ok(answer(StatusCode::OK, &object))
        }
    }

    fn answer(code: StatusCode, object: &Value) -> Response<Body> {
        let body: Body = Box::pin(futures_util::stream::iter([Ok(Bytes::from(object.to_string()))]));
        Response::builder().status(code).body(body).unwrap()
    }

    #[tokio::test]
    async fn what_one_driver_says_that_cannot_be_keeps_out_no_other() {
        let server = Refusing::default();
        *server.0.lock().unwrap() = json!([]);
        let mut said = drivers(&["a", "bad", "c", "elsewhere"]);
        said.get_mut("elsewhere").unwrap().accessible_topology =
            Some([("zone".to_owned(), "z2".to_owned())].into());
        let (_, node) = watch::channel(None);
        let (_, told) = watch::channel(said.clone());
        let client = Client::new(Arc::new(server.clone()), "test");
        let keeper = CsiNodeKeeper { client, node, drivers: told };
        let identity = Identity { name: "node".into(), uid: "u".into() };
        keeper.tell(&identity, &said, &BTreeSet::new()).await.unwrap();
        let names = server
            .0
            .lock()
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|driver| driver["name"].clone())
            .collect::<Vec<_>>();
        assert_eq!(names, ["a", "c"]);
    }

    #[tokio::test]
    async fn an_entry_of_a_driver_that_says_something_else_now_is_replaced() {
        let server = Refusing::default();
        let old = json!({"name": "a", "nodeID": "old", "topologyKeys": ["zone"]});
        let moved = json!({"name": "b", "nodeID": "n", "topologyKeys": []});
        let same = json!({"name": "c", "nodeID": "n", "topologyKeys": ["zone"]});
        let other = json!({"name": "d", "nodeID": "d", "topologyKeys": null});
        *server.0.lock().unwrap() = json!([old, moved, same, other]);
        let said = drivers(&["a", "b", "c"]);
        let (_, node) = watch::channel(None);
        let (_, told) = watch::channel(said.clone());
        let client = Client::new(Arc::new(server.clone()), "test");
        let keeper = CsiNodeKeeper { client, node, drivers: told };
        let identity = Identity { name: "node".into(), uid: "u".into() };
        keeper.tell(&identity, &said, &BTreeSet::new()).await.unwrap();
        let now = server.0.lock().unwrap().clone();
        let now: Vec<CsiNodeDriver> = serde_json::from_value(now).unwrap();
        let find = |name: &str| now.iter().find(|entry| *entry.name == *name).unwrap();
        for name in ["a", "b", "c"] {
            assert_eq!(*find(name), entry(name, &said[name]));
        }
        assert_eq!((now.len(), &*find("d").node_id), (4, "d"));
    }

    fn drivers(names: &[&str]) -> Drivers {
        let topology = BTreeMap::from([("zone".to_owned(), "z1".to_owned())]);
        let info = NodeInfo {
            node_id: "n".to_owned(),
            max_volumes_per_node: 8,
            accessible_topology: Some(topology),
        };
        names.iter().map(|name| ((*name).to_owned(), info.clone())).collect()
    }

    #[test]
    fn entries_of_others_stay_and_those_of_who_went_go() {
        let other = CsiNodeDriver { name: "other".into(), ..CsiNodeDriver::default() };
        let known = [other.clone(), entry("old", &NodeInfo::default()), entry("a", &NodeInfo::default())];
        let gone = "old".to_owned();
        let found = entries(&known, &drivers(&["a", "b"]), &BTreeSet::from([&gone]));
        let names: Vec<&str> = found.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, ["other", "a", "b"]);
        assert_eq!(found[0], other);
        let a = &found[1];
        assert_eq!((&*a.node_id, &*a.topology_keys[0]), ("n", "zone"));
        assert_eq!(a.allocatable.as_ref().unwrap().count, Some(8));
    }

    #[test]
    fn a_limit_below_zero_is_none_and_one_beyond_what_can_be_said_is_the_largest() {
        for (limit, expected) in [(0, None), (i64::MIN, None), (-1, None), (i64::MAX, Some(i32::MAX))] {
            let info = NodeInfo { max_volumes_per_node: limit, ..NodeInfo::default() };
            let count = entry("a", &info).allocatable.and_then(|allocatable| allocatable.count);
            assert_eq!(count, expected, "{limit}");
        }
    }

    #[test]
    fn the_node_says_what_drivers_call_it_and_where_it_is() {
        let mut node = Node::default();
        let none = BTreeSet::new();
        let patch = node_patch(&node, &drivers(&["a"]), &none).unwrap();
        assert_eq!(patch["metadata"]["labels"]["zone"], "z1");
        assert_eq!(patch["metadata"]["annotations"][NODE_ID], r#"{"a":"n"}"#);
        node.metadata.labels.insert("zone", "z1".into());
        node.metadata.annotations.insert(NODE_ID, r#"{"a":"n","b":"m"}"#.into());
        assert_eq!(node_patch(&node, &drivers(&["a"]), &none), None);
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let patch = node_patch(&node, &Drivers::new(), &BTreeSet::from([&a, &b])).unwrap();
        assert!(patch["metadata"]["annotations"][NODE_ID].is_null());
    }
}

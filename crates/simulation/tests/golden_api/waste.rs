//! Pods of all kinds at an API server, from their creation to their end, and whether a request was made in vain.

use std::collections::BTreeSet;
use std::time::Duration;

use crablet_cri_sim::Image;
use serde_json::{Value as Json, json};

use crate::cluster::{Cluster, Pace};
use crate::compare::{directory, read, recordings};
use crate::request;
use crate::said::Said;
use crate::words::{HOST_IP, NODE};

/// How long a pod is left alone before it is deleted, and then until it must be gone.
const LIFE: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(40);

#[test]
fn no_request_is_made_in_vain_for_pods_of_all_kinds() {
    let directory = directory();
    let objects = read(&directory.join("_objects.json"));
    let mut problems = Vec::new();
    for path in recordings(&directory) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let pod = &read(&path)["pod"];
        // The simulated runtime makes what is mounted of the machine, and this one is real.
        let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        if volumes.any(|volume| volume.get("hostPath").is_some()) {
            continue;
        }
        let said = live(pod, &objects);
        problems.extend(said.vain.iter().chain(&said.refused).map(|what| format!("{name}: {what}")));
        // One that is over when it is deleted, the server does not wait for.
        if said.deleted.as_array().unwrap().len() > 1 {
            problems.push(format!("{name}: {}", said.deleted));
        }
    }
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
}

fn live(pod: &Json, objects: &Json) -> Said {
    let text = pod.to_string().replace("<node>", NODE).replace("<rnd>", "x7k2p").replace("<hostIP>", HOST_IP);
    let mut pod: Json = serde_json::from_str(&text).unwrap();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"].as_object_mut().unwrap().remove("uid");
    let lists = ["initContainers", "containers"].into_iter().map(|list| &pod["spec"][list]);
    let containers = lists.flat_map(|list| list.as_array().into_iter().flatten());
    let names: BTreeSet<&str> = containers.filter_map(|container| container["image"].as_str()).collect();
    let images: Vec<Image> =
        names.into_iter().map(|name| Image::new(name).cmd(["sh"]).running_anything()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut cluster = Cluster::with_images(Pace::AtOnce, images).await;
        cluster.start().await;
        let namespace = pod["metadata"]["namespace"].as_str().unwrap().to_owned();
        cluster.create_namespace(&namespace).await;
        for object in objects["items"].as_array().unwrap() {
            cluster.post(object).await;
        }
        cluster.server.take_asked();
        cluster.post(&pod).await;
        tokio::time::sleep(LIFE).await;
        let name = pod["metadata"]["name"].as_str().unwrap();
        cluster.delete_in(&namespace, name, None).await;
        tokio::time::sleep(END).await;
        assert!(!cluster.has_pod(&namespace, name).await, "{name} is still there");
        Said::from(&request::ours(&cluster.server.take_asked()))
    })
}

use crablet_api::Gate;
use crablet_api::testing::pod_yaml;

use super::*;
use crate::translate::testing::node;

const POD: &str = "metadata: {name: p, namespace: ns, uid: u}
spec:
  enableServiceLinks: true
  initContainers: [{name: init}]
  containers:
  - name: c
    resources: {requests: {cpu: 250m}}
  - name: other
    resources: {limits: {cpu: 3}}
";

fn config(json: &str) -> ConfigMap {
    serde_json::from_str(json).unwrap()
}

fn pod(env: &str) -> Pod {
    let mut pod = pod_yaml(POD);
    let parsed = pod_yaml(&format!("metadata: {{name: x}}\nspec: {{containers: [{{name: c, {env}}}]}}"));
    pod.spec.containers[0].env = parsed.spec.containers[0].env.clone();
    pod.spec.containers[0].env_from = parsed.spec.containers[0].env_from.clone();
    pod
}

fn made_on(node: &NodeContext, pod: &Pod) -> Result<Environment, ContainerRefusal> {
    let map = config(r#"{"data":{"one":"1","dotted.key":"d"},"binaryData":{"bin":"AAEC"}}"#);
    let map2 = config(r#"{"data":{"one":"eins"}}"#);
    let secret: Secret = serde_json::from_str(r#"{"data":{"user":"YWRtaW4=","raw":"/w=="}}"#).unwrap();
    let objects = Objects {
        config_maps: [("cm", Ok(&map)), ("cm2", Ok(&map2)), ("away", Err(Unavailable::NoClient))].into(),
        secrets: [("sec", Ok(&secret)), ("odd", Err(Unavailable::Other("the server is on fire".into())))]
            .into(),
    };
    let service: Service = serde_json::from_str(
        r#"{"metadata":{"namespace":"ns","name":"db"},"spec":{"clusterIP":"10.0.0.9","ports":[{"port":5432}]}}"#,
    )
    .unwrap();
    Environment::of_container(&EnvironmentInput {
        pod,
        container: &pod.spec.containers[0],
        node,
        pod_ips: &["10.0.0.7".parse().unwrap()],
        services: &[&service],
        services_read: true,
        objects: &objects,
        files: &[
            EnvFile { volume: "v", path: "env", host_path: "/host/env", content: Some("K='v'\n") },
            EnvFile { volume: "v", path: "bad", host_path: "/host/bad", content: Some("K=v\n") },
            EnvFile { volume: "v", path: "gone", host_path: "/host/gone", content: None },
        ],
        granted: &[("DEVICE".to_owned(), "gpu0".to_owned()), ("OWN".to_owned(), "device".to_owned())],
    })
}

/// The variables without those of services and devices, or what was refused.
fn made(env: &str) -> String {
    match made_on(&node(), &pod(env)) {
        Err(refusal) => refusal.to_string(),
        Ok(environment) => environment
            .variables()
            .iter()
            .filter(|variable| !variable.key.starts_with("DB_") && variable.value != b"gpu0")
            .filter(|variable| variable.value != b"device")
            .map(|variable| format!("{}={}", variable.key, String::from_utf8_lossy(&variable.value)))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

#[test]
fn values_are_expanded_by_what_stands_before_them() {
    assert_eq!(
        made(
            "env: [{name: A, value: a}, {name: B, value: $(A)-$(DB_SERVICE_HOST)-$(C)-$$(A)}, {name: C, value: c}]"
        ),
        "A=a B=a-10.0.0.9-$(C)-$(A) C=c"
    );
    assert_eq!(made("env: [{name: A, value: x}, {name: A, value: $(A)y}]"), "A=xy");
    assert_eq!(made("env: [{name: EMPTY}, {name: B, value: '[$(EMPTY)]'}]"), "B=[] EMPTY=");
    assert_eq!(made("env: [{name: A, value: $(DEVICE)}]"), "A=$(DEVICE)");
}

#[test]
fn a_variable_of_the_container_replaces_one_of_a_service() {
    let environment = made_on(&node(), &pod("env: [{name: DB_SERVICE_HOST, value: mine}]")).unwrap();
    let hosts: Vec<_> = environment.variables().iter().filter(|one| one.key == "DB_SERVICE_HOST").collect();
    assert_eq!((hosts.len(), hosts[0].value.as_slice()), (1, b"mine".as_slice()));
    assert_eq!(environment.get("DB_SERVICE_PORT"), Some(b"5432".as_slice()));
}

#[test]
fn whole_objects_become_variables_and_later_ones_win() {
    assert_eq!(made("envFrom: [{configMapRef: {name: cm}}]"), "dotted.key=d one=1");
    assert_eq!(
        made(
            "envFrom: [{configMapRef: {name: cm}}, {configMapRef: {name: cm2}}, {prefix: P_, secretRef: {name: sec}}]"
        ),
        "P_raw=\u{fffd} P_user=admin dotted.key=d one=eins"
    );
    assert_eq!(
        made("envFrom: [{configMapRef: {name: cm}}], env: [{name: one, value: '$(one)!'}]"),
        "dotted.key=d one=1!"
    );
    assert_eq!(
        made(
            "envFrom: [{configMapRef: {name: none, optional: true}}, {secretRef: {name: none, optional: true}}]"
        ),
        ""
    );
    assert_eq!(made("envFrom: [{configMapRef: {name: none}}]"), "configmap \"none\" not found");
    assert_eq!(made("envFrom: [{secretRef: {name: none}}]"), "secret \"none\" not found");
}

#[test]
fn single_keys_become_variables() {
    let map = |name: &str, key: &str, rest: &str| {
        made(&format!(
            "env: [{{name: A, valueFrom: {{configMapKeyRef: {{name: {name}, key: {key}{rest}}}}}}}]"
        ))
    };
    let secret = |name: &str, key: &str, rest: &str| {
        made(&format!("env: [{{name: A, valueFrom: {{secretKeyRef: {{name: {name}, key: {key}{rest}}}}}}}]"))
    };
    assert_eq!(map("cm", "one", ""), "A=1");
    assert_eq!(map("cm", "bin", ""), "couldn't find key bin in ConfigMap ns/cm");
    assert_eq!(map("cm", "none", ", optional: true"), "");
    assert_eq!(map("none", "one", ", optional: true"), "");
    assert_eq!(map("none", "one", ", optional: false"), "configmap \"none\" not found");
    assert_eq!(
        map("away", "one", ", optional: true"),
        "couldn't get configMap ns/away, no kubeClient defined"
    );
    assert_eq!(secret("sec", "user", ""), "A=admin");
    assert_eq!(secret("sec", "none", ""), "couldn't find key none in Secret ns/sec");
    assert_eq!(secret("sec", "none", ", optional: true"), "");
    assert_eq!(secret("none", "user", ", optional: true"), "");
    assert_eq!(secret("none", "user", ""), "secret \"none\" not found");
    assert_eq!(secret("odd", "user", ", optional: true"), "the server is on fire");
}

#[test]
fn fields_and_resources_become_variables() {
    let resource = |name: &str, rest: &str| {
        made(&format!("env: [{{name: A, valueFrom: {{resourceFieldRef: {{resource: {name}{rest}}}}}}}]"))
    };
    assert_eq!(
        made(
            "env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}, {name: B, value: $(A)}]"
        ),
        "A=10.0.0.7 B=10.0.0.7"
    );
    assert_eq!(resource("requests.cpu", ", divisor: 1m"), "A=250");
    assert_eq!(resource("limits.cpu", ""), "A=2", "what the node has");
    assert_eq!(resource("limits.cpu", ", containerName: other"), "A=3");
    assert_eq!(resource("limits.cpu", ", containerName: init"), "A=0");
    assert_eq!(resource("limits.cpu", ", containerName: none"), "container none not found");
    assert_eq!(resource("limits.odd", ""), "unsupported container resource : limits.odd");
}

#[test]
fn a_pod_on_the_nodes_network_has_the_nodes_addresses() {
    let mut pod = pod("env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}, \
         {name: B, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIPs}}}]");
    let mut node = node();
    node.facts.host_ips = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    let told = |pod: &Pod, pod_ips: &[IpAddr]| {
        let input = EnvironmentInput {
            pod,
            container: &pod.spec.containers[0],
            node: &node,
            pod_ips,
            services: &[],
            services_read: true,
            objects: &Objects::default(),
            files: &[],
            granted: &[],
        };
        let environment = Environment::of_container(&input).unwrap();
        ["A", "B"].map(|name| String::from_utf8(environment.get(name).unwrap().to_vec()).unwrap())
    };
    let own: IpAddr = "10.88.0.2".parse().unwrap();
    assert_eq!(told(&pod, &[]), ["", ""], "it has no address yet");
    pod.spec.host_network = true;
    assert_eq!(told(&pod, &[]), ["10.0.0.1", "10.0.0.1,fd00::1"]);
    assert_eq!(told(&pod, &[own]), ["10.88.0.2", "10.88.0.2"], "what the runtime says counts");
}

#[test]
fn files_of_variables_are_read() {
    let file = |path: &str, rest: &str| {
        format!(
            "env: [{{name: A, valueFrom: {{fileKeyRef: {{volumeName: v, path: {path}, key: K{rest}}}}}}}]"
        )
    };
    assert_eq!(made(&file("env", "")), "A=v");
    assert_eq!(made(&file("env", "2")), "environment variable key \"K2\" not found in file \"/host/env\"");
    assert_eq!(made(&file("env", "2, optional: true")), "");
    assert_eq!(made(&file("bad", ", optional: true")), "couldn't parse env file");
    assert_eq!(made(&file("gone", "")), "couldn't parse env file");
    assert_eq!(made(&file("unknown", "")), "cannot find the volume \"v\" referenced by FileKeyRef");
    let elsewhere = file("env", "").replace("volumeName: v", "volumeName: w");
    assert_eq!(made(&elsewhere), "cannot find the volume \"w\" referenced by FileKeyRef");
    let mut off = node();
    off.features = off.features.with(Gate::EnvFiles, false);
    assert_eq!(made_on(&off, &pod(&file("gone", ""))).unwrap().get("A"), Some(b"".as_slice()));
}

#[test]
fn an_environment_waits_for_what_it_cannot_be_without() {
    let mut unsaid = pod("");
    unsaid.spec.enable_service_links = None;
    assert_eq!(
        made_on(&node(), &unsaid).unwrap_err().to_string(),
        "nil pod.spec.enableServiceLinks encountered, cannot construct envvars"
    );
    let unread = |pod: &Pod| {
        Environment::of_container(&EnvironmentInput {
            pod,
            container: &pod.spec.containers[0],
            node: &node(),
            pod_ips: &[],
            services: &[],
            services_read: false,
            objects: &Objects::default(),
            files: &[],
            granted: &[],
        })
    };
    assert_eq!(
        unread(&pod("")).unwrap_err().to_string(),
        "services have not yet been read at least once, cannot construct envvars"
    );
    let mut from_file = pod("");
    from_file.metadata.annotations.insert(crate::labels::CONFIG_SOURCE, "file".into());
    assert!(unread(&from_file).is_ok());
}

#[test]
fn device_variables_come_first_and_commands_see_all() {
    let environment = made_on(&node(), &pod("env: [{name: OWN, value: mine}]")).unwrap();
    assert_eq!(environment.variables()[0].key, "DEVICE");
    assert_eq!(environment.expand("$(DEVICE) $(OWN) $(DB_SERVICE_PORT) $(NO)"), "gpu0 mine 5432 $(NO)");
    let raw = made_on(&node(), &pod("envFrom: [{secretRef: {name: sec}}]")).unwrap();
    assert_eq!(raw.get("raw"), Some([0xff].as_slice()));
    assert_eq!(raw.expand("<$(raw)>"), "<\u{fffd}>");
}

#[test]
fn debug_shows_no_values() {
    let environment = made_on(&node(), &pod("env: [{name: A, value: hunter2}]")).unwrap();
    assert!(!format!("{environment:?}").contains("hunter2"));
}

#[test]
fn what_must_be_at_hand_is_named_once() {
    let pod = pod("envFrom: [{configMapRef: {name: cm}}, {secretRef: {name: sec}}],
         env: [{name: A, valueFrom: {configMapKeyRef: {name: cm, key: k}}},
               {name: B, valueFrom: {secretKeyRef: {name: sec2, key: k}}},
               {name: C, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}},
               {name: D, value: x}]");
    let references = references(&pod.spec.containers[0]);
    assert_eq!((references.config_maps, references.secrets), (vec!["cm"], vec!["sec", "sec2"]));
    assert_eq!(references.files, [("v", "p")]);
}

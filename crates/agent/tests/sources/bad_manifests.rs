//! Files that are no manifests of pods: each is reported once, with its line, and leaves all others alone.

use std::fs;
use std::path::Path;
use std::time::Duration;

use expect_test::{Expect, expect};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::time::timeout;

use crate::support::*;

/// Puts something bad beside something good, and compares what is said of it.
fn check(title: &str, content: impl AsRef<[u8]>, expected: Expect) {
    check_made(title, |path| fs::write(path, content).unwrap(), expected);
}

/// The same for what is not written as a file is.
fn check_made(title: &str, make: impl FnOnce(&Path), expected: Expect) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let good = manifest("good", "i");
        let mut node = Node::reading_files(Duration::from_secs(1), &[("good.yaml", good.as_bytes())]).await;
        assert_eq!(node.next().await, "ADD default/good-node", "{title}");
        let mut reports = node.sources.problems.reports();
        make(&node.path("bad.yaml"));
        timeout(LONG, reports.wait_for(|reports| *reports == 1)).await.expect(title).unwrap();
        let list = node.sources.problems.list();
        let problems = node.problems(list.len()).await;
        expected.assert_eq(&problems.join("\n"));
        // It was looked at some ten times more, and nothing came of it.
        assert!(timeout(LONG, node.sources.changes.next()).await.is_err(), "{title}");
        assert_eq!(*reports.borrow(), 1, "{title}");
        // Nor is it in the way of its correction.
        if fs::symlink_metadata(node.path("bad.yaml")).unwrap().is_dir() {
            fs::remove_dir(node.path("bad.yaml")).unwrap();
        } else {
            node.remove("bad.yaml");
        }
        node.write("bad.yaml", manifest("fixed", "i"));
        assert_eq!(node.next().await, "ADD default/fixed-node", "{title}");
        assert_eq!(node.problems(0).await, [""; 0], "{title}");
    });
}

#[test]
fn texts_that_are_no_manifest() {
    check("an empty file", "", expect!["bad.yaml: is empty [Ignored]"]);
    check("nothing but white space", "  \n\n", expect!["bad.yaml: is empty [Ignored]"]);
    check("nothing but a comment", "# Later.\n", expect!["bad.yaml: is empty [Ignored]"]);
    check("a null", "null\n", expect!["bad.yaml: is empty [Ignored]"]);
    check("plain text", "Hello, world.\n", expect!["bad.yaml:1: expected a mapping, found text [Ignored]"]);
    check("a number", "42\n", expect!["bad.yaml:1: expected a mapping, found a whole number [Ignored]"]);
    check("a list", "- apiVersion: v1\n", expect!["bad.yaml:1: expected a mapping, found a list [Ignored]"]);
    check(
        "an unclosed bracket",
        "apiVersion: v1\nkind: {\n",
        expect!["bad.yaml:2: is not valid YAML: unclosed bracket '{' [Ignored]"],
    );
    check(
        "an unclosed quote",
        "apiVersion: \"v1\nkind: Pod\n",
        expect!["bad.yaml:2: is not valid YAML: invalid indentation in multiline quoted scalar [Ignored]"],
    );
    check(
        "a tab for indentation",
        "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: a\n",
        expect![
            "bad.yaml:4: is not valid YAML: tabs disallowed within this context (block indentation) [Ignored]"
        ],
    );
    check(
        "wrong indentation",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n name: b\n",
        expect![
            "bad.yaml:5: is not valid YAML: while parsing a block mapping, did not find expected key [Ignored]"
        ],
    );
    check(
        "JSON that breaks off",
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a",
        expect!["bad.yaml:1: is not valid YAML: unclosed quote [Ignored]"],
    );
    check(
        "a file half written",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  conta",
        expect!["bad.yaml:5: spec: expected a mapping, found text [Ignored]"],
    );
    check(
        "an anchor that is not there",
        "apiVersion: v1\nkind: *nothing\n",
        expect!["bad.yaml:2: is not valid YAML: while parsing node, found unknown anchor [Ignored]"],
    );
    check(
        "a shell script",
        "#!/bin/sh\nset -e\nexec true\n",
        expect!["bad.yaml:2: expected a mapping, found text [Ignored]"],
    );
    check(
        "a page of HTML",
        "<!DOCTYPE html>\n<html><body>404</body></html>\n",
        expect!["bad.yaml:1: expected a mapping, found text [Ignored]"],
    );
}

#[test]
fn objects_that_are_no_pods() {
    check(
        "another kind",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\n",
        expect![[r#"bad.yaml:1: apiVersion: expected v1, found "apps/v1" [Ignored]"#]],
    );
    check(
        "a list of pods",
        "apiVersion: v1\nkind: PodList\nitems: []\n",
        expect![[r#"bad.yaml:2: kind: expected Pod, found "PodList" [Ignored]"#]],
    );
    check(
        "a config map",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: b\n",
        expect![[r#"bad.yaml:2: kind: expected Pod, found "ConfigMap" [Ignored]"#]],
    );
    check(
        "another version",
        "apiVersion: v2\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![[r#"bad.yaml:1: apiVersion: expected v1, found "v2" [Ignored]"#]],
    );
    check(
        "no kind",
        "apiVersion: v1\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect!["bad.yaml:1: kind: expected Pod, found nothing [Ignored]"],
    );
    check(
        "no version",
        "kind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect!["bad.yaml:1: apiVersion: expected v1, found nothing [Ignored]"],
    );
    check(
        "neither",
        "spec: {}\n",
        expect![[r#"
        bad.yaml:1: apiVersion: expected v1, found nothing [Ignored]
        bad.yaml:1: kind: expected Pod, found nothing [Ignored]"#]],
    );
}

#[test]
fn fields_that_are_not_what_they_should_be() {
    check(
        "a misspelt field",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  container:\n  - name: c\n",
        expect!["bad.yaml:6: spec.container: unknown field; did you mean containers? [Ignored]"],
    );
    check(
        "an unknown field in a container",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    imagePolicy: Always\n",
        expect![
            "bad.yaml:9: spec.containers[0].imagePolicy: unknown field; accepted here: name, image, command, args, workingDir, ports, envFrom, env, resources, resizePolicy, restartPolicy, restartPolicyRules, volumeMounts, volumeDevices, livenessProbe, readinessProbe, startupProbe, lifecycle, terminationMessagePath, terminationMessagePolicy, imagePullPolicy, securityContext, stdin, stdinOnce, tty [Ignored]"
        ],
    );
    check(
        "a field twice",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  hostNetwork: true\n  hostNetwork: false\n  containers:\n  - name: c\n    image: i\n",
        expect![
            "bad.yaml:7: spec.hostNetwork: is set twice (first on line 6); the last one counts [Ignored]"
        ],
    );
    check(
        "text for a number",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    ports:\n    - containerPort: http\n",
        expect![
            "bad.yaml:10: spec.containers[0].ports[0].containerPort: expected a whole number from -2147483648 to 2147483647, found text [Ignored]"
        ],
    );
    check(
        "a number for text",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: 5\n    image: i\n",
        expect!["bad.yaml:7: spec.containers[0].name: expected text, found a whole number [Ignored]"],
    );
    check(
        "a mapping for a list",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n    name: c\n    image: i\n",
        expect!["bad.yaml:6: spec.containers: expected a list, found a mapping [Ignored]"],
    );
    check(
        "text for a boolean",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  hostNetwork: perhaps\n  containers:\n  - name: c\n    image: i\n",
        expect!["bad.yaml:6: spec.hostNetwork: expected true or false, found text [Ignored]"],
    );
    check(
        "a number for a variable's value",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    env:\n    - name: A\n      value: 5\n",
        expect![
            "bad.yaml:11: spec.containers[0].env[0].value: expected text, found a whole number [Ignored]"
        ],
    );
    check(
        "a quantity that is none",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    resources:\n      limits:\n        memory: much\n",
        expect![
            "bad.yaml:11: spec.containers[0].resources.limits.memory: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' [Ignored]"
        ],
    );
    check(
        "a negative quantity",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    resources:\n      requests:\n        cpu: -1\n",
        expect![[
            r#"bad.yaml:11: spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0 [Ignored]"#
        ]],
    );
    check(
        "a time that is none",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\n  creationTimestamp: yesterday\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![[
            r#"bad.yaml:5: metadata.creationTimestamp: expected a time such as "2006-01-02T15:04:05Z" [Ignored]"#
        ]],
    );
    check(
        "a request beyond its limit",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    resources:\n      requests:\n        cpu: 2\n      limits:\n        cpu: 1\n",
        expect![[
            r#"bad.yaml:10: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1 [Ignored]"#
        ]],
    );
}

#[test]
fn names_that_cannot_be() {
    check(
        "no name",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: default\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect!["bad.yaml:3: metadata.name: Required value: name is needed for the pod [Ignored]"],
    );
    check(
        "an empty name",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: ''\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect!["bad.yaml:4: metadata.name: Required value: name is needed for the pod [Ignored]"],
    );
    check(
        "capitals",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: Bad\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![[
            r#"bad.yaml:4: metadata.name: Invalid value: "Bad-node": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*') [Ignored]"#
        ]],
    );
    check(
        "an underscore",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: b_d\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![[
            r#"bad.yaml:4: metadata.name: Invalid value: "b_d-node": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*') [Ignored]"#
        ]],
    );
    check(
        "a name that is too long",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![[
            r#"bad.yaml:4: metadata.name: Invalid value: "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-node": must be no more than 253 characters [Ignored]"#
        ]],
    );
    check(
        "a namespace that is none",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\n  namespace: a/b\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![[
            r#"bad.yaml:5: metadata.namespace: Invalid value: "a/b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?') [Ignored]"#
        ]],
    );
    check(
        "a label that is none",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\n  labels:\n    a b: c\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![[
            r#"bad.yaml:5: metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') [Ignored]"#
        ]],
    );
    check(
        "an annotation that is none",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\n  annotations:\n    /: c\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![[r#"
        bad.yaml:5: metadata.annotations: Invalid value: "/": prefix part must be non-empty [Ignored]
        bad.yaml:5: metadata.annotations: Invalid value: "/": name part must be non-empty [Ignored]
        bad.yaml:5: metadata.annotations: Invalid value: "/": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') [Ignored]"#]],
    );
    check(
        "a UID that leads elsewhere",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\n  uid: ../../etc\nspec:\n  containers:\n  - name: c\n    image: i\n",
        expect![
            "bad.yaml:5: metadata.uid: Invalid value: a UID must consist of letters, digits, '-', '_' or '.', start with a letter or digit, and have at most 128 characters; without one, the pod gets a UID that follows from its manifest [Ignored]"
        ],
    );
    check(
        "a container without a name",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - image: i\n",
        expect!["bad.yaml:7: spec.containers[0].name: Required value [Ignored]"],
    );
    check(
        "two containers of one name",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n  - name: c\n    image: i\n",
        expect![[r#"bad.yaml:9: spec.containers[1].name: Duplicate value: "c" [Ignored]"#]],
    );
    check(
        "an init container of the same name",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  initContainers:\n  - name: c\n    image: i\n  containers:\n  - name: c\n    image: i\n",
        expect![[r#"bad.yaml:7: spec.initContainers[0].name: Duplicate value: "c" [Ignored]"#]],
    );
    check(
        "a port's name twice",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    ports:\n    - {name: a, containerPort: 1}\n    - {name: a, containerPort: 2}\n",
        expect![[r#"bad.yaml:11: spec.containers[0].ports[1].name: Duplicate value: "a" [Ignored]"#]],
    );
    check(
        "a volume's name twice",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  volumes:\n  - {name: v, emptyDir: {}}\n  - {name: v, emptyDir: {}}\n  containers:\n  - name: c\n    image: i\n",
        expect![[r#"bad.yaml:8: spec.volumes[1].name: Duplicate value: "v" [Ignored]"#]],
    );
}

#[test]
fn specs_that_cannot_be_run() {
    check(
        "no containers",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers: []\n",
        expect!["bad.yaml:6: spec.containers: Required value [Ignored]"],
    );
    check(
        "no spec",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\n",
        expect!["bad.yaml:1: spec.containers: Required value [Ignored]"],
    );
    check(
        "no image",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n",
        expect!["bad.yaml:7: spec.containers[0].image: Required value [Ignored]"],
    );
    check(
        "an image with a space",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: 'i '\n",
        expect![[
            r#"bad.yaml:8: spec.containers[0].image: Invalid value: "i ": must not have leading or trailing whitespace [Ignored]"#
        ]],
    );
    check(
        "port 0",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    ports:\n    - containerPort: 0\n",
        expect!["bad.yaml:10: spec.containers[0].ports[0].containerPort: Required value [Ignored]"],
    );
    check(
        "a port out of range",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    ports:\n    - containerPort: 65536\n",
        expect![
            "bad.yaml:10: spec.containers[0].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive [Ignored]"
        ],
    );
    check(
        "a host port twice",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    ports:\n    - {containerPort: 1, hostPort: 80}\n    - {containerPort: 2, hostPort: 80}\n",
        expect![[
            r#"bad.yaml:11: spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//80" [Ignored]"#
        ]],
    );
    check(
        "another protocol",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    ports:\n    - {containerPort: 1, protocol: ICMP}\n",
        expect![[
            r#"bad.yaml:10: spec.containers[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP" [Ignored]"#
        ]],
    );
    check(
        "a restart policy that is none",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  restartPolicy: Sometimes\n  containers:\n  - name: c\n    image: i\n",
        expect![[
            r#"bad.yaml:6: spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never" [Ignored]"#
        ]],
    );
    check(
        "a negative deadline",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  activeDeadlineSeconds: -5\n  containers:\n  - name: c\n    image: i\n",
        expect![
            "bad.yaml:6: spec.activeDeadlineSeconds: Invalid value: -5: must be between 1 and 2147483647, inclusive [Ignored]"
        ],
    );
    check(
        "a mount of nothing",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    volumeMounts:\n    - {name: nothing, mountPath: /a}\n",
        expect![[r#"bad.yaml:10: spec.containers[0].volumeMounts[0].name: Not found: "nothing" [Ignored]"#]],
    );
    check(
        "a volume of two kinds",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  volumes:\n  - name: v\n    emptyDir: {}\n    hostPath: {path: /a}\n  containers:\n  - name: c\n    image: i\n",
        expect![
            "bad.yaml:9: spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type [Ignored]"
        ],
    );
    check(
        "a path that leads out",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  volumes:\n  - name: v\n    hostPath: {path: /a/../b}\n  containers:\n  - name: c\n    image: i\n",
        expect![[
            r#"bad.yaml:8: spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain '..' [Ignored]"#
        ]],
    );
    check(
        "a probe without an action",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    livenessProbe:\n      periodSeconds: 5\n",
        expect![
            "bad.yaml:9: spec.containers[0].livenessProbe: Required value: must specify a handler type [Ignored]"
        ],
    );
    check(
        "a probe that never comes",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    livenessProbe:\n      tcpSocket: {port: 0}\n      periodSeconds: -1\n",
        expect![[r#"
        bad.yaml:10: spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive [Ignored]
        bad.yaml:11: spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0 [Ignored]"#]],
    );
    check(
        "a variable without a name",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    env:\n    - value: a\n",
        expect!["bad.yaml:10: spec.containers[0].env[0].name: Required value [Ignored]"],
    );
    check(
        "a service account",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  serviceAccountName: a\n  containers:\n  - name: c\n    image: i\n",
        expect![
            "bad.yaml:6: spec.serviceAccountName: Forbidden: static pods may not reference serviceaccounts [Ignored]"
        ],
    );
    check(
        "a secret",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  volumes:\n  - name: v\n    secret: {secretName: s}\n  containers:\n  - name: c\n    image: i\n",
        expect![
            "bad.yaml:8: spec.volumes[0].secret: Forbidden: static pods may not reference secrets [Ignored]"
        ],
    );
    check(
        "a config map in a variable",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n    env:\n    - name: A\n      valueFrom: {configMapKeyRef: {name: a, key: b}}\n",
        expect![
            "bad.yaml:11: spec.containers[0].env[0].valueFrom.configMapKeyRef: Forbidden: static pods may not reference configmaps [Ignored]"
        ],
    );
    check(
        "ephemeral containers",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  containers:\n  - name: c\n    image: i\n  ephemeralContainers:\n  - name: e\n    image: i\n",
        expect!["bad.yaml:9: spec.ephemeralContainers: Forbidden: cannot be set on create [Ignored]"],
    );
    check(
        "a host name that is none",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  hostname: a.b\n  containers:\n  - name: c\n    image: i\n",
        expect![[r#"bad.yaml:6: spec.hostname: Invalid value: "a.b": must not contain dots [Ignored]"#]],
    );
    check(
        "a resource claim",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  resourceClaims:\n  - name: r\n    resourceClaimName: a\n  containers:\n  - name: c\n    image: i\n",
        expect![
            "bad.yaml:7: spec.resourceClaims[0]: Forbidden: static pods may not reference resourceclaims [Ignored]"
        ],
    );
}

#[test]
fn bytes_that_are_no_text() {
    check("garbage", [0_u8, 159, 146, 150, 255, 10, 0], expect!["bad.yaml:1: is not UTF-8 text [Ignored]"]);
    check(
        "garbage in the third line",
        b"apiVersion: v1\nkind: Pod\nx: \xff\n",
        expect!["bad.yaml:3: is not UTF-8 text [Ignored]"],
    );
    check(
        "another encoding",
        "apiVersion: v1\n".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>(),
        expect![[r#"bad.yaml:1: is not valid YAML: unexpected character: `\u{0}' [Ignored]"#]],
    );
    check(
        "a null byte",
        "apiVersion: v1\nkind: \0\n",
        expect![[r#"bad.yaml:2: is not valid YAML: unexpected character: `\u{0}' [Ignored]"#]],
    );
}

#[test]
fn texts_that_are_too_much() {
    check(
        "too long",
        " ".repeat((3 << 20) + 1),
        expect!["bad.yaml: has 3145729 bytes; at most 3145728 are accepted [Ignored]"],
    );
    check(
        "too deep",
        "[".repeat(100_000),
        expect!["bad.yaml:1: is not valid YAML: is nested deeper than 100 levels [Ignored]"],
    );
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
    check(
        "a text that explodes",
        bomb,
        expect!["bad.yaml:5: expands to more than 200000 values (aliases count each time) [Ignored]"],
    );
    let many = format!("{}  containers: [{}]\n", &manifest("a", "i")[..46], "{},".repeat(50));
    check(
        "more mistakes than are told",
        many,
        expect![
            "bad.yaml:5: s  containers: unknown field; accepted here: metadata, spec, status, apiVersion, kind [Ignored]"
        ],
    );
}

#[test]
fn things_that_are_no_files() {
    check_made(
        "a directory",
        |path| fs::create_dir(path).unwrap(),
        expect!["bad.yaml: is a directory; manifests in directories below are not read [Ignored]"],
    );
    check_made(
        "a loop of links",
        |path| std::os::unix::fs::symlink(path, path).unwrap(),
        expect!["bad.yaml: cannot be read: Too many levels of symbolic links (os error 40) [Ignored]"],
    );
    let nowhere = |path: &Path| std::os::unix::fs::symlink("nowhere", path).unwrap();
    check_made(
        "a link that leads nowhere",
        nowhere,
        expect!["bad.yaml: is a symbolic link that leads nowhere [Ignored]"],
    );
    check_made(
        "a link to a directory",
        |path| std::os::unix::fs::symlink("/", path).unwrap(),
        expect!["bad.yaml: is a directory; manifests in directories below are not read [Ignored]"],
    );
    check_made(
        "a link to a device",
        |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        expect!["bad.yaml: is a device, not a regular file [Ignored]"],
    );
    let pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    check_made("a pipe", pipe, expect!["bad.yaml: is a pipe, not a regular file [Ignored]"]);
    let socket = |path: &Path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    check_made("a socket", socket, expect!["bad.yaml: is a socket, not a regular file [Ignored]"]);
    let huge = |path: &Path| fs::File::create(path).unwrap().set_len(100 << 20).unwrap();
    check_made(
        "100 MB",
        huge,
        expect!["bad.yaml: has 104857600 bytes; at most 3145728 are accepted [Ignored]"],
    );
}

#[test]
fn a_file_that_may_not_be_read() {
    // Nothing is closed to the superuser, but this file of the kernel gives an error to whoever reads it.
    let unreadable = Path::new("/proc/self/mem");
    check_made(
        "unreadable",
        |path| std::os::unix::fs::symlink(unreadable, path).unwrap(),
        expect!["bad.yaml: cannot be read: Input/output error (os error 5) [Ignored]"],
    );
}

#[tokio::test(start_paused = true)]
async fn of_two_documents_in_a_file_the_first_is_read_and_the_second_mentioned() {
    let two = format!("{}---\n{}", manifest("a", "i"), manifest("b", "i"));
    let mut node = Node::reading_files(Duration::from_secs(1), &[("two.yaml", two.as_bytes())]).await;
    assert_eq!(node.next().await, "ADD default/a-node");
    let expected = "two.yaml:9: only the first document of the file is read; this one is ignored [Noted]";
    assert_eq!(node.problems(1).await, [expected]);
    assert!(timeout(LONG, node.sources.changes.next()).await.is_err());
    assert_eq!(*node.sources.problems.reports().borrow(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_mistake_in_another_version_of_the_file_is_told_again() {
    let mut node = Node::reading_files(Duration::from_secs(1), &[]).await;
    ready_without_pods(&mut node.sources).await;
    let mut reports = node.sources.problems.reports();
    for count in 1..4_u64 {
        node.write("bad.yaml", format!("# Try {count}.\nkind: Pod\n{}", "#".repeat(count as usize)));
        timeout(LONG, reports.wait_for(|reports| *reports == count)).await.unwrap().unwrap();
    }
    assert_eq!(node.problems(1).await, ["bad.yaml:2: apiVersion: expected v1, found nothing [Ignored]"]);
}

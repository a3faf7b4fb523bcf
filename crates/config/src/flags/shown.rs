//! Flags and their values as `/flagz` shows them: as given, or as they are without being given.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crablet_api::{GoDuration, Quantity};

use super::value::{boolean, parts};
use super::{FLAGS, Flag, Kind};

/// Every flag with its value, in the order of their names.
pub(crate) fn shown(given: &[(&'static Flag, Vec<&str>)]) -> Vec<(&'static str, Cow<'static, str>)> {
    let of = |flag: &'static Flag| match given.iter().find(|(known, _)| known.name == flag.name) {
        Some((_, texts)) => Cow::Owned(as_written(flag.kind, texts)),
        None => Cow::Borrowed(default_of(flag.name)),
    };
    let mut all: Vec<_> = FLAGS.iter().map(|flag| (flag.name, of(flag))).collect();
    all.push(("help", Cow::Borrowed("false")));
    all.sort_unstable_by_key(|(name, _)| *name);
    all
}

fn default_of(name: &str) -> &'static str {
    DEFAULTS.binary_search_by_key(&name, |(known, _)| *known).map_or("", |found| DEFAULTS[found].1)
}

/// What Go's flags write of a value that was accepted.
fn as_written(kind: Kind, texts: &[&str]) -> String {
    let last = texts.last().copied().unwrap_or_default();
    let whole = || last.to_owned();
    match kind {
        Kind::Bool | Kind::Switch | Kind::Version => {
            boolean(last).map_or_else(|_| whole(), |value| value.to_string())
        }
        Kind::Duration => last.parse::<GoDuration>().map_or_else(|_| whole(), |value| value.to_string()),
        Kind::Quantity => last.parse::<Quantity>().map_or_else(|_| whole(), |value| value.to_string()),
        Kind::Int | Kind::Text | Kind::Path | Kind::Ip | Kind::ReservedMemory | Kind::VModule => whole(),
        Kind::List => format!("[{}]", parts(texts).collect::<Vec<_>>().join(",")),
        Kind::Map | Kind::Labels | Kind::BoolMap => pairs(parts(texts), '='),
        Kind::PairMap => pairs(texts.iter().copied(), '='),
        Kind::LessThanMap => pairs(parts(texts), '<'),
        Kind::Taints => texts.join(","),
        // Their values may be secrets.
        Kind::Headers => {
            let names: BTreeMap<&str, ()> =
                parts(texts).map(|part| (part.split(':').next().unwrap_or_default().trim(), ())).collect();
            let masked: Vec<String> = names.into_keys().map(|name| format!("{name}:<masked>")).collect();
            masked.join(",")
        }
    }
}

/// Pairs in the order of their keys; the last of a key counts.
fn pairs<'a>(parts: impl Iterator<Item = &'a str>, separator: char) -> String {
    let pairs: BTreeMap<&str, &str> = parts
        .map(|part| part.split_once(separator).unwrap_or((part, "")))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let pairs: Vec<String> =
        pairs.into_iter().map(|(key, value)| format!("{key}{separator}{value}")).collect();
    pairs.join(",")
}

/// What flags are without being given, where that is something. In the order of their names.
const DEFAULTS: &[(&str, &str)] = &[
    ("address", "0.0.0.0"),
    ("allowed-unsafe-sysctls", "[]"),
    ("anonymous-auth", "false"),
    ("application-metrics-count-limit", "100"),
    ("authentication-token-webhook", "true"),
    ("authentication-token-webhook-cache-ttl", "2m0s"),
    ("authorization-mode", "Webhook"),
    ("authorization-webhook-cache-authorized-ttl", "5m0s"),
    ("authorization-webhook-cache-unauthorized-ttl", "30s"),
    ("boot-id-file", "/proc/sys/kernel/random/boot_id"),
    ("cert-dir", "/var/lib/kubelet/pki"),
    ("cgroup-driver", "cgroupfs"),
    ("cgroups-per-qos", "true"),
    ("cluster-dns", "[]"),
    ("container-hints", "/etc/cadvisor/container_hints.json"),
    ("container-log-max-files", "5"),
    ("container-log-max-size", "10Mi"),
    ("container-runtime-endpoint", "unix:///run/containerd/containerd.sock"),
    ("containerd", "/run/containerd/containerd.sock"),
    ("containerd-namespace", "k8s.io"),
    ("contention-profiling", "false"),
    ("cpu-cfs-quota", "true"),
    ("cpu-cfs-quota-period", "100ms"),
    ("cpu-manager-policy", "none"),
    ("cpu-manager-reconcile-period", "10s"),
    ("enable-controller-attach-detach", "true"),
    ("enable-debugging-handlers", "true"),
    ("enable-load-reader", "false"),
    ("enable-server", "true"),
    ("enforce-node-allocatable", "[pods]"),
    ("event-burst", "100"),
    ("event-qps", "50"),
    ("event-storage-age-limit", "default=0"),
    ("event-storage-event-limit", "default=0"),
    ("eviction-max-pod-grace-period", "0"),
    ("eviction-pressure-transition-period", "5m0s"),
    ("exit-on-lock-contention", "false"),
    ("experimental-allocatable-ignore-eviction", "false"),
    ("fail-cgroupv1", "true"),
    ("fail-swap-on", "true"),
    ("file-check-frequency", "20s"),
    ("global-housekeeping-interval", "1m0s"),
    ("hairpin-mode", "promiscuous-bridge"),
    ("healthz-bind-address", "127.0.0.1"),
    ("healthz-port", "10248"),
    ("housekeeping-interval", "10s"),
    ("http-check-frequency", "20s"),
    ("image-gc-high-threshold", "85"),
    ("image-gc-low-threshold", "80"),
    ("keep-kernel-settings", "false"),
    ("kernel-memcg-notification", "false"),
    ("kube-api-burst", "100"),
    ("kube-api-content-type", "application/vnd.kubernetes.protobuf"),
    ("kube-api-qps", "50"),
    ("local-storage-capacity-isolation", "true"),
    ("log-cadvisor-usage", "false"),
    ("log-flush-frequency", "5s"),
    ("log-text-info-buffer-size", "0"),
    ("log-text-split-stream", "false"),
    ("logging-format", "text"),
    ("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id"),
    ("make-iptables-util-chains", "true"),
    ("max-open-files", "1000000"),
    ("max-pods", "110"),
    ("maximum-dead-containers", "-1"),
    ("maximum-dead-containers-per-container", "1"),
    ("memory-manager-policy", "None"),
    ("minimum-container-ttl-duration", "0s"),
    ("minimum-image-ttl-duration", "2m0s"),
    ("node-status-max-images", "50"),
    ("node-status-update-frequency", "10s"),
    ("oom-score-adj", "-999"),
    ("pod-max-pids", "-1"),
    ("pods-per-core", "0"),
    ("port", "10250"),
    ("protect-kernel-defaults", "false"),
    ("read-only-port", "0"),
    ("register-node", "true"),
    ("registry-burst", "10"),
    ("registry-qps", "5"),
    ("resolv-conf", "/etc/resolv.conf"),
    ("root-dir", "/var/lib/kubelet"),
    ("rotate-certificates", "false"),
    ("rotate-server-certificates", "false"),
    ("runonce", "false"),
    ("runtime-request-timeout", "2m0s"),
    ("seccomp-default", "false"),
    ("serialize-image-pulls", "false"),
    ("start-remembered-pods", "false"),
    ("storage-driver-buffer-duration", "1m0s"),
    ("storage-driver-db", "cadvisor"),
    ("storage-driver-host", "localhost:8086"),
    ("storage-driver-password", "root"),
    ("storage-driver-secure", "false"),
    ("storage-driver-table", "stats"),
    ("storage-driver-user", "root"),
    ("streaming-connection-idle-timeout", "4h0m0s"),
    ("sync-frequency", "1m0s"),
    ("tls-cipher-suites", "[]"),
    ("topology-manager-policy", "none"),
    ("topology-manager-scope", "container"),
    ("v", "0"),
    ("version", "false"),
    ("volume-plugin-dir", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"),
    ("volume-stats-agg-period", "1m0s"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, texts: &[&str], expected: &str) {
        let flag = Flag::find(name).unwrap();
        let all = shown(&[(flag, texts.to_vec())]);
        let value = all.iter().find(|(known, _)| *known == name).unwrap();
        assert_eq!(value.1, expected, "{name}");
    }

    #[test]
    fn values_look_as_go_writes_them() {
        check("fail-swap-on", &["f"], "false");
        check("sync-frequency", &["90s"], "1m30s");
        check("cluster-dns", &["10.0.0.10,10.0.0.11", "10.0.0.12"], "[10.0.0.10,10.0.0.11,10.0.0.12]");
        check("node-labels", &["b=2,a"], "a=,b=2");
        check(
            "eviction-hard",
            &["nodefs.available<10%,memory.available<1Gi"],
            "memory.available<1Gi,nodefs.available<10%",
        );
        check("feature-gates", &["B=true", "A=false"], "A=false,B=true");
        check("root-dir", &["/one", "/two"], "/two");
    }

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        check(
            "manifest-url-header",
            &["Authorization:Bearer abc,X:y", "X:z"],
            "Authorization:<masked>,X:<masked>",
        );
    }

    #[test]
    fn defaults_are_of_flags_and_in_order() {
        assert!(DEFAULTS.is_sorted_by_key(|(name, _)| *name));
        assert!(DEFAULTS.iter().all(|(name, _)| Flag::find(name).is_some()));
    }
}

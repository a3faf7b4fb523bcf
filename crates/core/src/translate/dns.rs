//! Where a pod's resolver looks.

use crablet_api::core::{DNSPolicy, Pod, PodDNSConfig, PodDNSConfigOption};
use crablet_cri_api::v1;

use super::event::{About, Warning};
use super::node::{NodeFacts, Settings};
use super::{go_quote, pod_description};

/// What glibc takes at most.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;
/// Longer search paths abort some resolvers.
const MAX_SEARCH_PATH: usize = 253;

/// What the node's own resolver does.
#[derive(Debug, Clone, PartialEq)]
pub enum HostResolver {
    /// No file was named: pods that resolve as the node does ask the node itself.
    Off,
    /// What the file says.
    File(v1::DnsConfig),
}

/// Why the file that says how the node resolves cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolvConfError {
    /// It cannot be read.
    #[error("open {path}: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// It is longer than such a file can be.
    #[error("Encountered error while parsing resolv conf file. Error: the read limit is reached")]
    TooLong,
    /// It has a line that names no server.
    #[error("Encountered error while parsing resolv conf file. Error: nameserver list is empty ")]
    NoServer,
}

/// Reads a resolver's file. Of several `search` lines the last counts; options add up, by their names.
pub fn parse_resolv_conf(text: &str) -> Result<v1::DnsConfig, ResolvConfError> {
    let mut config = v1::DnsConfig::default();
    let mut broken = false;
    for line in text.split('\n').map(str::trim).filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => match words.next() {
                Some(server) => config.servers.push(server.to_owned()),
                None => broken = true,
            },
            Some("search") => {
                config.searches = words
                    .filter(|search| *search != ".")
                    .map(|search| search.strip_suffix('.').unwrap_or(search).to_owned())
                    .collect();
            }
            Some("options") => {
                for option in words {
                    let name = option_name(option);
                    match config.options.iter_mut().find(|known| option_name(known) == name) {
                        Some(known) => *known = option.to_owned(),
                        None => config.options.push(option.to_owned()),
                    }
                }
            }
            Some(_) | None => {}
        }
    }
    if broken { Err(ResolvConfError::NoServer) } else { Ok(config) }
}

/// Where a pod's resolver looks, by its policy and what it adds to it, within what resolvers take.
pub(super) fn of_pod(
    pod: &Pod,
    resolver: &HostResolver,
    facts: &NodeFacts,
    settings: &Settings,
    warnings: &mut Vec<Warning>,
) -> v1::DnsConfig {
    let mut config = match &pod.spec.dns_policy {
        Some(DNSPolicy::None) => v1::DnsConfig::default(),
        Some(DNSPolicy::Default) => host(resolver, facts),
        Some(DNSPolicy::ClusterFirst) if pod.spec.host_network => host(resolver, facts),
        Some(DNSPolicy::ClusterFirst | DNSPolicy::ClusterFirstWithHostNet | DNSPolicy::Other(_)) | None => {
            cluster(pod, resolver, settings).unwrap_or_else(|| {
                warn_of_no_cluster_dns(pod, warnings);
                host(resolver, facts)
            })
        }
    };
    if let Some(addition) = &pod.spec.dns_config {
        add(&mut config, addition);
    }
    limit_servers(&mut config.servers, warnings);
    limit_searches(&mut config.searches, warnings);
    config
}

/// As the node itself resolves.
fn host(resolver: &HostResolver, facts: &NodeFacts) -> v1::DnsConfig {
    match resolver {
        HostResolver::File(config) => config.clone(),
        HostResolver::Off => {
            let mut servers: Vec<String> = facts
                .node_ips
                .iter()
                .map(|ip| if ip.to_canonical().is_ipv6() { "::1" } else { "127.0.0.1" }.to_owned())
                .collect();
            if servers.is_empty() {
                servers.push("127.0.0.1".to_owned());
            }
            v1::DnsConfig { servers, searches: vec![".".to_owned()], options: Vec::new() }
        }
    }
}

/// By the cluster's name servers, if they are known. They forward what they do not know.
fn cluster(pod: &Pod, resolver: &HostResolver, settings: &Settings) -> Option<v1::DnsConfig> {
    if settings.cluster_dns.is_empty() {
        return None;
    }
    let mut searches = Vec::new();
    let domain = &settings.cluster_domain;
    if !domain.is_empty() {
        searches.push(format!("{}.svc.{domain}", pod.metadata.namespace));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    match resolver {
        HostResolver::File(host) if domain.is_empty() => searches.clone_from(&host.searches),
        HostResolver::File(host) => append_new(&mut searches, &host.searches),
        HostResolver::Off => {}
    }
    Some(v1::DnsConfig {
        servers: settings.cluster_dns.iter().map(|ip| ip.to_canonical().to_string()).collect(),
        searches,
        options: vec!["ndots:5".to_owned()],
    })
}

fn warn_of_no_cluster_dns(pod: &Pod, warnings: &mut Vec<Warning>) {
    const REASON: &str = "MissingClusterDNS";
    let message = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" \
                   policy. Falling back to \"Default\" policy.";
    warnings.push(Warning { about: About::Node, reason: REASON, message: message.to_owned() });
    let message = format!("pod: {}. {message}", go_quote(&pod_description(pod)));
    warnings.push(Warning { about: About::Pod, reason: REASON, message });
}

fn add(config: &mut v1::DnsConfig, addition: &PodDNSConfig) {
    drop_repeated(&mut config.servers);
    append_new(&mut config.servers, &addition.nameservers);
    drop_repeated(&mut config.searches);
    append_new(&mut config.searches, &addition.searches);
    merge_options(&mut config.options, &addition.options);
}

/// An option of the pod replaces the one of the same name. Upstream's order is that of a hash map; ours is the one
/// in which options were first named.
fn merge_options(options: &mut Vec<String>, addition: &[PodDNSConfigOption]) {
    let mut merged: Vec<(String, String)> = Vec::with_capacity(options.len() + addition.len());
    let mut set = |name: &str, value: &str| match merged.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => *known = value.to_owned(),
        None => merged.push((name.to_owned(), value.to_owned())),
    };
    for option in options.iter() {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        set(name, value);
    }
    for option in addition {
        set(&option.name, option.value.as_deref().unwrap_or(""));
    }
    *options = merged
        .into_iter()
        .map(|(name, value)| if value.is_empty() { name } else { format!("{name}:{value}") })
        .collect();
}

fn limit_servers(servers: &mut Vec<String>, warnings: &mut Vec<Warning>) {
    if servers.len() > MAX_NAMESERVERS {
        servers.truncate(MAX_NAMESERVERS);
        warn_of_limits(
            warnings,
            format!(
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line \
                 is: {}",
                servers.join(" ")
            ),
        );
    }
}

fn limit_searches(searches: &mut Vec<String>, warnings: &mut Vec<Warning>) {
    let asked = searches.len();
    searches.truncate(MAX_SEARCHES);
    searches.retain(|search| search.len() <= MAX_SEARCH_PATH);
    let mut characters = searches.iter().map(|search| search.len() + 1).sum::<usize>().saturating_sub(1);
    while characters > MAX_SEARCH_CHARACTERS
        && let Some(last) = searches.pop()
    {
        characters = characters.saturating_sub(last.len() + 1);
    }
    if searches.len() < asked {
        warn_of_limits(
            warnings,
            format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line \
                 is: {}",
                searches.join(" ")
            ),
        );
    }
}

fn warn_of_limits(warnings: &mut Vec<Warning>, message: String) {
    warnings.push(Warning { about: About::Pod, reason: "DNSConfigForming", message });
}

fn append_new(list: &mut Vec<String>, more: &[impl AsRef<str>]) {
    for entry in more.iter().map(AsRef::as_ref) {
        if !list.iter().any(|known| known == entry) {
            list.push(entry.to_owned());
        }
    }
}

fn drop_repeated(list: &mut Vec<String>) {
    let all = std::mem::take(list);
    append_new(list, &all);
}

fn option_name(option: &str) -> &str {
    option.split_once(':').map_or(option, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;
    use proptest::prelude::*;

    use super::*;

    fn settings() -> Settings {
        Settings {
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            cluster_domain: "cluster.local".to_owned(),
            ..Settings::default()
        }
    }

    fn resolver() -> HostResolver {
        let text = "nameserver 1.1.1.1\nsearch corp svc.cluster.local\noptions rotate ndots:2";
        HostResolver::File(parse_resolv_conf(text).unwrap())
    }

    fn line(config: &v1::DnsConfig) -> String {
        format!("{} | {} | {}", config.servers.join(" "), config.searches.join(" "), config.options.join(" "))
    }

    fn resolved(spec: &str, settings: &Settings) -> (String, Vec<Warning>) {
        resolved_as(spec, &resolver(), settings)
    }

    fn resolved_as(spec: &str, resolver: &HostResolver, settings: &Settings) -> (String, Vec<Warning>) {
        let pod = pod_yaml(&format!("metadata: {{name: p, namespace: ns, uid: u}}\nspec: {spec}"));
        let mut warnings = Vec::new();
        let config = of_pod(&pod, resolver, &NodeFacts::default(), settings, &mut warnings);
        (line(&config), warnings)
    }

    const CLUSTER: &str = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local corp | ndots:5";
    const HOST: &str = "1.1.1.1 | corp svc.cluster.local | rotate ndots:2";

    #[test]
    fn the_policy_says_where_to_look() {
        for (spec, expected) in [
            ("{dnsPolicy: ClusterFirst}", CLUSTER),
            ("{dnsPolicy: ClusterFirst, hostNetwork: true}", HOST),
            ("{dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true}", CLUSTER),
            ("{dnsPolicy: Default}", HOST),
            ("{dnsPolicy: None}", " |  | "),
            ("{dnsPolicy: Whatever}", CLUSTER),
            ("{}", CLUSTER),
        ] {
            let (line, warnings) = resolved(spec, &settings());
            assert_eq!(line, expected, "{spec}");
            assert!(warnings.is_empty());
        }
    }

    #[test]
    fn without_a_cluster_domain_the_nodes_searches_stay() {
        let settings = Settings { cluster_domain: String::new(), ..settings() };
        assert_eq!(resolved("{}", &settings).0, "10.96.0.10 | corp svc.cluster.local | ndots:5");
    }

    #[test]
    fn without_cluster_dns_a_pod_resolves_as_the_node_does_and_both_are_told() {
        let settings = Settings { cluster_dns: Vec::new(), ..settings() };
        let (line, warnings) = resolved("{dnsPolicy: ClusterFirst}", &settings);
        assert_eq!(line, HOST);
        assert_eq!(warnings[0].about, About::Node);
        assert_eq!(
            warnings[1].message,
            "pod: \"p_ns(u)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
             \"ClusterFirst\" policy. Falling back to \"Default\" policy."
        );
    }

    #[test]
    fn without_a_resolver_file_pods_ask_the_node() {
        let off = |spec: &str| resolved_as(spec, &HostResolver::Off, &settings()).0;
        assert_eq!(off("{dnsPolicy: Default}"), "127.0.0.1 | . | ");
        assert_eq!(off("{}"), "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local | ndots:5");
        let facts = NodeFacts {
            node_ips: vec!["fd00::1".parse().unwrap(), "10.0.0.1".parse().unwrap()],
            ..NodeFacts::default()
        };
        assert_eq!(line(&host(&HostResolver::Off, &facts)), "::1 127.0.0.1 | . | ");
    }

    #[test]
    fn what_a_pod_adds_is_merged() {
        let (line, warnings) = resolved(
            "{dnsConfig: {nameservers: [9.9.9.9, 10.96.0.10], searches: [corp, x.y],
                          options: [{name: ndots, value: '2'}, {name: edns0}, {name: timeout, value: ''}]}}",
            &settings(),
        );
        assert_eq!(
            line,
            "10.96.0.10 9.9.9.9 | ns.svc.cluster.local svc.cluster.local cluster.local corp x.y | ndots:2 edns0 timeout"
        );
        assert!(warnings.is_empty());
    }

    #[test]
    fn what_is_too_much_is_cut_and_told() {
        let (line, warnings) = resolved(
            "{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3, 4.4.4.4]}}",
            &settings(),
        );
        assert_eq!(line, "1.1.1.1 2.2.2.2 3.3.3.3 |  | ");
        assert_eq!(
            warnings[0].message,
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: \
             1.1.1.1 2.2.2.2 3.3.3.3"
        );
        assert_eq!(warnings[0].reason, "DNSConfigForming");
        let three = "{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3]}}";
        assert_eq!(resolved(three, &settings()), ("1.1.1.1 2.2.2.2 3.3.3.3 |  | ".to_owned(), Vec::new()));
        let many: Vec<String> = (0..33).map(|number| format!("d{number}")).collect();
        let spec = |searches: &[String]| {
            format!("{{dnsPolicy: None, dnsConfig: {{searches: [{}]}}}}", searches.join(", "))
        };
        let (line, warnings) = resolved(&spec(&many), &settings());
        assert_eq!(line, format!(" | {} | ", many[..32].join(" ")));
        assert!(
            warnings[0].message.ends_with(&format!("the applied search line is: {}", many[..32].join(" ")))
        );
        assert!(resolved(&spec(&many[..32]), &settings()).1.is_empty());
        let long = ["a".repeat(254), "b".repeat(253)];
        let (line, warnings) = resolved(&spec(&long), &settings());
        assert_eq!(line, format!(" | {} | ", long[1]));
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn a_search_line_has_at_most_2048_characters() {
        let (line, _) = resolved(
            &format!(
                "{{dnsPolicy: None, dnsConfig: {{searches: [{}, {}, {}]}}}}",
                (b'a'..=b'h')
                    .map(|letter| (letter as char).to_string().repeat(250))
                    .collect::<Vec<_>>()
                    .join(", "),
                "i".repeat(40),
                "j"
            ),
            &settings(),
        );
        let searches: Vec<&str> = line.split(" | ").nth(1).unwrap().split(' ').collect();
        assert_eq!(searches.len(), 9, "8 × 250 and 40, with 8 spaces, are exactly 2048");
    }

    #[test]
    fn a_resolver_file_is_read_as_resolvers_read_it() {
        let config = parse_resolv_conf(
            "# comment\n; other\n  nameserver  1.1.1.1 ignored\nnameserver ::1\n\nsearch a. . b\nsearch c. d\n\
             options ndots:1 rotate\noptions ndots:3\ndomain x\r\n",
        );
        assert_eq!(line(&config.unwrap()), "1.1.1.1 ::1 | c d | ndots:3 rotate");
        assert_eq!(parse_resolv_conf("nameserver\nsearch a").unwrap_err(), ResolvConfError::NoServer);
        assert_eq!(line(&parse_resolv_conf("").unwrap()), " |  | ");
    }

    proptest! {
        #[test]
        fn merging_keeps_the_order_drops_repeats_and_stays_within_limits(
            host in prop::collection::vec("[a-c]{1,2}", 0..6),
            more in prop::collection::vec("[a-c]{1,300}", 0..40),
        ) {
            let resolver =
                HostResolver::File(v1::DnsConfig { searches: host.clone(), ..v1::DnsConfig::default() });
            let settings = Settings::default();
            let mut pod = pod_yaml("metadata: {name: p}\nspec: {dnsPolicy: Default}");
            pod.spec.dns_config = Some(Box::new(PodDNSConfig {
                searches: more.iter().map(Into::into).collect(),
                ..PodDNSConfig::default()
            }));
            let mut warnings = Vec::new();
            let config = of_pod(&pod, &resolver, &NodeFacts::default(), &settings, &mut warnings);
            let mut expected: Vec<&String> = Vec::new();
            for search in host.iter().chain(&more) {
                if !expected.contains(&search) {
                    expected.push(search);
                }
            }
            let fits = expected.len() <= 32
                && expected.iter().all(|search| search.len() <= 253)
                && expected.iter().map(|search| search.len() + 1).sum::<usize>() <= 2049;
            prop_assert_eq!(warnings.is_empty(), fits);
            prop_assert!(config.searches.len() <= 32 && config.searches.join(" ").len() <= 2048);
            let mut rest = expected.iter();
            prop_assert!(config.searches.iter().all(|search| rest.any(|other| *other == search)));
            if fits {
                prop_assert_eq!(config.searches.len(), expected.len());
            }
        }
    }
}

//! The text of a pod's `/etc/hosts`.

use std::fmt::Write;

use crablet_api::core::HostAlias;

use super::hostname::HostName;

/// The text of `/etc/hosts` for a pod with a network of its own.
pub fn pod_hosts(pod_ips: &[impl AsRef<str>], name: &HostName, aliases: &[HostAlias]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    let HostName { host, domain } = name;
    for ip in pod_ips.iter().map(AsRef::as_ref) {
        // Writing to a string never fails.
        let _ = match domain.is_empty() {
            true => writeln!(text, "{ip}\t{host}"),
            false => writeln!(text, "{ip}\t{host}.{domain}\t{host}"),
        };
    }
    add_aliases(&mut text, aliases);
    text
}

/// The text of `/etc/hosts` for a pod on the node's network: the node's own, and what the pod adds.
pub fn host_network_hosts(node_hosts: &[u8], aliases: &[HostAlias]) -> Vec<u8> {
    let mut text = b"# Kubernetes-managed hosts file (host network).\n".to_vec();
    text.extend_from_slice(node_hosts);
    let mut added = String::new();
    add_aliases(&mut added, aliases);
    text.extend_from_slice(added.as_bytes());
    text
}

fn add_aliases(text: &mut String, aliases: &[HostAlias]) {
    if aliases.is_empty() {
        return;
    }
    text.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        text.push_str(&alias.ip);
        text.push('\t');
        for (index, name) in alias.hostnames.iter().enumerate() {
            if index > 0 {
                text.push('\t');
            }
            text.push_str(name);
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn aliases() -> [HostAlias; 2] {
        let alias = |ip: &str, names: &[&str]| HostAlias {
            ip: ip.into(),
            hostnames: names.iter().map(|name| (*name).into()).collect(),
        };
        [alias("10.1.1.1", &["a", "b.c"]), alias("fd00::1", &["d"])]
    }

    #[test]
    fn a_pod_of_its_own_network_finds_itself_and_its_aliases() {
        let name = HostName { host: "web".to_owned(), domain: String::new() };
        expect![[r#"
            # Kubernetes-managed hosts file.
            127.0.0.1	localhost
            ::1	localhost ip6-localhost ip6-loopback
            fe00::0	ip6-localnet
            fe00::0	ip6-mcastprefix
            fe00::1	ip6-allnodes
            fe00::2	ip6-allrouters
            10.0.0.7	web
            fd00::7	web

            # Entries added by HostAliases.
            10.1.1.1	a	b.c
            fd00::1	d
        "#]]
        .assert_eq(&pod_hosts(&["10.0.0.7", "fd00::7"], &name, &aliases()));
    }

    #[test]
    fn a_pod_with_a_domain_is_found_by_both_names() {
        let name = HostName { host: "web".to_owned(), domain: "sub.ns.svc.cluster.local".to_owned() };
        let text = pod_hosts(&["10.0.0.7"], &name, &[]);
        assert!(text.ends_with("\n10.0.0.7\tweb.sub.ns.svc.cluster.local\tweb\n"), "{text}");
    }

    #[test]
    fn a_pod_on_the_nodes_network_sees_what_the_node_sees() {
        let text = host_network_hosts(b"127.0.0.1 localhost\n", &aliases());
        expect![[r#"
            # Kubernetes-managed hosts file (host network).
            127.0.0.1 localhost

            # Entries added by HostAliases.
            10.1.1.1	a	b.c
            fd00::1	d
        "#]]
        .assert_eq(&String::from_utf8(text).unwrap());
        assert_eq!(host_network_hosts(b"\xff", &[]).last(), Some(&0xff));
    }
}

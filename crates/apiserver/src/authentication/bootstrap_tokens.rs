//! Tokens of those who want to join: `<id>.<secret>`, kept in secrets `bootstrap-token-<id>` of `kube-system`.

use std::collections::BTreeSet;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use crate::object;
use crate::resources::SECRETS;
use crate::state::State;
use crate::who::User;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
const USER_PREFIX: &str = "system:bootstrap:";

/// Whom a token is of; none if it is no such token, or not a good one.
pub(super) fn user(state: &State, token: &str, now: Timestamp) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    let is_plain = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if !is_plain(id, 6) || !is_plain(secret, 16) {
        return None;
    }
    let kept = state.read(&SECRETS, "kube-system", &format!("bootstrap-token-{id}"))?;
    let is_good = !object::is_being_deleted(&kept)
        && kept["type"] == TYPE
        && verify_slices_are_equal(data(&kept, "token-secret").as_bytes(), secret.as_bytes()).is_ok()
        && data(&kept, "token-id") == id
        && !has_expired(&kept, now)
        && data(&kept, "usage-bootstrap-authentication") == "true";
    if !is_good {
        return None;
    }
    let groups = groups(&data(&kept, "auth-extra-groups"))?;
    Some(User { name: format!("{USER_PREFIX}{id}"), groups, ..User::default() })
}

fn data(secret: &Value, key: &str) -> String {
    let encoded = secret["data"][key].as_str().unwrap_or_default();
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn has_expired(secret: &Value, now: Timestamp) -> bool {
    match data(secret, "expiration").as_str() {
        "" => false,
        text => text.parse::<Timestamp>().is_ok_and(|at| at > now).eq(&false),
    }
}

/// None if one of the further groups is none that such a token may give.
fn groups(further: &str) -> Option<Vec<String>> {
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    for group in further.split(',').filter(|_| !further.is_empty()) {
        let rest = group.strip_prefix(GROUP)?.strip_prefix(':')?;
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b':' || byte == b'-';
        let ends_well =
            rest.bytes().last().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if rest.len() > 256 || !rest.bytes().all(is_allowed) || !ends_well {
            return None;
        }
        groups.insert(group.to_owned());
    }
    Some(groups.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-11-15T12:00:00Z";

    /// Whom `abcdef.0123456789abcdef` is of, if the secret is changed so.
    fn found(change: impl Fn(&mut Value)) -> Option<Vec<String>> {
        let encode = |text: &str| Value::from(STANDARD.encode(text));
        let mut secret = json!({
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "type": TYPE,
            "data": {
                "token-id": encode("abcdef"),
                "token-secret": encode("0123456789abcdef"),
                "usage-bootstrap-authentication": encode("true"),
                "auth-extra-groups": encode("system:bootstrappers:kubeadm:default-node-token"),
                "expiration": encode("2026-11-15T12:00:01Z"),
            },
        });
        change(&mut secret);
        let mut state = State::default();
        state.put(&SECRETS, secret);
        let user = user(&state, "abcdef.0123456789abcdef", NOW.parse().unwrap())?;
        assert_eq!(user.name, "system:bootstrap:abcdef");
        Some(user.groups)
    }

    #[test]
    fn a_good_token_is_of_a_bootstrapper_in_its_groups() {
        let expected = ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"];
        assert_eq!(found(|_| {}).unwrap(), expected);
        let none = |secret: &mut Value| {
            object::remove(&mut secret["data"], "auth-extra-groups");
            object::remove(&mut secret["data"], "expiration");
        };
        assert_eq!(found(none).unwrap(), ["system:bootstrappers"]);
    }

    #[test]
    fn all_others_are_of_nobody() {
        for (field, value) in [
            ("token-id", "abcdeg"),
            ("token-secret", "0123456789abcdee"),
            ("token-secret", ""),
            ("usage-bootstrap-authentication", "false"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
            ("expiration", "2026-11-15T12:00:00Z"),
            ("expiration", "soon"),
        ] {
            let change = |secret: &mut Value| secret["data"][field] = STANDARD.encode(value).into();
            assert_eq!(found(change), None, "{field}={value}");
        }
        assert_eq!(found(|secret| secret["type"] = "Opaque".into()), None);
        assert_eq!(found(|secret| secret["metadata"]["deletionTimestamp"] = NOW.into()), None);
        assert_eq!(found(|secret| secret["metadata"]["name"] = "bootstrap-token-abcdeg".into()), None);
        let now = NOW.parse().unwrap();
        for token in
            ["", "abcdef", "abcdef.0123456789ABCDEF", "abcdef.0123456789abcde", "abcdef.0123456789abcdef.x"]
        {
            assert_eq!(user(&State::default(), token, now), None, "{token}");
        }
    }
}

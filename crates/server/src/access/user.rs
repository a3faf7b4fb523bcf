//! [`User`]: who asks.

use crablet_api::Text;
use crablet_api::reviews::UserInfo;
use crablet_x509::Certificate;

const ALL_AUTHENTICATED: &str = "system:authenticated";
const ALL_OTHERS: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
/// Under which name it is told which certificate was shown.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct User {
    pub(crate) name: Text,
    pub(crate) uid: Text,
    pub(crate) groups: Vec<Text>,
    pub(crate) extra: Vec<(Text, Vec<Text>)>,
}

impl User {
    /// Whom nobody knows.
    pub(crate) fn anonymous() -> User {
        User { name: ANONYMOUS.into(), groups: vec![ALL_OTHERS.into()], ..User::default() }
    }

    /// Whom a certificate is of; none if it has no name.
    pub(crate) fn of_certificate(certificate: &Certificate) -> Option<User> {
        let name = certificate.common_name();
        let groups = certificate.organizations().iter().map(|group| group.as_str().into()).collect();
        let id = format!("X509SHA256={}", certificate.fingerprint()).as_str().into();
        let extra = vec![(CREDENTIAL_ID.into(), vec![id])];
        let user = User { name: name.as_str().into(), groups, extra, uid: Text::default() };
        (!name.is_empty()).then(|| user.authenticated())
    }

    /// Whom a server says that a token is of.
    pub(crate) fn of_review(info: UserInfo) -> User {
        let extra = info.extra.iter().map(|(name, values)| (name.into(), values.to_vec())).collect();
        User { name: info.username, uid: info.uid, groups: info.groups.into_vec(), extra }.authenticated()
    }

    /// One of those who are known, unless the server says that nobody knows him.
    fn authenticated(mut self) -> User {
        let says = |group: &Text| [ALL_AUTHENTICATED, ALL_OTHERS].contains(&&**group);
        if *self.name != *ANONYMOUS && !self.groups.iter().any(says) {
            self.groups.push(ALL_AUTHENTICATED.into());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_known_is_of_the_group_of_all_who_are() {
        for (name, groups, expected) in [
            ("ann", &["dev"][..], &["dev", ALL_AUTHENTICATED][..]),
            ("ann", &[ALL_AUTHENTICATED, "dev"], &[ALL_AUTHENTICATED, "dev"]),
            (ANONYMOUS, &["dev"], &["dev"]),
            ("ann", &[ALL_OTHERS], &[ALL_OTHERS]),
        ] {
            let groups = groups.iter().map(|group| Text::from(*group)).collect();
            let info = UserInfo { username: name.into(), groups, ..UserInfo::default() };
            assert_eq!(User::of_review(info).groups, expected, "{name}");
        }
    }
}

//! [`User`]: who asks.

use crablet_api::Text;
use crablet_api::reviews::UserInfo;
use crablet_x509::Certificate;

const ALL_AUTHENTICATED: &str = "system:authenticated";
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
        let groups = vec!["system:unauthenticated".into()];
        User { name: "system:anonymous".into(), groups, ..User::default() }
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

    fn authenticated(mut self) -> User {
        if !self.groups.iter().any(|group| *group == *ALL_AUTHENTICATED) {
            self.groups.push(ALL_AUTHENTICATED.into());
        }
        self
    }
}

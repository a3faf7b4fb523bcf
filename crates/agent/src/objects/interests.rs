//! Who is told when which object changes, or a token is to be renewed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::Text;
use crablet_api::core::{Pod, VolumeProjection, VolumeSource};
use crablet_core::translate::{ObjectKind, pod_references};

use crate::mailbox::{Input, Mailbox};

/// What somebody is told of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// An object by its kind, namespace and name.
    Object(ObjectKind, Text, Text),
    /// The tokens of the pod that has this UID.
    Tokens(Text),
    /// What others keep for pods: a driver of it may come.
    Storage,
    /// Whom to trust.
    TrustBundles,
    /// The certificates of the pod that has this UID.
    Certificates(Text),
}

/// Which pods refer to which objects. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Interests(Arc<Mutex<Registered>>);

#[derive(Debug, Default)]
struct Registered {
    /// The number of the next interest.
    next: u64,
    /// Those who are told, by the number of their interest. Nothing is here that nobody refers to.
    mailboxes: BTreeMap<Key, BTreeMap<u64, Mailbox>>,
}

impl Interests {
    /// Nobody refers to anything yet.
    pub fn new() -> Interests {
        Interests::default()
    }

    /// Has the mailbox of a pod told of what changes, for as long as the answer is kept. There is none for a pod that
    /// refers to nothing.
    pub fn register(&self, pod: &Pod, mailbox: &Mailbox) -> Option<Interest> {
        let namespace = &pod.metadata.namespace;
        let keys: Box<[Key]> = pod_references(pod)
            .into_iter()
            .map(|(kind, name)| Key::Object(kind, namespace.clone(), Text::from(name)))
            .chain(has_tokens(pod).then(|| Key::Tokens(pod.metadata.uid.clone())))
            .chain(has_storage(pod).then_some(Key::Storage))
            .chain(has_trust_bundles(pod).then_some(Key::TrustBundles))
            .chain(has_certificates(pod).then(|| Key::Certificates(pod.metadata.uid.clone())))
            .collect();
        if keys.is_empty() {
            return None;
        }
        let mut registered = self.lock();
        let number = registered.next;
        registered.next += 1;
        for key in &keys {
            registered.mailboxes.entry(key.clone()).or_default().insert(number, mailbox.clone());
        }
        Some(Interest(Box::new(Kept { interests: self.clone(), number, keys, with: None })))
    }

    /// Tells those who refer to an object that it changed: it came, went, or holds something else.
    pub fn changed(&self, kind: ObjectKind, namespace: &str, name: &str) {
        self.tell(&Key::Object(kind, namespace.into(), name.into()));
    }

    /// Tells a pod that a token of its is to be renewed.
    pub fn token_is_due(&self, uid: &str) {
        self.tell(&Key::Tokens(uid.into()));
    }

    /// Tells a pod that a certificate of its is there, is another, or will not be.
    pub fn certificate_changed(&self, uid: &str) {
        self.tell(&Key::Certificates(uid.into()));
    }

    /// Tells everybody who has volumes that others keep that they may be there now.
    pub fn storage_may_be_there(&self) {
        self.tell(&Key::Storage);
    }

    /// Tells everybody who shows whom to trust that it may be somebody else.
    pub fn trust_bundles_may_have_changed(&self) {
        self.tell(&Key::TrustBundles);
    }

    /// Tells everybody who refers to any object that it may have changed.
    pub fn all_may_have_changed(&self) {
        for (key, mailboxes) in &self.lock().mailboxes {
            if let Key::Object(..) = key {
                mailboxes.values().for_each(|mailbox| mailbox.tell(Input::Objects));
            }
        }
    }

    /// Whether a pod refers to an object.
    pub fn refer_to(&self, kind: ObjectKind, namespace: &str, name: &str) -> bool {
        self.lock().mailboxes.contains_key(&Key::Object(kind, namespace.into(), name.into()))
    }

    fn tell(&self, key: &Key) {
        for mailbox in self.lock().mailboxes.get(key).into_iter().flat_map(BTreeMap::values) {
            mailbox.tell(Input::Objects);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a pod has volumes that others keep.
fn has_storage(pod: &Pod) -> bool {
    let mut sources = pod.spec.volumes.iter().filter_map(|volume| volume.source.one());
    sources.any(|source| {
        matches!(
            source,
            VolumeSource::PersistentVolumeClaim(_) | VolumeSource::Ephemeral(_) | VolumeSource::Csi(_)
        )
    })
}

/// Whether a pod shows tokens of its service account.
fn has_tokens(pod: &Pod) -> bool {
    projections(pod).any(|projection| matches!(projection, VolumeProjection::ServiceAccountToken(_)))
}

/// Whether a pod shows whom to trust.
fn has_trust_bundles(pod: &Pod) -> bool {
    projections(pod).any(|projection| matches!(projection, VolumeProjection::ClusterTrustBundle(_)))
}

/// Whether a pod shows certificates of its own.
fn has_certificates(pod: &Pod) -> bool {
    projections(pod).any(|projection| matches!(projection, VolumeProjection::PodCertificate(_)))
}

fn projections(pod: &Pod) -> impl Iterator<Item = &VolumeProjection> {
    let sources = pod.spec.volumes.iter().filter_map(|volume| volume.source.one());
    let projections = sources.flat_map(|source| match source {
        VolumeSource::Projected(volume) => &*volume.sources,
        _ => &[],
    });
    projections.filter_map(|projection| projection.one())
}

/// A pod's interest in the objects that it refers to. Who drops it takes it back.
#[must_use = "an interest is taken back when it is dropped"]
pub struct Interest(Box<Kept>);

struct Kept {
    interests: Interests,
    number: u64,
    keys: Box<[Key]>,
    with: Option<Box<dyn Send + Sync>>,
}

impl Interest {
    /// Keeps something for as long as the interest is there.
    pub fn with(mut self, kept: impl Send + Sync + 'static) -> Interest {
        self.0.with = Some(Box::new(kept));
        self
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Interest").field(&self.0.keys).finish()
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let Kept { interests, number, keys, with: _ } = &*self.0;
        let mut registered = interests.lock();
        for key in keys {
            if let Some(mailboxes) = registered.mailboxes.get_mut(key) {
                mailboxes.remove(number);
                if mailboxes.is_empty() {
                    registered.mailboxes.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod_yaml;

    fn pod(namespace: &str, volume: &str) -> Pod {
        let volume = format!("volumes: [{{name: v, {volume}}}]");
        pod_yaml(&format!("metadata: {{name: p, namespace: {namespace}}}\nspec: {{{volume}}}"))
    }

    #[test]
    fn a_pod_is_told_when_something_changes_that_it_refers_to_and_of_nothing_else() {
        let interests = Interests::new();
        let (one, other) = (Mailbox::new(), Mailbox::new());
        let _one = interests.register(&pod("a", "configMap: {name: x}"), &one);
        let _other = interests.register(&pod("b", "secret: {secretName: x}"), &other);
        interests.changed(ObjectKind::ConfigMap, "a", "x");
        assert!(one.take().objects && !other.take().objects);
        interests.changed(ObjectKind::ConfigMap, "a", "y");
        interests.changed(ObjectKind::ConfigMap, "b", "x");
        interests.changed(ObjectKind::Secret, "a", "x");
        assert!(!one.take().objects && !other.take().objects);
        interests.changed(ObjectKind::Secret, "b", "x");
        assert!(!one.take().objects && other.take().objects);
    }

    #[test]
    fn who_waits_for_storage_is_told_when_it_may_be_there() {
        let interests = Interests::new();
        let other = Mailbox::new();
        let _other = interests.register(&pod("a", "configMap: {name: x}"), &other);
        for volume in ["persistentVolumeClaim: {claimName: c}", "csi: {driver: d}", "ephemeral: {}"] {
            let waits = Mailbox::new();
            let _interest = interests.register(&pod("a", volume), &waits).unwrap();
            interests.storage_may_be_there();
            assert!(waits.take().objects && !other.take().objects, "{volume}");
        }
    }

    #[test]
    fn who_shows_whom_to_trust_is_told_when_that_changes() {
        let interests = Interests::new();
        let (shows, other) = (Mailbox::new(), Mailbox::new());
        let source = "projected: {sources: [{clusterTrustBundle: {name: b, path: p}}]}";
        let _shows = interests.register(&pod("a", source), &shows).unwrap();
        let _other = interests.register(&pod("a", "configMap: {name: x}"), &other).unwrap();
        interests.trust_bundles_may_have_changed();
        assert!(shows.take().objects && !other.take().objects);
    }

    #[test]
    fn an_interest_ends_with_its_guard_and_leaves_that_of_others() {
        let interests = Interests::new();
        let (one, other) = (Mailbox::new(), Mailbox::new());
        let pod = pod("a", "configMap: {name: x}");
        let first = interests.register(&pod, &one);
        let second = interests.register(&pod, &other);
        drop(first);
        interests.changed(ObjectKind::ConfigMap, "a", "x");
        assert!(!one.take().objects && other.take().objects);
        assert!(interests.refer_to(ObjectKind::ConfigMap, "a", "x"));
        drop(second);
        assert!(!interests.refer_to(ObjectKind::ConfigMap, "a", "x"));
    }

    #[test]
    fn a_pod_with_a_token_is_told_when_that_is_to_be_renewed() {
        let interests = Interests::new();
        let mut pod = pod("a", "projected: {sources: [{serviceAccountToken: {path: token}}]}");
        pod.metadata.uid = "uid".into();
        let mailbox = Mailbox::new();
        let interest = interests.register(&pod, &mailbox);
        interests.token_is_due("other");
        interests.all_may_have_changed();
        assert!(!mailbox.take().objects);
        interests.token_is_due("uid");
        assert!(mailbox.take().objects);
        drop(interest);
        interests.token_is_due("uid");
        assert!(!mailbox.take().objects);
    }

    #[test]
    fn a_pod_with_a_certificate_is_told_when_that_changes() {
        let interests = Interests::new();
        let mut pod = pod("a", "projected: {sources: [{podCertificate: {signerName: a/b, keyPath: p}}]}");
        pod.metadata.uid = "uid".into();
        let mailbox = Mailbox::new();
        let _interest = interests.register(&pod, &mailbox).unwrap();
        interests.certificate_changed("other");
        interests.token_is_due("uid");
        assert!(!mailbox.take().objects);
        interests.certificate_changed("uid");
        assert!(mailbox.take().objects);
    }

    #[test]
    fn what_is_kept_with_an_interest_goes_with_it() {
        let kept = Arc::new(());
        let interest = Interests::new().register(&pod("a", "secret: {secretName: x}"), &Mailbox::new());
        let interest = interest.map(|interest| interest.with(Arc::clone(&kept)));
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(interest);
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[test]
    fn a_pod_that_refers_to_nothing_has_no_interest() {
        assert!(Interests::new().register(&pod("a", "emptyDir: {}"), &Mailbox::new()).is_none());
    }
}

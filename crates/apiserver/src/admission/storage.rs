//! Claims: the class of those who name none, and whether one may grow.

use serde_json::Value;

use super::forbidden;
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::resources::STORAGE_CLASSES;
use crate::rules::pods::quantity;
use crate::status::Refusal;

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_ANNOTATIONS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

pub(super) fn set_default_class(cluster: &Cluster, claim: &mut Value) {
    let is_said = !claim["spec"]["storageClassName"].is_null()
        || claim["metadata"]["annotations"].get(CLASS_ANNOTATION).is_some();
    if is_said || !claim["spec"].is_object() {
        return;
    }
    let classes = cluster.state.read_all(&STORAGE_CLASSES, None);
    let defaults = classes.filter(|class| {
        DEFAULT_ANNOTATIONS.iter().any(|key| object::at(class, &["metadata", "annotations", key]) == "true")
    });
    // The newest, and of those that are as new the first by name.
    let newest = defaults.max_by(|one, other| {
        let created = |class: &Value| object::meta(class, "creationTimestamp").to_owned();
        created(one).cmp(&created(other)).then_with(|| object::name(other).cmp(object::name(one)))
    });
    if let Some(class) = newest {
        claim["spec"]["storageClassName"] = object::name(&class).into();
    }
}

pub(super) fn check_resize(
    cluster: &Cluster,
    call: &Call<'_>,
    claim: &Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    let Some(old) = old else { return Ok(()) };
    let size =
        |claim: &Value| quantity(&claim["spec"]["resources"]["requests"]["storage"]).unwrap_or_default();
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        return Err(forbidden(call, claim, "Only bound persistent volume claims can be expanded"));
    }
    let class = |claim: &Value| match object::text(claim, &["metadata", "annotations", CLASS_ANNOTATION]) {
        "" => object::text(claim, &["spec", "storageClassName"]).to_owned(),
        class => class.to_owned(),
    };
    let allows = class(claim) == class(old)
        && cluster
            .state
            .read(&STORAGE_CLASSES, "", &class(claim))
            .is_some_and(|class| class["allowVolumeExpansion"] == true);
    if allows {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
               support resize";
    Err(forbidden(call, claim, why))
}

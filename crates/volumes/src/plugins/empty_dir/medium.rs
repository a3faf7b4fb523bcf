//! What an empty directory is kept on, and how large that is.

use crablet_api::Quantity;
use crablet_api::core::{Pod, StorageMedium};
use crablet_api::resource_names::huge_page_size;
use crablet_core::qos::PodLevel;

use crate::error::PluginError;

/// What an empty directory is kept on.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::plugins) enum Medium {
    /// The disk that the root directory is on.
    Disk,
    Memory,
    /// Memory in huge pages.
    HugePages {
        /// As the pod calls it.
        word: String,
        /// Which, if the pod says.
        size: Option<Quantity>,
    },
}

impl Medium {
    pub(in crate::plugins) fn new(medium: Option<&StorageMedium>) -> Result<Medium, PluginError> {
        let word = match medium {
            None => return Ok(Medium::Disk),
            Some(StorageMedium::Memory) => return Ok(Medium::Memory),
            Some(StorageMedium::HugePages) => {
                return Ok(Medium::HugePages { word: "HugePages".to_owned(), size: None });
            }
            Some(StorageMedium::Other(word)) => word,
        };
        match word.strip_prefix("HugePages-") {
            Some(size) => {
                let size = size.parse().map_err(|_| PluginError::HugePageSize(size.to_owned()))?;
                Ok(Medium::HugePages { word: word.to_string(), size: Some(size) })
            }
            None if word.is_empty() => Ok(Medium::Disk),
            None => Err(PluginError::Medium(word.to_string())),
        }
    }
}

/// How many bytes a directory in memory may hold: as many as pods may use of the node, or fewer if the pod may use
/// fewer, or fewer if the volume says so. None leaves it to the kernel.
pub(super) fn memory_size(
    allocatable: Option<&Quantity>,
    pod_limit: Option<u64>,
    size_limit: Option<&Quantity>,
) -> Option<u64> {
    let mut size = allocatable.cloned().unwrap_or_default();
    let pod_limit = pod_limit.map(|limit| Quantity::from_value(i64::try_from(limit).unwrap_or(i64::MAX)));
    for limit in pod_limit.iter().chain(size_limit) {
        if limit.sign() > 0 && *limit <= size {
            size = limit.clone();
        }
    }
    u64::try_from(size.value()).ok().filter(|size| *size > 0)
}

/// The size of the huge pages of a volume: the one that containers ask for.
pub(super) fn page_size(
    pod: &Pod,
    pod_level: PodLevel,
    word: &str,
    wanted: Option<&Quantity>,
) -> Result<Quantity, PluginError> {
    let spec = &pod.spec;
    let whole = spec.resources.iter().filter(|_| pod_level == PodLevel::Counted).map(|whole| &whole.requests);
    let each = spec.init_and_regular_containers().map(|container| &container.resources.requests);
    let mut found: Option<Quantity> = None;
    for name in whole.chain(each).flat_map(|requests| requests.keys()) {
        let Some(size) = huge_page_size(name) else { continue };
        let size: Quantity = size.parse().map_err(|_| PluginError::HugePageSize(size.to_owned()))?;
        match wanted {
            Some(wanted) if *wanted != size => {}
            Some(_) => found = Some(size),
            None if found.as_ref().is_some_and(|other| *other != size) => {
                return Err(PluginError::SeveralHugePages(word.to_owned()));
            }
            None => found = Some(size),
        }
    }
    found.ok_or_else(|| PluginError::NoHugePages(word.to_owned()))
}

/// The size of the pages of a mount. The kernel writes `2M` for what is 2Mi.
pub(super) fn mounted_page_size(options: &str) -> Option<Quantity> {
    let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="))?;
    format!("{}i", size.trim_end_matches('i')).parse().ok()
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn the_smallest_of_what_node_pod_and_volume_allow_counts() {
        for (allocatable, pod, volume, expected) in [
            ("4Gi", None, None, Some(4 << 30)),
            ("4Gi", Some(1 << 30), None, Some(1 << 30)),
            ("4Gi", Some(1 << 30), Some("2Gi"), Some(1 << 30)),
            ("4Gi", Some(2 << 30), Some("1Gi"), Some(1 << 30)),
            ("4Gi", Some(8 << 30), Some("6Gi"), Some(4 << 30)),
            ("4Gi", Some(0), Some("0"), Some(4 << 30)),
            ("4Gi", None, Some("4Gi"), Some(4 << 30)),
            ("4Gi", None, Some("1500m"), Some(2)),
            ("0", Some(1 << 30), Some("1Gi"), None),
        ] {
            let volume = volume.map(quantity);
            let size = memory_size(Some(&quantity(allocatable)), pod, volume.as_ref());
            assert_eq!(size, expected, "{allocatable} {pod:?} {volume:?}");
        }
        assert_eq!(memory_size(None, Some(1), None), None);
    }

    proptest! {
        #[test]
        fn no_volume_in_memory_is_larger_than_node_pod_and_volume_allow(
            node in 1_u32.., pod in proptest::option::of(1_u64..1 << 33), volume in proptest::option::of(1_u32..)
        ) {
            let limit = volume.map(|volume| Quantity::from_value(volume.into()));
            let size = memory_size(Some(&Quantity::from_value(node.into())), pod, limit.as_ref()).unwrap();
            let least = [Some(node.into()), pod, volume.map(u64::from)].into_iter().flatten().min();
            prop_assert_eq!(Some(size), least);
        }
    }

    #[test]
    fn media_are_read() {
        let medium = |word: &str| Medium::new(Some(&word.into())).map_err(|error| error.to_string());
        let huge = |word: &str, size: Option<&str>| Medium::HugePages {
            word: word.to_owned(),
            size: size.map(quantity),
        };
        assert_eq!(Medium::new(None).unwrap(), Medium::Disk);
        assert_eq!(medium(""), Ok(Medium::Disk));
        assert_eq!(medium("Memory"), Ok(Medium::Memory));
        assert_eq!(medium("HugePages"), Ok(huge("HugePages", None)));
        assert_eq!(medium("HugePages-2Mi"), Ok(huge("HugePages-2Mi", Some("2Mi"))));
        assert_eq!(medium("HugePages-x"), Err("x is not a size of huge pages".to_owned()));
        assert_eq!(medium("Tape"), Err("unknown storage medium \"Tape\"".to_owned()));
    }

    #[test]
    fn the_size_of_huge_pages_is_what_containers_ask_for() {
        let two = "{containers: [{name: c, resources: {requests: {hugepages-2Mi: 4Mi}}}]}";
        let both = "{containers: [{name: c, resources: {requests: {hugepages-2Mi: 4Mi}}}],
                     initContainers: [{name: i, resources: {requests: {hugepages-1Gi: 1Gi, cpu: 1}}}]}";
        let whole = "{resources: {requests: {hugepages-2Mi: 4Mi}}, containers: [{name: c}]}";
        for (spec, word, expected) in [
            (two, "HugePages", "2Mi"),
            (two, "HugePages-2Mi", "2Mi"),
            (
                two,
                "HugePages-1Gi",
                "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages",
            ),
            (
                both,
                "HugePages",
                "medium: HugePages can't be used if container requests multiple huge page sizes",
            ),
            (both, "HugePages-1Gi", "1Gi"),
            (whole, "HugePages", "2Mi"),
            (
                "{containers: [{name: c}]}",
                "HugePages",
                "medium HugePages: hugePages storage requested, but there is no resource request for huge pages",
            ),
        ] {
            let pod = pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}"));
            let wanted = word.strip_prefix("HugePages-").map(quantity);
            let size = page_size(&pod, PodLevel::Counted, word, wanted.as_ref());
            assert_eq!(size.map_or_else(|error| error.to_string(), |size| size.to_string()), expected);
        }
        let pod = pod_yaml(&format!("metadata: {{name: p}}\nspec: {whole}"));
        assert!(page_size(&pod, PodLevel::Ignored, "HugePages", None).is_err());
    }

    #[test]
    fn the_kernels_way_to_write_sizes_is_read() {
        assert_eq!(mounted_page_size("rw,relatime,pagesize=2M"), Some(quantity("2Mi")));
        assert_eq!(mounted_page_size("rw,pagesize=1024M"), Some(quantity("1Gi")));
        assert_eq!(mounted_page_size("rw"), None);
    }
}

//! What the name of a resource says of it.

use crate::names::qualified_name_errors;

const HUGE_PAGES: &str = "hugepages-";

/// Whether the resource is huge pages, of whatever size.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// The size of the huge pages that the resource is, as its name has it: `2Mi` for `hugepages-2Mi`.
pub fn huge_page_size(name: &str) -> Option<&str> {
    name.strip_prefix(HUGE_PAGES)
}

/// The resource that huge pages of that size are.
pub fn huge_pages_of(size: &str) -> String {
    format!("{HUGE_PAGES}{size}")
}

/// Whether the resource is one of Kubernetes' own; a name without a domain is.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the resource is one that a device plugin or a driver brings, such as `example.com/gpu`.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && qualified_name_errors(&format!("requests.{name}")).is_empty()
}

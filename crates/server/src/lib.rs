//! The endpoints of the node: health, read-only and administration

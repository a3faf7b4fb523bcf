//! The kubelet's configuration: flags, files, drop-ins, feature gates, defaults and validation

//! Logs in the kubelet's formats, with verbosity that changes at run time

//! A private containerd, images built offline, and waiting for conditions

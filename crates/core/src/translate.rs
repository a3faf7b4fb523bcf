//! A pod's spec, translated to CRI.

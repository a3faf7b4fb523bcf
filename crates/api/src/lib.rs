//! The Kubernetes objects the agent reads and writes, as lean types, and how they are decoded

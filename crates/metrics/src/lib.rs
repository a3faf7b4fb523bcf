//! A metrics registry and the Prometheus text format

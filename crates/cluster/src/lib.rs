//! The agent's part in a cluster: what it hears from an API server, and what it tells it.

pub mod objects;
mod registry;
#[cfg(test)]
mod testing;
pub mod tokens;

//! What is lost on purpose when a configuration is written, because the Go kubelet loses it too.

use crablet_api::Quantity;
use crablet_config::KubeletConfiguration;

/// A quantity of 10^21 or more can come out without its suffix. Only quantities that are kept as numbers are
/// written anew; the others are kept as they were written.
pub fn has_unwritable_quantity(configuration: &KubeletConfiguration) -> bool {
    let options = &configuration.logging.options;
    let buffers = [&options.text, &options.json].map(|routing| &routing.info_buffer_size);
    let reserved = configuration.reserved_memory.iter().flat_map(|reservation| reservation.limits.values());
    buffers.into_iter().chain(reserved).any(is_unwritable)
}

fn is_unwritable(quantity: &Quantity) -> bool {
    let limit: Quantity = "1e21".parse().expect("this is a quantity");
    *quantity >= limit || *quantity <= -limit
}

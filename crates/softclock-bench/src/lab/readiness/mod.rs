//! Sets of descriptors to wait for, and measurements over all mechanisms in turn (*Event Delivery*, section 7.2).

pub mod rounds;
pub mod sets;

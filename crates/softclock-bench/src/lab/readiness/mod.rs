//! Sets of descriptors whose events are waited for, and rounds over all mechanisms (*Event Delivery*, section 7.2).

pub mod rounds;
pub mod sets;

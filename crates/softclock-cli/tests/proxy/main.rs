//! `softclock proxy` as its users see it: the real program between raw sockets, and between servers that are killed.

#[allow(dead_code, reason = "shared with the tests of serve")]
#[path = "../serve/client.rs"]
mod client;
#[allow(dead_code, reason = "shared with the tests of serve")]
#[path = "../serve/h2_frames.rs"]
mod h2_frames;
#[allow(dead_code, reason = "shared with the tests of serve")]
#[path = "../serve/own_stack.rs"]
mod own_stack;
#[allow(dead_code, reason = "shared with the tests of serve")]
#[path = "../serve/server.rs"]
mod server;
#[allow(dead_code, reason = "shared with the tests of serve")]
#[path = "../serve/successor.rs"]
mod successor;

mod behind_upgrades;
mod budget;
mod departures;
mod failing;
mod fields;
mod half_closed;
mod haproxy;
mod hostile;
mod http2;
mod kept;
mod loops;
mod memory;
mod passing;
mod reload;
mod reply;
mod retries;
mod smuggling;
mod soak;
mod stopped;
mod timeouts;
mod tls;
mod top;
mod upgrades;
mod upload_share;
mod uploads;
mod upstream;

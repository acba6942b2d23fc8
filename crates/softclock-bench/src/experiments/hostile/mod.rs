//! `hostile/…`: the service that another client gets from `softclock serve` and `softclock proxy` during attacks,
//! beside nginx and HAProxy.

mod control_frames;
mod departed_clients;
mod frame_floods;
mod many_fields;
mod metrics;
mod slow_clients;
mod slow_uploads;
mod stalled_streams;
mod stopped;

pub use control_frames::EXPERIMENT as CONTROL_FRAMES;
pub use departed_clients::EXPERIMENT as DEPARTED_CLIENTS;
pub use frame_floods::EXPERIMENT as FRAME_FLOODS;
pub use many_fields::EXPERIMENT as MANY_FIELDS;
pub use metrics::EXPERIMENT as METRICS;
pub use slow_clients::EXPERIMENT as SLOW_CLIENTS;
pub use slow_uploads::EXPERIMENT as SLOW_UPLOADS;
pub use stalled_streams::EXPERIMENT as STALLED_STREAMS;
pub use stopped::EXPERIMENT as STOPPED;

use crate::lab::hostile::subject::{Program, Subject};

/// softclock with its defaults.
const SOFTCLOCK: Subject = Subject {
    name: "softclock",
    program: Program::Softclock,
    settings: "",
};

/// nginx with its defaults.
const NGINX: Subject = Subject {
    name: "nginx",
    program: Program::Nginx,
    settings: "",
};

/// nginx with its documented limit of connections by client address, which counts each stream of HTTP/2.
const NGINX_LIMITED: Subject = Subject {
    name: "nginx, limit_conn",
    program: Program::Nginx,
    settings: "limit_conn_zone $binary_remote_addr zone=c:1m; limit_conn c 20;",
};

/// nginx with its documented limit of requests by client address.
const NGINX_LIMIT_REQ: Subject = Subject {
    name: "nginx, limit_req",
    settings: "limit_req_zone $binary_remote_addr zone=r:1m rate=1000r/s; limit_req zone=r burst=200 nodelay;",
    ..NGINX
};

/// HAProxy with its defaults.
const HAPROXY: Subject = Subject {
    name: "HAProxy",
    program: Program::HaProxy,
    settings: "",
};

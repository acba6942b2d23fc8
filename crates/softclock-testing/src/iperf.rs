//! iperf3, whose server takes one client at a time.

use std::thread;
use std::time::{Duration, Instant};

/// Returns the output of iperf3's client, which `run` runs to its end. The server may be busy with the former client for
/// a while after that has ended; the client is run again then.
pub fn iperf3(mut run: impl FnMut() -> String) -> String {
    let since = Instant::now();
    loop {
        let output = run();
        if !output.contains("the server is busy") || since.elapsed() > PATIENCE {
            return output;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

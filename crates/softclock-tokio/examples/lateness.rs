//! Compares sleeps of this crate with tokio's: their lateness, and the processor time of each.
//!
//! `cargo run --release -p softclock-tokio --example lateness [COUNT]`

use std::future::Future;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let count = count.unwrap_or(2_000);
    println!("lateness in us; processor time of the process in us a sleep");
    println!("sleep     timers        p50     p99   processor");
    for us in [50, 100, 250, 1_000, 3_000] {
        let duration = Duration::from_micros(us);
        measure("softclock", duration, count, softclock_tokio::sleep).await;
        measure("tokio", duration, count, tokio::time::sleep).await;
    }
}

async fn measure<F: Future>(
    name: &str,
    duration: Duration,
    count: usize,
    sleep: impl Fn(Duration) -> F,
) {
    sleep(duration).await;
    let before = processor_time();
    let mut late = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        sleep(duration).await;
        late.push(start.elapsed().saturating_sub(duration));
    }
    let each = (processor_time() - before) / count as u32;
    late.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{:7} us {name:10} {:7.1} {:7.1} {:11.1}",
        duration.as_micros(),
        us(late[count / 2]),
        us(late[count * 99 / 100]),
        us(each)
    );
}

/// The processor time that all threads of the process have used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

//! Runs an event every 20 us beside a busy server, and prints how late the events were, and at which trigger states
//! they fired.
//!
//! A client thread keeps the server busy for a second. Each socket call of the server and each end of a task is a
//! trigger state, at which the runtime compares the clock with the time of the event.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use softclock::net::{TcpListener, TcpStream};
use softclock::{Runtime, TriggerState, schedule_after, spawn_local};

const PERIOD_TICKS: u64 = 20; // a tick is a microsecond
const RUN: Duration = Duration::from_secs(1);

fn main() -> io::Result<()> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let client = thread::spawn(move || keep_busy(address));

        let fired = Rc::new(Cell::new(0));
        let count = Rc::clone(&fired);
        let event = schedule_after(Duration::ZERO, move |context| {
            count.set(count.get() + 1);
            // Rescheduling the running handler allocates nothing.
            context.reschedule(PERIOD_TICKS);
        });

        let (stream, _) = listener.accept().await?;
        let requests = spawn_local(echo(stream)).await?;
        event.cancel();
        client.join().expect("the client does not panic")?;

        println!(
            "{requests} requests were answered, {} events fired",
            fired.get()
        );
        let statistics = softclock::statistics();
        for state in TriggerState::ALL {
            let counts = statistics.triggers.of(state);
            if counts.fired() > 0 {
                let (half, most) = (
                    counts.lateness.quantile_ns(0.5),
                    counts.lateness.quantile_ns(0.99),
                );
                println!(
                    "{:>12}: {:>7} events, late by p50 {half} ns, p99 {most} ns",
                    state.name(),
                    counts.fired()
                );
            }
        }
        Ok(())
    })
}

async fn echo(stream: TcpStream) -> io::Result<u64> {
    let mut buffer = [0; 64];
    let mut requests = 0;
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(requests),
            length => stream.write_all(&buffer[..length]).await?,
        }
        requests += 1;
    }
}

fn keep_busy(address: SocketAddr) -> io::Result<()> {
    let mut stream = std::net::TcpStream::connect(address)?;
    let end = Instant::now() + RUN;
    let mut buffer = [0; 64];
    while Instant::now() < end {
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
    }
    Ok(())
}

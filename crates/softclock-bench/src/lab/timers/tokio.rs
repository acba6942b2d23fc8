//! Timers of tokio and of softclock-tokio, on tokio's runtime of the current thread.

use std::future::Future;
use std::io;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::task::yield_now;

use crate::lab::sleepers::{Order, load, measure, sleep_forever, tally};
use crate::random::Random;

/// Arguments of `tokio-timers`.
#[derive(Args, Debug)]
pub struct TokioTimers {
    kind: Kind,
    task: Task,
    /// Pairs of sockets.
    pairs: u32,
    #[command(flatten)]
    order: Order,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Tokio,
    SoftclockTokio,
}

/// Costs of operations are not measured: a sleep of an async runtime is a task's, too.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Task {
    Late,
}

impl TokioTimers {
    /// Sleeps as ordered and prints the finding.
    ///
    /// # Errors
    /// The runtime or a socket cannot be created.
    pub fn run(&self) -> io::Result<()> {
        let Task::Late = self.task;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            match self.kind {
                Kind::Tokio => self.sleep_by(tokio::time::sleep).await,
                Kind::SoftclockTokio => self.sleep_by(softclock_tokio::sleep).await,
            }
        })?;
        print!("{}", tally::finding());
        Ok(())
    }

    async fn sleep_by<S, F>(&self, sleep: S) -> io::Result<()>
    where
        S: Fn(Duration) -> F + Copy + Send + 'static,
        F: Future + Send + 'static,
    {
        for pair in 0..self.pairs {
            let (one, other) = UnixStream::pair()?;
            one.writable().await?;
            one.try_write(&[0; MESSAGE])?;
            for (socket, place) in [(one, 0), (other, 1)] {
                tokio::spawn(serve(socket, Random(u64::from(2 * pair + place) + 1)));
            }
        }
        for timer in 0..self.order.timers {
            tokio::spawn(sleep_forever(self.order.lengths(timer), sleep));
        }
        measure(self.order, tokio::time::sleep).await;
        Ok(())
    }
}

/// Works 5 to 20 us for each message, and sends it back to the other socket of the pair.
async fn serve(socket: UnixStream, mut random: Random) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    loop {
        socket.readable().await?;
        match socket.try_read(&mut message) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                load::burst_of(Duration::from_nanos(5000 + random.below(15_001)));
                socket.try_write(&message[..length])?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        yield_now().await;
    }
}

const MESSAGE: usize = 64;

//! async-io's timers, on async-executor.

use std::io;

use async_executor::LocalExecutor;
use async_io::{Async, Timer};
use futures_lite::future::yield_now;

use super::{Order, load, measure, sleep_forever};

pub(super) fn sleep_as(order: Order) -> io::Result<()> {
    let executor = LocalExecutor::new();
    async_io::block_on(executor.run(async {
        let _load = executor.spawn(work());
        let _timers: Vec<_> = (0..order.timers)
            .map(|timer| executor.spawn(sleep_forever(order.lengths(timer), Timer::after)))
            .collect();
        measure(order, Timer::after).await;
    }));
    Ok(())
}

async fn work() -> io::Result<()> {
    let input = Async::new(load::input()?)?;
    while input.read_with(load::take).await? {
        load::burst();
        yield_now().await;
    }
    Ok(())
}

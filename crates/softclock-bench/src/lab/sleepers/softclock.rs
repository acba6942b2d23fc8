//! softclock's timers.

use std::io;

use softclock::{Descriptor, Runtime, sleep, spawn_local, yield_now};

use super::{Order, load, measure, sleep_forever};

pub(super) fn sleep_as(order: Order, spin_cap: Option<f64>) -> io::Result<()> {
    let mut builder = Runtime::builder();
    if let Some(share) = spin_cap {
        builder = builder.spin_cap(share);
    }
    let runtime = builder.build()?;
    runtime.block_on(async {
        let _load = spawn_local(work());
        let _timers: Vec<_> = (0..order.timers)
            .map(|timer| spawn_local(sleep_forever(order.lengths(timer), sleep)))
            .collect();
        measure(order, sleep).await;
    });
    Ok(())
}

async fn work() -> io::Result<()> {
    let input = Descriptor::new(load::input()?)?;
    while input.read_with(load::take_from).await? {
        load::burst();
        yield_now().await;
    }
    Ok(())
}

//! The load on the shaper: iperf3, or the flows of [`super::flows`].

use std::io::{self, Read};
use std::process::{Command, Stdio};

use rustix::process::{Pid, setpriority_process};
use softclock_core::Rate;
use softclock_testing::KilledOnDrop;

use super::{FRAME_BYTES, Host, Lab, NOBODY, RECEIVER, TCP_DATA_BYTES, UDP_DATA_BYTES};

/// A sender and its rate, which counts whole frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// iperf3: datagrams at this rate, paced by iperf3, which reads the clock each millisecond.
    Udp(Rate),
    /// iperf3: TCP (cubic), as fast as it gets through.
    Tcp,
    /// iperf3: TCP (cubic) at this rate, paced by iperf3.
    TcpPaced(Rate),
    /// iperf3: TCP (cubic) at this rate by `SO_MAX_PACING_RATE`. Without the queueing discipline fq, TCP itself paces.
    TcpMaxPacing(Rate),
    /// The same with fq on the sender's link, which paces then.
    TcpFq(Rate),
    /// [`super::flows`]: datagrams to many ports in turn. The first datagram to each port is sent at `rate`, the
    /// following at `offered`.
    Flows {
        /// The rate of all classes together.
        rate: Rate,
        /// The rate that is offered to all ports together.
        offered: Rate,
        /// The number of ports.
        ports: u16,
    },
}

/// A running load. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Running {
    sender: KilledOnDrop,
    /// The receiving iperf3.
    _receiver: Option<KilledOnDrop>,
}

impl Load {
    /// Starts the load on a host of a lab.
    pub(super) fn start(self, host: &Host, lab: &Lab) -> io::Result<Running> {
        if let Self::Flows {
            rate,
            offered,
            ports,
        } = self
        {
            let program = std::env::current_exe()?;
            let mut command = host.command(&program.to_string_lossy());
            command.args(["flows", NOBODY]);
            command.args([rate.to_string(), offered.to_string()]);
            command.args([ports.to_string(), UDP_DATA_BYTES.to_string()]);
            return Ok(Running {
                sender: spawn(&mut command)?,
                _receiver: None,
            });
        }
        if let Self::TcpFq(_) = self {
            host.run("tc qdisc replace dev eth0 root fq")?;
        }
        let mut server = lab.receiver.command("iperf3");
        server.args(["--server", "--one-off", "--forceflush"]);
        let mut server = spawn(&mut server)?;
        // iperf3 prints its first line when it listens.
        if let Some(output) = server.stdout.as_mut() {
            output.read_exact(&mut [0])?;
        }
        let mut client = host.command("iperf3");
        client.args(["--client", RECEIVER, "--time", "3600"]);
        client.args(self.arguments().split_whitespace());
        Ok(Running {
            sender: spawn(&mut client)?,
            _receiver: Some(server),
        })
    }

    fn arguments(self) -> String {
        // iperf3 and TCP count data, not frames.
        let data = |rate: Rate, data: u32| {
            u128::from(rate.bps()) * u128::from(data) / u128::from(FRAME_BYTES)
        };
        match self {
            Self::Udp(rate) => {
                let rate = data(rate, UDP_DATA_BYTES);
                format!("--udp --length {UDP_DATA_BYTES} --bitrate {rate}")
            }
            Self::Tcp => TCP.into(),
            Self::TcpPaced(rate) => format!("{TCP} --bitrate {}", data(rate, TCP_DATA_BYTES)),
            Self::TcpMaxPacing(rate) | Self::TcpFq(rate) => {
                format!("{TCP} --fq-rate {}", data(rate, TCP_DATA_BYTES))
            }
            Self::Flows { .. } => String::new(),
        }
    }
}

impl Running {
    /// Returns the sender's error output if it has ended.
    pub(super) fn complaint(&mut self) -> Option<String> {
        self.sender.try_wait().ok().flatten()?;
        let mut said = String::new();
        if let Some(errors) = self.sender.stderr.as_mut() {
            let _ = errors.read_to_string(&mut said);
        }
        Some(said.trim().replace('\n', " "))
    }
}

fn spawn(command: &mut Command) -> io::Result<KilledOnDrop> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = KilledOnDrop::new(command.spawn()?);
    // Prefer the load to the computing neighbours: the shaper is to be measured among them, not a load that they
    // starve.
    setpriority_process(Some(Pid::from_child(&child)), NICE)?;
    Ok(child)
}

const NICE: i32 = -10;

/// Fixes the congestion control: the system's default may pace by itself, as bbr does.
const TCP: &str = "--congestion cubic";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::bridge::mbit;

    #[test]
    fn rates_of_frames_become_rates_of_data() {
        let arguments = Load::Udp(mbit(100)).arguments();
        assert_eq!(arguments, "--udp --length 1458 --bitrate 97200000");
        let arguments = Load::TcpMaxPacing(mbit(100)).arguments();
        assert_eq!(arguments, "--congestion cubic --fq-rate 95600000");
    }
}

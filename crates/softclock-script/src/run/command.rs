//! Commands in backquotes: `sysctl`, and `sockstat` with `grep`. Nothing is executed.

use super::sockets::Socket;
use super::{Runner, Stop};
use crate::host::{Host, State};
use crate::settings::{Setting, of_sysctl};

impl<H: Host> Runner<'_, H> {
    /// Does what a command line would do to the host.
    pub(super) fn command(&mut self, line: &str) -> Result<(), Stop> {
        for command in line.split(['\n', ';']).flat_map(|part| part.split("&&")) {
            let command = command.trim();
            match command.split_whitespace().next() {
                None | Some("true" | ":") => {}
                Some("sysctl") => self.sysctl(command)?,
                Some("sockstat") => self.sockstat(command)?,
                Some("tcpdrop") => self.tcpdrop(command)?,
                Some(_) => return Err(Stop::NotApplicable(format!("command {command}"))),
            }
        }
        Ok(())
    }

    fn sysctl(&mut self, command: &str) -> Result<(), Stop> {
        for word in command.split_whitespace().skip(1) {
            // Options, and redirections of what it prints.
            let is_silent = word.starts_with('-') || word.contains('>') || word == "/dev/null";
            if is_silent {
                continue;
            }
            let Some((name, value)) = word.split_once('=') else {
                return Err(Stop::NotApplicable(format!(
                    "sysctl {word} without a value"
                )));
            };
            for setting in of_sysctl(name, value.trim_matches('"')).map_err(Stop::NotApplicable)? {
                self.remember(&setting);
                self.host.set(&setting)?;
            }
        }
        Ok(())
    }

    /// Keeps the defaults of socket options, for `getsockopt`.
    fn remember(&mut self, setting: &Setting) {
        let defaults = &mut self.defaults;
        match setting {
            Setting::ReceiveBuffer(bytes) => defaults.receive_buffer = Some(*bytes),
            Setting::SendBuffer(bytes) => defaults.send_buffer = Some(*bytes),
            Setting::KeepAlive(is_on) => defaults.keep_alive = Some(*is_on),
            Setting::KeepAliveIdle(time) => defaults.keep_alive_idle = Some(*time),
            Setting::KeepAliveInterval(time) => defaults.keep_alive_interval = Some(*time),
            Setting::KeepAliveProbes(count) => defaults.keep_alive_probes = Some(*count),
            Setting::ConnectTimeout(time) => defaults.connect_timeout = Some(*time),
            _ => {}
        }
    }

    /// `sockstat … | grep … | grep -c … | grep …`: fails if the last `grep` would find nothing.
    fn sockstat(&mut self, command: &str) -> Result<(), Stop> {
        let mut stages = command.split('|').map(str::trim);
        let mut lines = self.listing(stages.next().unwrap_or_default());
        let mut has_found = true;
        for stage in stages {
            let mut words = stage.split_whitespace();
            if words.next() != Some("grep") {
                return Err(Stop::NotApplicable(format!("command {stage}")));
            }
            let (options, patterns): (Vec<&str>, Vec<&str>) =
                words.partition(|word| word.starts_with('-'));
            let has = |letter: char| options.iter().any(|option| option.contains(letter));
            let pattern = patterns.first().copied().unwrap_or_default();
            lines.retain(|line| line.contains(pattern) != has('v'));
            has_found = !lines.is_empty();
            if has('c') {
                lines = vec![lines.len().to_string()];
            }
        }
        match has_found {
            true => Ok(()),
            false => Err(Stop::Failed(format!("`{command}` finds nothing"))),
        }
    }

    /// The lines of `sockstat`: user, command, process, descriptor, protocol, addresses, state.
    fn listing(&self, command: &str) -> Vec<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let port = words
            .windows(2)
            .find_map(|pair| match pair {
                ["-p", port] => Some(format!(":{port}")),
                _ => None,
            })
            .unwrap_or_default();
        let version = match self.is_v6() {
            true => "tcp6",
            false => "tcp4",
        };
        let owner_of = |id| {
            let mut all = self.descriptors.iter();
            all.find(|(_, descriptor)| {
                Some(descriptor.socket) == Option::map(id, Socket::Connection)
            })
        };
        let mut lines = Vec::new();
        let mut listed = Vec::new();
        for row in self.host.connections() {
            let owner = owner_of(row.id);
            listed.extend(owner.map(|(number, _)| *number));
            let process = match owner {
                Some((number, _)) => format!("root packetdril 1 {number}"),
                None => "? ? ? ?".to_owned(),
            };
            let (local, remote, state) = (row.local, row.remote, row.state.name());
            lines.push(format!("{process} {version} {local} {remote} {state}"));
        }
        // A socket whose connection is gone has no addresses any more.
        for (number, descriptor) in &self.descriptors {
            let is_connection = matches!(descriptor.socket, Socket::Connection(_));
            if is_connection && !listed.contains(number) {
                let state = State::Closed.name();
                lines.push(format!(
                    "root packetdril 1 {number} {version} *:* *:* {state}"
                ));
            }
        }
        lines.retain(|line| {
            let mut words = line.split_whitespace();
            port.is_empty() || words.any(|word| word.ends_with(&port))
        });
        lines
    }

    /// `tcpdrop -s STATE`.
    fn tcpdrop(&mut self, command: &str) -> Result<(), Stop> {
        let name = command.split_whitespace().last().unwrap_or_default();
        let all = [State::TimeWait, State::SynReceived, State::Established];
        match all.into_iter().find(|state| state.name() == name) {
            Some(state) => Ok(self.host.drop_all(self.now, state)?),
            None => Err(Stop::NotApplicable(format!("command {command}"))),
        }
    }
}

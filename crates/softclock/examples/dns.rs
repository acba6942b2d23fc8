//! A DNS server over UDP (RFC 1035) for the names of a table, on the kernel's sockets or on a network stack of its own.
//!
//! ```text
//! dns --listen 127.0.0.1:5353 www.example=192.0.2.1 www.example=2001:db8::1
//! dns --dev tap:sc0 --address 192.0.2.7/24 --listen 192.0.2.7:53 www.example=192.0.2.1
//! ```
//!
//! It answers questions for the types A and AAAA, refuses classes other than IN, and answers malformed ones with
//! FORMERR. EDNS (RFC 6891) is accepted, and its options are ignored. Messages that are no questions are not answered,
//! so two servers cannot keep each other busy.

mod common;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use clap::Parser;
use softclock::net::{RecvBatch, UdpSocket};
use softclock::{JoinHandle, Runtime, spawn_local};

use common::StackArguments;

#[derive(Parser)]
#[command(about = "A DNS server for the names of a table")]
struct Arguments {
    #[command(flatten)]
    stack: StackArguments,

    /// Address and port to answer at; may be repeated
    #[arg(long, value_name = "ADDR:PORT", required = true)]
    listen: Vec<SocketAddr>,

    /// A name and its address, such as www.example=192.0.2.1; may be repeated
    #[arg(value_name = "NAME=ADDRESS", required = true, value_parser = entry)]
    entries: Vec<(Name, IpAddr)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut table = Table::new();
    for (name, address) in arguments.entries {
        table.entry(name).or_default().push(address);
    }
    let table = Rc::new(table);
    Runtime::new()?.block_on(async {
        let _stack = arguments.stack.open()?;
        let mut servers: Vec<JoinHandle<()>> = Vec::new();
        for address in arguments.listen {
            let socket = UdpSocket::bind(address)?;
            println!("serving at {}", socket.local_addr()?);
            servers.push(spawn_local(serve(socket, Rc::clone(&table))));
        }
        for server in servers {
            server.await;
        }
        Ok(())
    })
}

/// Answers the questions that arrive at a socket. Each round takes those that wait, at most a batch.
async fn serve(socket: UdpSocket, table: Rc<Table>) {
    let mut batch = RecvBatch::new(BATCH, MOST_BYTES);
    loop {
        // An error is about an earlier answer, whose receiver is gone.
        if socket.recv_batch(&mut batch).await.is_err() {
            continue;
        }
        for question in batch.datagrams() {
            if let Some(answer) = answer(question.payload, &table) {
                // A client that gets no answer asks again.
                let _ = socket.send_to(&answer, question.source).await;
            }
        }
    }
}

/// A name as in messages, each label behind its length, in lower case.
type Name = Vec<u8>;

type Table = BTreeMap<Name, Vec<IpAddr>>;

/// Parses a name and its address from the command line.
fn entry(text: &str) -> Result<(Name, IpAddr), String> {
    let (name, address) = text.split_once('=').ok_or("write NAME=ADDRESS")?;
    let address = address.parse().map_err(|_| "write an IP address")?;
    let mut bytes = Name::new();
    for label in name.trim_end_matches('.').split('.') {
        if label.is_empty() || label.len() > MOST_LABEL_BYTES {
            return Err("the parts of a name have 1 to 63 letters".into());
        }
        bytes.push(label.len() as u8);
        bytes.extend(label.to_ascii_lowercase().bytes());
    }
    bytes.push(0);
    if bytes.len() > MOST_NAME_BYTES {
        return Err("a name has at most 253 letters".into());
    }
    Ok((bytes, address))
}

/// The answer to a message; `None` if it is not a question, or too short to be answered.
fn answer(message: &[u8], table: &Table) -> Option<Vec<u8>> {
    if message.len() < HEADER_BYTES || message[2] & IS_RESPONSE != 0 {
        return None;
    }
    let answer = match Question::parse(message) {
        Ok(question) => question.answer(table),
        Err(code) => Answer::failed(code),
    };
    Some(answer.write(message))
}

/// A question whose message was well-formed.
struct Question<'a> {
    /// Name, type and class, as they were asked.
    bytes: &'a [u8],
    name: Name,
    kind: u16,
    class: u16,
    edns: Option<Edns>,
}

/// The OPT record of a message (RFC 6891).
struct Edns {
    /// The longest answer that the client takes.
    most_bytes: usize,
    version: u8,
}

impl<'a> Question<'a> {
    /// Parses a message of at least a header. It has one question, and further records only in the last section.
    fn parse(message: &'a [u8]) -> Result<Self, Code> {
        let number = |place| u16::from_be_bytes([message[place], message[place + 1]]);
        if message[2] & OPCODE != 0 {
            return Err(Code::NotImp);
        }
        let (questions, answers, authorities) = (number(4), number(6), number(8));
        if (questions, answers, authorities) != (1, 0, 0) {
            return Err(Code::FormErr);
        }
        let mut rest = Reader(&message[HEADER_BYTES..]);
        let name = rest.name()?;
        let (kind, class) = (rest.number()?, rest.number()?);
        let end = message.len() - rest.0.len();
        let mut edns = None;
        for _ in 0..number(10) {
            if let Some(record) = rest.record()?
                && edns.replace(record).is_some()
            {
                return Err(Code::FormErr);
            }
        }
        if !rest.0.is_empty() {
            return Err(Code::FormErr);
        }
        Ok(Self {
            bytes: &message[HEADER_BYTES..end],
            name,
            kind,
            class,
            edns,
        })
    }

    fn answer(self, table: &Table) -> Answer<'a> {
        let found = table.get(&self.name);
        let code = match &self.edns {
            Some(edns) if edns.version > 0 => Code::BadVers,
            _ if self.class != CLASS_IN => Code::Refused,
            _ if found.is_none() => Code::NxDomain,
            _ => Code::NoError,
        };
        let mut addresses = found.cloned().unwrap_or_default();
        addresses.retain(|address| code == Code::NoError && kind(*address) == self.kind);
        Answer {
            code,
            question: self.bytes,
            addresses,
            edns: self.edns,
        }
    }
}

/// What is left of a message. A call that finds too little fails.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Code> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Code::FormErr)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Code> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u16, Code> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// The name of the question. A pointer is refused: no name precedes this one.
    fn name(&mut self) -> Result<Name, Code> {
        let whole = self.0;
        while let length @ 1.. = usize::from(self.byte()?) {
            if length > MOST_LABEL_BYTES {
                return Err(Code::FormErr);
            }
            self.take(length)?;
        }
        match &whole[..whole.len() - self.0.len()] {
            // No length is the code of a capital letter.
            name if name.len() <= MOST_NAME_BYTES => Ok(name.to_ascii_lowercase()),
            _ => Err(Code::FormErr),
        }
    }

    /// A record of the last section, which counts if it is that of EDNS. Others, such as signatures, are ignored.
    fn record(&mut self) -> Result<Option<Edns>, Code> {
        let before = self.0;
        loop {
            let length = self.byte()?;
            match usize::from(length) {
                0 => break,
                1..=MOST_LABEL_BYTES => drop(self.take(length.into())?),
                POINTER.. => {
                    self.byte()?;
                    break;
                }
                _ => return Err(Code::FormErr),
            }
        }
        let is_of_root = before[0] == 0;
        // Type and class, two halves of a time to live, and the length of the data. EDNS has other uses for them.
        let (kind, most_bytes) = (self.number()?, self.number()?);
        let ([_, version], _) = (self.number()?.to_be_bytes(), self.number()?);
        let length = self.number()?;
        let mut options = Reader(self.take(length.into())?);
        if kind != TYPE_OPT {
            return Ok(None);
        }
        while is_of_root && !options.0.is_empty() {
            let (_, length) = (options.number()?, options.number()?);
            options.take(length.into())?;
        }
        let most_bytes = most_bytes.into();
        match is_of_root {
            true => Ok(Some(Edns {
                most_bytes,
                version,
            })),
            false => Err(Code::FormErr),
        }
    }
}

/// An answer to be written.
struct Answer<'a> {
    code: Code,
    question: &'a [u8],
    addresses: Vec<IpAddr>,
    edns: Option<Edns>,
}

impl Answer<'_> {
    /// An answer to a message that cannot be understood.
    const fn failed(code: Code) -> Self {
        Self {
            code,
            question: &[],
            addresses: Vec::new(),
            edns: None,
        }
    }

    /// The message. Addresses that exceed the length that the client takes are left out, and the message says so.
    fn write(&self, asked: &[u8]) -> Vec<u8> {
        let most_bytes = self.edns.as_ref().map_or(0, |edns| edns.most_bytes);
        let opt_bytes = if self.edns.is_some() { OPT_BYTES } else { 0 };
        let room = most_bytes.clamp(LEAST_BYTES, MOST_BYTES) - opt_bytes;
        let mut answers = Vec::new();
        let mut count: u16 = 0;
        for &address in &self.addresses {
            let record = record(address);
            if HEADER_BYTES + self.question.len() + answers.len() + record.len() > room {
                break;
            }
            answers.extend(record);
            count += 1;
        }
        let is_truncated = usize::from(count) < self.addresses.len();
        let code = self.code as u8;
        let is_own = matches!(self.code, Code::NoError | Code::NxDomain);
        let flags = IS_RESPONSE
            | asked[2] & (OPCODE | RECURSION_DESIRED)
            | if is_own { AUTHORITATIVE } else { 0 }
            | if is_truncated { TRUNCATED } else { 0 };
        let mut message = vec![asked[0], asked[1], flags, code & 0xf];
        let questions = u16::from(!self.question.is_empty());
        for number in [questions, count, 0, self.edns.is_some().into()] {
            message.extend(number.to_be_bytes());
        }
        message.extend(self.question);
        message.extend(answers);
        if self.edns.is_some() {
            let [type_high, type_low] = TYPE_OPT.to_be_bytes();
            let [most_high, most_low] = (MOST_BYTES as u16).to_be_bytes();
            // The upper bits of the code come first in what is the time to live of other records.
            let opt = [0, type_high, type_low, most_high, most_low, code >> 4];
            message.extend(opt);
            message.resize(message.len() + OPT_BYTES - opt.len(), 0);
        }
        message
    }
}

/// The record of an address, for the name in the question.
fn record(address: IpAddr) -> Vec<u8> {
    let data = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut record = vec![POINTER as u8, HEADER_BYTES as u8];
    let [ttl_high, ttl_low] = [0, TTL_SECONDS];
    for number in [
        kind(address),
        CLASS_IN,
        ttl_high,
        ttl_low,
        data.len() as u16,
    ] {
        record.extend(number.to_be_bytes());
    }
    record.extend(data);
    record
}

/// The type of an address's record.
const fn kind(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => TYPE_A,
        IpAddr::V6(_) => TYPE_AAAA,
    }
}

/// Response codes (RFC 1035, 4.1.1; RFC 6891, 9).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    NoError = 0,
    FormErr = 1,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    BadVers = 16,
}

/// Bits of the third byte of a message.
const IS_RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

/// The first byte of a pointer to an earlier name is at least this.
const POINTER: usize = 0xc0;

const HEADER_BYTES: usize = 12;
const OPT_BYTES: usize = 11;
const MOST_LABEL_BYTES: usize = 63;
const MOST_NAME_BYTES: usize = 255;

/// The longest message without EDNS, and with it: as much as is never fragmented.
const LEAST_BYTES: usize = 512;
const MOST_BYTES: usize = 1232;

const TTL_SECONDS: u16 = 60;
const BATCH: usize = 32;

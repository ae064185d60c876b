//! Makes calls with tonic. Input and output are described in client_test.go.
//!
//!     calls HOST:PORT [FILE]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

type Error = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let mut endpoint = Endpoint::from_shared(format!("http://{}", args[1]))?;
    if let Some(file) = args.get(2) {
        let authority = Certificate::from_pem(std::fs::read(file)?);
        endpoint = Endpoint::from_shared(format!("https://{}", args[1]))?
            .tls_config(ClientTlsConfig::new().ca_certificate(authority))?;
    }
    let channel = endpoint.connect_lazy();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        let step = Step {
            timeout: Duration::from_millis(words[1].parse()?),
            header: "m".repeat(words[2].parse()?),
        };
        let mut begun = Vec::new();
        if words[4] != "-" {
            begun.push(step.begin(&channel, words[4])?);
        }
        for _ in 0..words[0].parse()? {
            begun.push(step.begin(&channel, words[5])?);
        }
        if words[3] == "1" {
            println!("begun");
            lines.next_line().await?;
            begun.iter().for_each(JoinHandle::abort);
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for call in begun {
            let answer = match call.await {
                Ok(Ok(reply)) => name(&reply),
                // The client's own clock: tonic calls that cancelled.
                Ok(Err(e)) if e.message() == "Timeout expired" => "DEADLINE_EXCEEDED".into(),
                Ok(Err(e)) => format!("{}: {}", spelling(e.code()), e.message().replace('\n', " ")),
                Err(e) if e.is_cancelled() => "CANCELLED".into(), // who drops a call cancels it
                Err(e) => return Err(e.into()),
            };
            *counts.entry(answer).or_default() += 1;
        }
        for (text, n) in counts {
            println!("{n} {text}");
        }
        println!();
    }
    Ok(())
}

struct Step {
    timeout: Duration,
    header: String,
}

impl Step {
    fn begin(&self, channel: &Channel, message: &str) -> Result<JoinHandle<Result<Bytes, Status>>, Error> {
        let mut request = Request::new(parse_hex(message)?);
        request.set_timeout(self.timeout);
        if !self.header.is_empty() {
            request.metadata_mut().insert("x-large", self.header.parse()?);
        }
        let mut client = tonic::client::Grpc::new(channel.clone());
        Ok(tokio::spawn(async move {
            client.ready().await.map_err(|e| Status::unknown(e.to_string()))?;
            Ok(client.unary(request, PATH.parse().expect("a path"), Raw).await?.into_inner())
        }))
    }
}

fn parse_hex(text: &str) -> Result<Bytes, Error> {
    let digits = |i| u8::from_str_radix(&text[i..i + 2], 16);
    Ok((0..text.len()).step_by(2).map(digits).collect::<Result<Vec<u8>, _>>()?.into())
}

/// The codes that the tests expect, as others spell them.
fn spelling(code: Code) -> String {
    match code {
        Code::Unknown => "UNKNOWN".into(),
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED".into(),
        _ => format!("{code:?}"),
    }
}

fn name(reply: &[u8]) -> String {
    match reply {
        // overall_code is the first field.
        [8, 1, ..] => "OK".into(),
        [8, 2, ..] => "OVER_LIMIT".into(),
        _ => format!("{reply:x?}"),
    }
}

/// Raw passes messages through as bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

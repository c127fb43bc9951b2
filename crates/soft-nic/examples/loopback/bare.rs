//! Two threads, a socket, and bytes: the minimum cost of any request-reply protocol.

use crate::Transport;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes of a request and of its reply.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) request: usize,
    pub(crate) reply: usize,
}

/// One end of a connection.
pub(crate) enum End {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl End {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Receives some bytes; `None` when the connection ends. Spins if the socket does not block.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let received = match self {
                Self::Tcp(stream) => stream.read(into),
                Self::Unix(stream) => stream.read(into),
            };
            match received {
                Ok(0) => return Ok(None),
                Ok(received) => return Ok(Some(received)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = match self {
                Self::Tcp(stream) => stream.write(bytes),
                Self::Unix(stream) => stream.write(bytes),
            };
            match sent {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Makes a connection; returns its two ends.
pub(crate) fn pair(transport: Transport) -> io::Result<(End, End)> {
    Ok(match transport {
        Transport::Unix => {
            let (near, far) = UnixStream::pair()?;
            (End::Unix(near), End::Unix(far))
        }
        Transport::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            (End::Tcp(near), End::Tcp(far))
        }
    })
}

/// Keeps `depth` requests in flight for `window`. Returns how many were answered.
pub(crate) fn run(
    mut near: End,
    far: End,
    shape: Shape,
    depth: u64,
    spins: bool,
    window: Duration,
) -> Result<u64, Box<dyn Error>> {
    near.set_nonblocking(spins)?;
    far.set_nonblocking(spins)?;
    let depth = depth as usize;
    let answering = std::thread::spawn(move || answer(far, shape, depth));
    let requests = vec![1; shape.request * depth];
    let mut replies = vec![0; shape.reply * depth];
    near.send(&requests)?;
    let (begun, mut done, mut there) = (Instant::now(), 0, 0);
    while begun.elapsed() < window {
        there += near.receive(&mut replies)?.ok_or("the other side hung up")?;
        let complete = there / shape.reply;
        there %= shape.reply;
        done += complete as u64;
        near.send(&requests[..complete * shape.request])?;
    }
    drop(near);
    // The answering thread may end in an error because this side has hung up.
    let _ = answering.join();
    Ok(done)
}

fn answer(mut far: End, shape: Shape, depth: usize) -> io::Result<()> {
    let replies = vec![2; shape.reply * depth];
    let mut requests = vec![0; shape.request * depth];
    let mut there = 0;
    while let Some(received) = far.receive(&mut requests)? {
        there += received;
        let complete = there / shape.request;
        there %= shape.request;
        far.send(&replies[..complete * shape.reply])?;
    }
    Ok(())
}

//! Claims about one connection, with the server's end in the test's hands.

use super::*;
use crate::wire::HEADER_BYTES;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sherman_fabric::{Response, Space, WorkList};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, Waker};

/// A line, and the server's end of it.
fn line() -> (Line, UnixStream) {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    (Line::over(ours.into()), theirs.into())
}

fn write_list(bytes: usize) -> WorkList {
    let mut list = WorkList::new(0);
    list.write(Space::Host, 0, &vec![7; bytes]);
    list
}

fn outcome(flight: &mut Flight, ticket: Ticket) -> Poll<Result<WorkList, FabricError>> {
    flight.poll_list(ticket, &mut Context::from_waker(Waker::noop()))
}

fn done(server: &mut UnixStream, ticket: Ticket) {
    let mut out = Vec::new();
    put_frame(&mut out, Kind::ListDone, ticket.0, |_| {}).unwrap();
    server.write_all(&out).unwrap();
}

#[test]
fn a_server_that_takes_nothing_costs_no_copies_of_lists() {
    let (mut line, mut server) = line();
    let mut flight = Flight::default();
    let each = 100_000;
    let tickets: Vec<Ticket> = (0..100).map(|_| flight.begin_list(write_list(each))).collect();
    for ticket in &tickets {
        line.post(*ticket, &mut flight, || 0);
        line.pump(&mut flight);
        let Ok(wire) = &line.wire else { panic!("{line:?}") };
        assert!(wire.out.len() <= 2 * HIGH_WATER + each + 100, "{} bytes wait to be sent", wire.out.len());
    }
    assert!(line.pending.encoded < tickets.len(), "everything was taken: nothing was tested");
    // All of it arrives once it is taken.
    let mut frame = vec![0; HEADER_BYTES + 16 + each];
    server.set_nonblocking(true).unwrap();
    for ticket in &tickets {
        let mut there = 0;
        while there < frame.len() {
            match server.read(&mut frame[there..]) {
                Ok(read) => there += read,
                Err(_) => line.pump(&mut flight),
            }
        }
        assert_eq!(FrameHeader::decode(&frame).unwrap().map(|header| header.tag), Some(ticket.0));
    }
    tickets.iter().for_each(|ticket| done(&mut server, *ticket));
    assert_eq!(line.receive(&mut flight, || 0), Ok(true));
    assert!(tickets.iter().all(|ticket| matches!(outcome(&mut flight, *ticket), Poll::Ready(Ok(_)))));
    assert!(line.is_idle());
}

#[test]
fn the_first_list_is_sent_at_once_and_the_others_when_they_are_many() {
    const FRAME: usize = HEADER_BYTES + 24;
    let (mut line, mut server) = line();
    let mut flight = Flight::default();
    server.set_nonblocking(true).unwrap();
    let mut post = |line: &mut Line| {
        let ticket = flight.begin_list(write_list(8));
        line.post(ticket, &mut flight, || 0);
    };
    post(&mut line);
    assert_eq!(server.read(&mut [0; 2 * FRAME]).unwrap(), FRAME);
    for posted in 0..BATCH {
        assert!(server.read(&mut [0]).is_err(), "sent after {posted}");
        post(&mut line);
    }
    assert_eq!(server.read(&mut [0; BATCH * FRAME]).unwrap(), BATCH * FRAME);
}

#[test]
fn a_few_lists_wait_once_for_others_and_many_do_not() {
    let (mut line, _server) = line();
    let mut flight = Flight::default();
    let post = |line: &mut Line, flight: &mut Flight, lists: usize| {
        for _ in 0..lists {
            let ticket = flight.begin_list(write_list(8));
            line.post(ticket, flight, || 0);
        }
    };
    assert!(!line.waits(), "for what?");
    post(&mut line, &mut flight, 1 + BATCH);
    assert!(!line.waits(), "everything is sent");
    post(&mut line, &mut flight, BATCH / FEW);
    assert!(line.waits(), "these are few");
    assert!(!line.waits(), "it waits once");
    line.pump(&mut flight);
    post(&mut line, &mut flight, 1);
    assert!(line.waits(), "the others have been sent");
    line.pump(&mut flight);
    post(&mut line, &mut flight, BATCH / 2);
    assert!(!line.waits(), "these are many");
}

#[test]
fn an_answer_out_of_order_ends_the_connection() {
    let (mut line, mut server) = line();
    let mut flight = Flight::default();
    let [first, second] = [(); 2].map(|()| flight.begin_list(write_list(8)));
    line.post(first, &mut flight, || 0);
    line.post(second, &mut flight, || 0);
    line.pump(&mut flight);
    done(&mut server, second);
    assert_eq!(line.receive(&mut flight, || 0), Err(End::Broken));
    line.end(FabricError::Disconnected { server: 3 }, &mut flight);
    for ticket in [first, second] {
        assert!(matches!(outcome(&mut flight, ticket), Poll::Ready(Err(FabricError::Disconnected { server: 3 }))));
    }
}

#[test]
fn a_list_that_was_not_even_sent_cannot_be_answered() {
    let (mut line, mut server) = line();
    let mut flight = Flight::default();
    let [first, second] = [(); 2].map(|()| flight.begin_list(write_list(8)));
    line.post(first, &mut flight, || 0);
    line.pump(&mut flight);
    line.post(second, &mut flight, || 0);
    done(&mut server, first);
    done(&mut server, second);
    assert_eq!(line.receive(&mut flight, || 0), Err(End::Broken));
    assert!(matches!(outcome(&mut flight, first), Poll::Ready(Ok(_))), "the first answer was a good one");
}

#[test]
fn results_that_do_not_fit_their_list_end_the_connection() {
    let (mut line, mut server) = line();
    let mut flight = Flight::default();
    let mut list = WorkList::new(0);
    list.read(Space::Host, 0, 8);
    let ticket = flight.begin_list(list);
    line.post(ticket, &mut flight, || 0);
    line.pump(&mut flight);
    done(&mut server, ticket);
    assert_eq!(line.receive(&mut flight, || 0), Err(End::Broken));
    assert!(outcome(&mut flight, ticket).is_pending(), "it is told when the connection is given up");
}

#[test]
fn what_was_answered_before_the_end_is_delivered() {
    let (mut line, mut server) = line();
    let mut flight = Flight::default();
    let [first, second] = [(); 2].map(|()| flight.begin_list(write_list(8)));
    let call = flight.begin_call();
    line.post(first, &mut flight, || 0);
    line.post(second, &mut flight, || 0);
    line.pump(&mut flight);
    line.call(call, &Request::Usage, || 0).unwrap();
    let mut out = Vec::new();
    put_frame(&mut out, Kind::Answer, call.0, |out| {
        crate::wire::responses::put_response(out, &Response::Done).unwrap();
    })
    .unwrap();
    server.write_all(&out).unwrap();
    done(&mut server, first);
    drop(server);
    assert_eq!(line.receive(&mut flight, || 0), Ok(true));
    line.pump(&mut flight);
    assert_eq!(line.receive(&mut flight, || 0), Err(End::Broken));
    assert!(matches!(outcome(&mut flight, first), Poll::Ready(Ok(_))));
    assert!(outcome(&mut flight, second).is_pending());
    let answer = flight.poll_call(call, &mut Context::from_waker(Waker::noop()));
    assert_eq!(answer, Poll::Ready(Ok(Response::Done)));
}

#[test]
fn a_fenced_client_s_later_lists_did_not_execute_either() {
    let (mut line, mut server) = line();
    let mut flight = Flight::default();
    let [first, second] = [(); 2].map(|()| flight.begin_list(write_list(8)));
    line.post(first, &mut flight, || 0);
    line.post(second, &mut flight, || 0);
    line.pump(&mut flight);
    let mut out = Vec::new();
    let fenced = FabricError::Fenced { client: sherman_fabric::ClientId(4) };
    put_frame(&mut out, Kind::ListFailed, first.0, |out| crate::wire::errors::put_error(out, &fenced)).unwrap();
    server.write_all(&out).unwrap();
    assert_eq!(line.receive(&mut flight, || 0), Err(End::Fenced));
    assert!(matches!(outcome(&mut flight, first), Poll::Ready(Err(FabricError::Fenced { .. }))));
}

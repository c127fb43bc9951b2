//! Tests of one connection; the test acts as the server.

use super::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sherman_control::client::connection::HIGH_WATER;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::{FrameHeader, HEADER_BYTES};
use sherman_fabric::{Request, Response, Space};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, Waker};

type Connection = sherman_control::client::connection::Connection<SocketLists>;

/// A connection, and the server's end of it.
fn connection() -> (Connection, UnixStream) {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    (Connection::over(ours), theirs.into())
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
    put_frame(&mut out, FrameKind::ListDone, ticket.0, |_| {}).unwrap();
    server.write_all(&out).unwrap();
}

#[test]
fn a_server_that_takes_nothing_costs_no_copies_of_lists() {
    let (mut connection, mut server) = connection();
    let mut flight = Flight::default();
    let each = 100_000;
    let tickets: Vec<Ticket> = (0..100).map(|_| flight.begin_list(write_list(each))).collect();
    for ticket in &tickets {
        connection.post(*ticket, 0, &mut flight, || 0);
        connection.pump(&mut flight);
        let unsent = connection.unsent();
        assert!(unsent <= 2 * HIGH_WATER + each + 100, "{unsent} bytes wait to be sent");
    }
    assert!(connection.lists().encoded < tickets.len(), "everything was taken: nothing was tested");
    // Everything arrives once the server reads it.
    let mut frame = vec![0; HEADER_BYTES + 16 + each];
    server.set_nonblocking(true).unwrap();
    for ticket in &tickets {
        let mut there = 0;
        while there < frame.len() {
            match server.read(&mut frame[there..]) {
                Ok(read) => there += read,
                Err(_) => connection.pump(&mut flight),
            }
        }
        assert_eq!(FrameHeader::decode(&frame).unwrap().map(|header| header.tag), Some(ticket.0));
    }
    tickets.iter().for_each(|ticket| done(&mut server, *ticket));
    assert_eq!(connection.receive(&mut flight, || 0), Ok(true));
    assert!(tickets.iter().all(|ticket| matches!(outcome(&mut flight, *ticket), Poll::Ready(Ok(_)))));
    assert!(connection.is_idle());
}

#[test]
fn the_first_list_is_sent_at_once_and_the_others_when_they_are_many() {
    const FRAME: usize = HEADER_BYTES + 24;
    let (mut connection, mut server) = connection();
    let mut flight = Flight::default();
    server.set_nonblocking(true).unwrap();
    let mut post = |connection: &mut Connection| {
        let ticket = flight.begin_list(write_list(8));
        connection.post(ticket, 0, &mut flight, || 0);
    };
    post(&mut connection);
    assert_eq!(server.read(&mut [0; 2 * FRAME]).unwrap(), FRAME);
    for posted in 0..BATCH {
        assert!(server.read(&mut [0]).is_err(), "sent after {posted}");
        post(&mut connection);
    }
    assert_eq!(server.read(&mut [0; BATCH * FRAME]).unwrap(), BATCH * FRAME);
}

#[test]
fn a_few_lists_wait_once_for_others_and_many_do_not() {
    let (mut connection, _server) = connection();
    let mut flight = Flight::default();
    let post = |connection: &mut Connection, flight: &mut Flight, lists: usize| {
        for _ in 0..lists {
            let ticket = flight.begin_list(write_list(8));
            connection.post(ticket, 0, flight, || 0);
        }
    };
    assert!(!connection.waits(), "for what?");
    post(&mut connection, &mut flight, 1 + BATCH);
    assert!(!connection.waits(), "everything is sent");
    post(&mut connection, &mut flight, BATCH / FEW);
    assert!(connection.waits(), "these are few");
    assert!(!connection.waits(), "it waits once");
    connection.pump(&mut flight);
    post(&mut connection, &mut flight, 1);
    assert!(connection.waits(), "the others have been sent");
    connection.pump(&mut flight);
    post(&mut connection, &mut flight, BATCH / 2);
    assert!(!connection.waits(), "these are many");
}

#[test]
fn an_answer_out_of_order_ends_the_connection() {
    let (mut connection, mut server) = connection();
    let mut flight = Flight::default();
    let [first, second] = [(); 2].map(|()| flight.begin_list(write_list(8)));
    connection.post(first, 0, &mut flight, || 0);
    connection.post(second, 0, &mut flight, || 0);
    connection.pump(&mut flight);
    done(&mut server, second);
    assert_eq!(connection.receive(&mut flight, || 0), Err(End::Broken));
    connection.end(FabricError::Disconnected { server: 3 }, &mut flight);
    // Each list names its own server.
    for ticket in [first, second] {
        assert!(matches!(
            outcome(&mut flight, ticket),
            Poll::Ready(Err(FabricError::Disconnected { server: 0 }))
        ));
    }
}

#[test]
fn a_list_that_was_not_even_sent_cannot_be_answered() {
    let (mut connection, mut server) = connection();
    let mut flight = Flight::default();
    let [first, second] = [(); 2].map(|()| flight.begin_list(write_list(8)));
    connection.post(first, 0, &mut flight, || 0);
    connection.pump(&mut flight);
    connection.post(second, 0, &mut flight, || 0);
    done(&mut server, first);
    done(&mut server, second);
    assert_eq!(connection.receive(&mut flight, || 0), Err(End::Broken));
    assert!(matches!(outcome(&mut flight, first), Poll::Ready(Ok(_))), "the first answer was a good one");
}

#[test]
fn results_that_do_not_fit_their_list_end_the_connection() {
    let (mut connection, mut server) = connection();
    let mut flight = Flight::default();
    let mut list = WorkList::new(0);
    list.read(Space::Host, 0, 8);
    let ticket = flight.begin_list(list);
    connection.post(ticket, 0, &mut flight, || 0);
    connection.pump(&mut flight);
    done(&mut server, ticket);
    assert_eq!(connection.receive(&mut flight, || 0), Err(End::Broken));
    assert!(outcome(&mut flight, ticket).is_pending(), "it is woken when the connection is given up");
}

#[test]
fn what_was_answered_before_the_end_is_delivered() {
    let (mut connection, mut server) = connection();
    let mut flight = Flight::default();
    let [first, second] = [(); 2].map(|()| flight.begin_list(write_list(8)));
    let call = flight.begin_call();
    connection.post(first, 0, &mut flight, || 0);
    connection.post(second, 0, &mut flight, || 0);
    connection.pump(&mut flight);
    connection.call(call, 0, &Request::Usage, || 0).unwrap();
    let mut out = Vec::new();
    put_frame(&mut out, FrameKind::Answer, call.0, |out| {
        sherman_control::wire::responses::put_response(out, &Response::Done).unwrap();
    })
    .unwrap();
    server.write_all(&out).unwrap();
    done(&mut server, first);
    drop(server);
    assert_eq!(connection.receive(&mut flight, || 0), Ok(true));
    connection.pump(&mut flight);
    assert_eq!(connection.receive(&mut flight, || 0), Err(End::Broken));
    assert!(matches!(outcome(&mut flight, first), Poll::Ready(Ok(_))));
    assert!(outcome(&mut flight, second).is_pending());
    let answer = flight.poll_call(call, &mut Context::from_waker(Waker::noop()));
    assert_eq!(answer, Poll::Ready(Ok(Response::Done)));
}

#[test]
fn a_fenced_client_s_later_lists_did_not_execute_either() {
    let (mut connection, mut server) = connection();
    let mut flight = Flight::default();
    let [first, second] = [(); 2].map(|()| flight.begin_list(write_list(8)));
    connection.post(first, 0, &mut flight, || 0);
    connection.post(second, 0, &mut flight, || 0);
    connection.pump(&mut flight);
    let mut out = Vec::new();
    let fenced = FabricError::Fenced { client: sherman_fabric::ComputeId(4) };
    put_frame(&mut out, FrameKind::ListFailed, first.0, |out| {
        sherman_control::wire::errors::put_error(out, &fenced)
    })
    .unwrap();
    server.write_all(&out).unwrap();
    assert_eq!(connection.receive(&mut flight, || 0), Err(End::Fenced));
    assert!(matches!(outcome(&mut flight, first), Poll::Ready(Err(FabricError::Fenced { .. }))));
}

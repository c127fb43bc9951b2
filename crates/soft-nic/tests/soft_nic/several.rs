//! Several copies of a host on one connection.

use crate::copies::{CLIENT, CLUSTER, EPOCH, ONE, OTHER, Plane, at_copy, at_copy_as, enter, two_copies};
use crate::raw::{FREE, Raw, Reply};
use sherman_control::wire::frame::{put_frame, set_memory};
use sherman_control::wire::{Also, FrameKind, Goodbye, GoodbyeCode, Welcome, errors, requests, responses};
use sherman_embedded::host::Host;
use sherman_fabric::{ComputeId, FabricError, Memory, Request, Response, Space, VerbId, WorkList, calls};
use sherman_soft_nic::verbs::{put_list_to, take_results};

/// Bytes that a list writes.
const FREE_BYTES: usize = 8;

/// Asks for a further copy.
fn also(raw: &mut Raw, copy: u16, epoch: u64) -> Result<Welcome, Goodbye> {
    let mut frame = Vec::new();
    put_frame(&mut frame, FrameKind::Also, 0, |out| Also { copy, epoch }.put(out)).unwrap();
    raw.send(&frame);
    match raw.receive() {
        Reply::Frame(FrameKind::Welcome, 0, body) => Ok(Welcome::take(&body).unwrap().message),
        Reply::Frame(FrameKind::Goodbye, 0, body) => Err(Goodbye::take(&body).unwrap()),
        other => panic!("{other:?}"),
    }
}

/// The byte at the place where the lists write.
fn byte_of(host: &Host) -> u8 {
    let mut byte = [0];
    Memory::load(host.memory(), Space::Host, FREE, &mut byte);
    byte[0]
}

/// A list that writes a byte and reads it back.
fn write_and_read(byte: u8) -> (WorkList, VerbId) {
    let mut list = WorkList::new(0);
    list.write(Space::Host, FREE, &[byte; FREE_BYTES]);
    let read = list.read(Space::Host, FREE, FREE_BYTES as u32);
    (list, read)
}

/// Sends lists for these memories together. Returns the first byte that each of them read.
fn execute(raw: &mut Raw, lists: &[(u8, u8)]) -> Vec<Result<u8, FabricError>> {
    let (mut frames, mut sent) = (Vec::new(), Vec::new());
    for (tag, &(memory, byte)) in (1..).zip(lists) {
        let (mut list, read) = write_and_read(byte);
        put_list_to(&mut frames, memory, tag, &mut list).unwrap();
        sent.push((tag, list, read));
    }
    raw.send(&frames);
    let answer = |(tag, mut list, read): (u64, WorkList, VerbId)| match raw.receive() {
        Reply::Frame(FrameKind::ListDone, answered, body) => {
            assert_eq!(answered, tag, "answers come in the order of the lists");
            take_results(&body, &mut list).unwrap();
            Ok(list.bytes(read)[0])
        }
        Reply::Frame(FrameKind::ListFailed, answered, body) => {
            assert_eq!(answered, tag, "answers come in the order of the lists");
            Err(errors::take_error(&body).unwrap())
        }
        other => panic!("{other:?}"),
    };
    sent.into_iter().map(answer).collect()
}

fn call(raw: &mut Raw, memory: u8, request: &Request) -> Result<Response, FabricError> {
    let mut frame = Vec::new();
    put_frame(&mut frame, FrameKind::Call, 5, |out| requests::put_request(out, request).unwrap()).unwrap();
    set_memory(&mut frame, memory);
    raw.send(&frame);
    match raw.receive() {
        Reply::Frame(FrameKind::Answer, 5, body) => Ok(responses::take_response(&body).unwrap()),
        Reply::Frame(FrameKind::Refused, 5, body) => Err(errors::take_error(&body).unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lists_and_calls_reach_the_memory_that_they_name() {
    let plane = Plane::new(false);
    let (server, hosts) = two_copies(&plane);
    let (mut raw, first) = enter(&server, at_copy(ONE));
    let second = also(&mut raw, OTHER, EPOCH).unwrap();
    assert_eq!((first.server, second.server), (ONE, OTHER));
    assert_eq!((second.client, second.incarnation, second.cluster), (CLIENT, 2, CLUSTER));
    assert_eq!(second.memory, hosts[1].superblock().memory_id);
    assert_eq!(server.stats().connections, 1);
    let lists = [(0, 1), (1, 2), (1, 3), (0, 4), (1, 5)];
    let read: Vec<u8> = execute(&mut raw, &lists).into_iter().map(Result::unwrap).collect();
    assert_eq!(read, [1, 2, 3, 4, 5]);
    let bytes = |index: usize| byte_of(&hosts[index]);
    assert_eq!((bytes(0), bytes(1)), (4, 5));
    // Each has its own redo area and its own members.
    assert!(call(&mut raw, 0, &Request::RedoArea).is_ok() && call(&mut raw, 1, &Request::RedoArea).is_ok());
    // It leaves one copy, and goes on at the other.
    assert_eq!(call(&mut raw, 0, &Request::Release), Ok(Response::Done));
    assert_eq!(execute(&mut raw, &[(1, 6)]), [Ok(6)]);
    assert_eq!(execute(&mut raw, &[(0, 7)]), [Err(FabricError::Fenced { client: CLIENT })]);
    assert_eq!(raw.goodbye().code, GoodbyeCode::Fenced);
    assert_eq!((bytes(0), bytes(1)), (4, 6));
}

#[test]
fn a_fence_at_one_copy_ends_the_connection_and_nothing_executes_at_that_copy() {
    let plane = Plane::new(false);
    let (server, hosts) = two_copies(&plane);
    for (round, copy) in (1..).zip([ONE, OTHER]) {
        let (mut raw, _) = enter(&server, at_copy_as(ONE, 10 + round, 1));
        also(&mut raw, OTHER, EPOCH).unwrap();
        assert_eq!(execute(&mut raw, &[(0, 1), (1, 1)]), [Ok(1), Ok(1)]);
        let (mut recoverer, _) = enter(&server, at_copy_as(copy, 20 + round, 1));
        assert_eq!(recoverer.call(calls::Fence { client: ComputeId(10 + round) }), Ok(()));
        assert_eq!(raw.goodbye().code, GoodbyeCode::Fenced);
        let bytes = |index: usize| byte_of(&hosts[index]);
        assert_eq!((bytes(0), bytes(1)), (1, 1));
    }
}

#[test]
fn a_further_copy_is_refused_as_the_first_one_is() {
    let plane = Plane::new(false);
    let (server, _hosts) = two_copies(&plane);
    let refused = |copy, epoch| {
        let (mut raw, _) = enter(&server, at_copy(ONE));
        also(&mut raw, copy, epoch).err().map(|goodbye| goodbye.code)
    };
    assert_eq!(refused(77, EPOCH), Some(GoodbyeCode::NotYet));
    assert_eq!(refused(OTHER, EPOCH + 1), Some(GoodbyeCode::NotYet));
    assert_eq!(refused(OTHER, EPOCH - 1), Some(GoodbyeCode::Fenced));
    assert_eq!(refused(OTHER, EPOCH), None);
    // A memory that the connection does not have.
    let (mut raw, _) = enter(&server, at_copy(ONE));
    let mut frame = Vec::new();
    put_list_to(&mut frame, 1, 9, &mut write_and_read(1).0).unwrap();
    raw.send(&frame);
    assert_eq!(raw.goodbye().code, GoodbyeCode::Malformed);
    // As many copies as one connection may have.
    let (mut raw, _) = enter(&server, at_copy(ONE));
    (1..256).for_each(|_| drop(also(&mut raw, OTHER, EPOCH).unwrap()));
    assert_eq!(execute(&mut raw, &[(255, 8), (0, 9)]), [Ok(8), Ok(9)]);
    assert_eq!(also(&mut raw, OTHER, EPOCH).unwrap_err().code, GoodbyeCode::TooManyConnections);
}

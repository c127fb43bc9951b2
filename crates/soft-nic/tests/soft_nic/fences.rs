//! F6 over the wire: a client that is fenced, has left or has a successor is refused permanently, on every
//! connection. Other clients continue.

use crate::raw::{FREE, Raw, host, host_for, member, options, start};
use sherman_control::wire::{GoodbyeCode, Welcome};
use sherman_fabric::{FabricError, Request, Response, Space, Verdict, WorkList, calls};
use sherman_soft_nic::server::{RunningServer, ServerOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Ends the lease of the member that got `dead`, then fences it, takes it over and retires it.
fn reap(recoverer: &mut Raw, dead: &Welcome) {
    let client = dead.client;
    assert!(recoverer.call(calls::Activate).is_ok());
    assert_eq!(recoverer.call(calls::Condemn { client }), Ok(()));
    assert_eq!(recoverer.call(calls::Suspect { client }), Ok(Verdict::Recover));
    for request in
        [Request::Fence { client }, Request::SpansOf { client, from: 0 }, Request::Retire { client }]
    {
        let answer = recoverer.call(request.clone());
        assert!(matches!(answer, Ok(Response::Done | Response::Spans(_))), "{request:?}: {answer:?}");
    }
    assert_eq!(recoverer.call(calls::FreeId { client }), Ok(()));
}

fn write_once(raw: &mut Raw, byte: u8) -> Result<(), FabricError> {
    let mut list = WorkList::new(0);
    list.write(Space::Host, FREE, &[byte; 8]);
    raw.execute(&mut list)
}

#[test]
fn a_fenced_client_is_refused_on_all_its_connections_and_its_id_s_next_holder_is_not() {
    let server = start(ServerOptions { host: Some(host_for(0, 1, 4)), ..options() });
    let (mut alive, _) = Raw::join(&server);
    let (mut dead, welcome) = Raw::join(&server);
    let (mut second, _) = Raw::again(&server, &welcome).unwrap();
    let (mut third, _) = Raw::again(&server, &welcome).unwrap();
    write_once(&mut dead, 1).unwrap();
    assert!(second.call(calls::Activate).is_ok());
    reap(&mut alive, &welcome);
    // The server says goodbye although the client has sent nothing.
    assert_eq!(dead.goodbye().code, GoodbyeCode::Fenced);
    assert_eq!(second.goodbye().code, GoodbyeCode::Fenced);
    let code = |welcome| Raw::again(&server, welcome).err().map(|goodbye| goodbye.code);
    assert_eq!(code(&welcome), Some(GoodbyeCode::Fenced));
    let (mut next, successor) = next_with(&server, &welcome);
    assert!(successor.incarnation > welcome.incarnation);
    write_once(&mut next, 3).unwrap();
    assert!(write_once(&mut third, 4).is_err(), "the old one is still refused");
    assert_eq!(code(&welcome), Some(GoodbyeCode::Fenced));
    write_once(&mut next, 5).unwrap();
    assert_eq!(server.stats().fences, 1);
}

/// Joins until the id is issued again.
fn next_with(server: &RunningServer, old: &Welcome) -> (Raw, Welcome) {
    let mut kept = Vec::new();
    loop {
        let (raw, welcome) = Raw::join(server);
        if welcome.client == old.client {
            return (raw, welcome);
        }
        kept.push(raw);
        assert!(kept.len() < 4, "the id is not issued again");
    }
}

#[test]
fn a_client_that_leaves_is_out_on_all_its_connections() {
    let server = start(ServerOptions { host: Some(host_for(0, 1, 4)), ..options() });
    let (mut one, welcome) = Raw::join(&server);
    let (mut other, _) = Raw::again(&server, &welcome).unwrap();
    assert_eq!(one.call(calls::Release), Ok(()));
    assert_eq!(one.call(calls::Leave), Ok(()));
    let fenced = FabricError::Fenced { client: welcome.client };
    assert_eq!(write_once(&mut other, 1), Err(fenced.clone()));
    assert_eq!(one.call(calls::Leave), Err(fenced));
    assert_eq!(one.goodbye().code, GoodbyeCode::Fenced);
    assert_eq!(Raw::again(&server, &welcome).err().map(|goodbye| goodbye.code), Some(GoodbyeCode::Fenced));
    let (mut next, _) = next_with(&server, &welcome);
    write_once(&mut next, 2).unwrap();
}

#[test]
fn a_server_that_is_not_the_first_knows_who_was_fenced_there() {
    let server = start(ServerOptions { host: Some(host(1, 2)), ..options() });
    let (mut alive, _) = Raw::enter(&server, None, member(&server, 1, 1, server.boot())).unwrap();
    let (mut dead, welcome) = Raw::enter(&server, None, member(&server, 2, 1, server.boot())).unwrap();
    let client = welcome.client;
    assert_eq!(alive.call(calls::Fence { client }), Ok(()));
    assert_eq!(dead.goodbye().code, GoodbyeCode::Fenced);
    let code = |incarnation| {
        Raw::enter(&server, None, member(&server, 2, incarnation, server.boot()))
            .err()
            .map(|goodbye| goodbye.code)
    };
    assert_eq!(
        (code(1), code(2)),
        (Some(GoodbyeCode::Fenced), Some(GoodbyeCode::Fenced)),
        "until it is retired"
    );
    assert_eq!(alive.call(calls::SpansOf { client, from: 0 }), Ok(Vec::new()));
    assert_eq!(alive.call(calls::Retire { client }), Ok(()));
    assert_eq!((code(1), code(2)), (Some(GoodbyeCode::Fenced), None));
    // Fenced before it ever connected: refused while the tables say so.
    let client = sherman_fabric::ComputeId(9);
    assert_eq!(alive.call(calls::Fence { client }), Ok(()));
    let code =
        Raw::enter(&server, None, member(&server, 9, 1, server.boot())).err().map(|goodbye| goodbye.code);
    assert_eq!(code, Some(GoodbyeCode::Fenced));
}

#[test]
fn memory_stands_still_once_a_fence_is_answered() {
    let server = Arc::new(start(options()));
    let (mut alive, _) = Raw::join(&server);
    assert!(alive.call(calls::Activate).is_ok());
    for round in 0..30 {
        let (mut first, welcome) = Raw::join(&server);
        assert!(first.call(calls::Activate).is_ok());
        let (second, _) = Raw::again(&server, &welcome).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writers = [first, second].into_iter().enumerate().map(|(index, mut raw)| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut value = 0u64;
                while !stop.load(SeqCst) {
                    value += 1;
                    let mut list = WorkList::new(0);
                    for line in 0..8 {
                        list.write(Space::Host, FREE + 64 * (8 * index as u64 + line), &value.to_le_bytes());
                    }
                    if raw.execute(&mut list).is_err() {
                        return;
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        std::thread::sleep(std::time::Duration::from_micros(500 + 137 * round));
        let client = welcome.client;
        assert_eq!(alive.call(calls::Condemn { client }), Ok(()));
        assert_eq!(alive.call(calls::Suspect { client }), Ok(Verdict::Recover));
        assert_eq!(alive.call(calls::Fence { client }), Ok(()));
        let mut image = || {
            let mut list = WorkList::new(0);
            let read = list.read(Space::Host, FREE, 1024);
            alive.execute(&mut list).unwrap();
            list.bytes(read).to_vec()
        };
        let fenced = image();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(image() == fenced, "a fenced client wrote");
        stop.store(true, SeqCst);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(alive.call(calls::SpansOf { client, from: 0 }), Ok(Vec::new()));
        assert_eq!(alive.call(calls::Retire { client }), Ok(()));
        assert_eq!(alive.call(calls::FreeId { client }), Ok(()));
    }
}

#[test]
fn reads_that_are_torn_on_purpose_are_torn_between_lines_only() {
    let server = start(ServerOptions { tear_reads: true, ..options() });
    let (mut reader, welcome) = Raw::join(&server);
    let (mut writer, _) = Raw::again(&server, &welcome).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut value = 0u8;
        while !stopped.load(SeqCst) {
            value = value.wrapping_add(1);
            let mut list = WorkList::new(0);
            list.write(Space::Host, FREE, &[value; 1024]);
            writer.execute(&mut list).unwrap();
        }
    });
    let (mut torn, mut backwards) = (0, 0);
    for _ in 0..3000 {
        let mut list = WorkList::new(0);
        let read = list.read(Space::Host, FREE, 1024);
        reader.execute(&mut list).unwrap();
        let lines: Vec<_> = list.bytes(read).chunks(64).collect();
        for line in &lines {
            assert!(line.iter().all(|byte| byte == &line[0]), "a line is torn");
        }
        torn += usize::from(lines.iter().any(|line| line != &lines[0]));
        // A WRITE proceeds to higher addresses. So if a line is newer than the line before it, the READ
        // copied it later.
        backwards += usize::from(lines.windows(2).any(|pair| pair[1][0].wrapping_sub(pair[0][0]) as i8 > 0));
    }
    stop.store(true, SeqCst);
    thread.join().unwrap();
    assert!(torn > 0 && backwards > 0, "{torn} {backwards}");
    // An unaligned READ is whole where nothing is written.
    let mut list = WorkList::new(0);
    let data: Vec<u8> = (0..777u32).map(|at| at as u8).collect();
    list.write(Space::Host, FREE + 2000, &data);
    let reads: Vec<_> = (0..200).map(|skip| (skip, list_read(&data, skip))).collect();
    reader.execute(&mut list).unwrap();
    for (skip, (offset, len)) in reads {
        let mut list = WorkList::new(0);
        let read = list.read(Space::Host, offset, len);
        reader.execute(&mut list).unwrap();
        assert_eq!(list.bytes(read), &data[skip..]);
    }
}

/// The address and length of the bytes of `data` after `skip`.
fn list_read(data: &[u8], skip: usize) -> (u64, u32) {
    (FREE + 2000 + skip as u64, (data.len() - skip) as u32)
}

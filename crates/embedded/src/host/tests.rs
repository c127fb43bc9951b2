use super::*;
use crate::copy::CopyPath;
use crate::line::Atomicity;
use sherman_fabric::{GlobalAddress, Space};
use sherman_layout::LockOptions;
use std::sync::Arc;

fn options() -> FormatOptions {
    FormatOptions {
        chunk_bytes: 4096,
        redo_slot_bytes: 512,
        redo_area_bytes: 1024,
        member_capacity: 2,
        catalog_capacity: 1,
        locks: LockOptions { space: Space::Host, lanes: Some(64), ..Default::default() },
        ..FormatOptions::default()
    }
}

fn host() -> Host {
    let region = Region::new(64 << 10, 64, Atomicity::Line, CopyPath::fastest()).unwrap();
    Host::format(region, &options()).unwrap()
}

/// Joins as a server does: the session is made under the lock.
fn join(host: &Host) -> Arc<Session> {
    let joined = host.handle(
        Asker::Nobody,
        &Request::Join,
        || host.now(),
        |tables, response| {
            let Response::Joined { client } = response else { panic!("{response:?}") };
            Session::new(client, tables.member(client).unwrap().incarnation).unwrap()
        },
    );
    Arc::new(joined.unwrap())
}

fn ask(host: &Host, asker: Asker<'_>, request: &Request) -> Result<Response, FabricError> {
    host.handle(asker, request, || host.now(), |_, response| response)
}

#[test]
fn a_turn_s_verbs_see_each_other_and_bad_ones_are_refused_by_address() {
    let host = host();
    let mut gate = Gate::new(join(&host));
    let mut turn = gate.enter(&host).unwrap();
    turn.write(Space::Host, 40 << 10, &[7; 100]).unwrap();
    turn.prefetch(Space::Host, 40 << 10, 100);
    turn.prefetch(Space::Host, u64::MAX, 100);
    let mut bytes = [0; 100];
    turn.read(Space::Host, 40 << 10, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 100]);
    assert_eq!(turn.cas(Space::OnChip, 8, 0, 5 << 16, 0xffff << 16), Ok(0));
    assert_eq!(turn.faa(Space::OnChip, 8, 1), Ok(5 << 16));
    let address = GlobalAddress::new(0, (64 << 10) - 10);
    let outside = FabricError::OutOfBounds { space: Space::Host, address, len: 100 };
    assert_eq!(turn.write(Space::Host, (64 << 10) - 10, &[1; 100]), Err(outside.clone()));
    assert_eq!(turn.read(Space::Host, (64 << 10) - 10, &mut bytes), Err(outside));
    let misaligned = FabricError::Misaligned { space: Space::OnChip, address: GlobalAddress::new(0, 4) };
    assert_eq!(turn.faa(Space::OnChip, 4, 1), Err(misaligned.clone()));
    assert_eq!(turn.cas(Space::OnChip, 4, 0, 1, u64::MAX), Err(misaligned));
}

#[test]
fn a_fence_waits_for_the_turn_and_refuses_the_next_on_every_connection() {
    let host = host();
    let session = join(&host);
    let (mut one, mut other) = (Gate::new(Arc::clone(&session)), Gate::new(Arc::clone(&session)));
    let turn = one.enter(&host).unwrap();
    let mut drain = session.fence();
    assert!(!drain.is_over());
    drop(turn);
    assert!(drain.is_over());
    let fenced = FabricError::Fenced { client: session.client() };
    for gate in [&mut one, &mut other, &mut Gate::new(Arc::clone(&session))] {
        assert_eq!(gate.enter(&host).err(), Some(fenced.clone()));
    }
    assert!(session.is_fenced() && session.is_over());
    assert_eq!(ask(&host, Asker::Member(&session), &Request::Usage), Err(fenced.clone()));
    assert_eq!(ask(&host, Asker::Leaver(&session), &Request::Leave), Err(fenced));
}

#[test]
fn one_leaves_once_and_its_late_requests_do_not_reach_the_next_with_its_id() {
    let host = host();
    let first = join(&host);
    let client = first.client();
    assert_eq!(host.member_incarnation(client), Some(first.incarnation()));
    assert!(first.leave().is_over());
    assert!(first.is_over() && !first.is_fenced());
    assert!(Gate::new(Arc::clone(&first)).enter(&host).is_err());
    assert_eq!(ask(&host, Asker::Leaver(&first), &Request::Leave), Ok(Response::Done));
    assert_eq!(host.member_incarnation(client), None);
    let second =
        std::iter::repeat_with(|| join(&host)).take(2).find(|session| session.client() == client).unwrap();
    assert_eq!(second.incarnation(), first.incarnation() + 1);
    let fenced = Err(FabricError::Fenced { client });
    assert_eq!(ask(&host, Asker::Member(&first), &Request::Usage), fenced);
    assert_eq!(ask(&host, Asker::Leaver(&first), &Request::Leave), fenced);
    assert!(ask(&host, Asker::Member(&second), &Request::Usage).is_ok());
    assert_eq!(host.member_incarnation(client), Some(second.incarnation()));
}

#[test]
fn a_fence_marks_the_tables_and_finds_its_session_behind_one_lock() {
    let host = host();
    let (alive, terminated) = (join(&host), join(&host));
    let request = Request::Fence { client: terminated.client() };
    let drain = host.handle(
        Asker::Member(&alive),
        &request,
        || 0,
        |tables, _| {
            assert!(tables.is_fenced(terminated.client()));
            terminated.fence()
        },
    );
    assert!(drain.unwrap().is_over());
    assert!(host.is_fenced(terminated.client()) && !host.is_fenced(alive.client()));
    assert!(host.look(|tables| tables.is_fenced(terminated.client())));
}

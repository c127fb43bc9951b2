//! A cluster that lost a host makes the lost copies again.

use crate::common::{
    Folder, agree, ask, cluster_with, info, join_with, leader_of, settings, table, wait_for,
};
use sherman_control::wire::Role;
use sherman_embedded::host::Host;
use sherman_fabric::calls::{self, JoinGroup};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::group::Admission;
use sherman_fabric::{Memory, Space, Verdict};
use sherman_host::RunningHost;
use sherman_layout::ChunkEntry;
use sherman_replica::VolumeTable;
use std::sync::Arc;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The memory of a copy, on whichever host it is.
fn memory(hosts: &[RunningHost], copy: u16) -> Arc<Host> {
    hosts.iter().find_map(|host| host.handle().copy(copy)).expect("a host has the copy")
}

/// A member that allocates spans in every volume, fills them as a client would, and leaves. Returns an offset
/// of each volume where `byte` is.
fn write(folder: &Folder, names: &[&str], hosts: &[RunningHost], byte: u8) -> Vec<u64> {
    let info = agree(folder, names, "open volumes", |info| info.formed && table(info).all_open());
    let leader = folder.socket(names[leader_of(folder, names, &info)]);
    let admission = ask(&leader, Role::Newcomer, JoinGroup).expect("an identity");
    let (client, incarnation, cluster) = (admission.client, admission.incarnation, admission.cluster);
    let control = || Role::Control { client, incarnation, cluster };
    ask(&leader, control(), calls::Activate).expect("the member is active");
    let table = VolumeTable::decode(&admission.table).expect("a table");
    let mut written = Vec::new();
    for entry in table.volumes() {
        let primary = entry.primary.expect("a primary");
        let at = hosts.iter().position(|host| host.handle().copy(primary).is_some()).expect("a host");
        let role = || Role::Copy { client, incarnation, cluster, copy: primary, epoch: table.epoch() };
        let socket = folder.socket(names[at]);
        // A class of its own: nobody else gets the spans that the member gives back.
        let class = ChunkClass { node_bytes: 64 * u32::from(byte), format: 1 };
        let call = || calls::AllocSpans { class, count: 3 };
        let spans = wait_for("spans", || ask(&socket, role(), call()).ok());
        ask(&socket, role(), calls::RedoArea).expect("a redo area");
        for span in &spans {
            for (_, copy) in entry.copies() {
                let bytes = vec![byte; span.bytes as usize];
                memory(hosts, copy).memory().store(Space::Host, span.offset, &bytes);
            }
        }
        written.push(spans[0].offset);
        ask(&socket, role(), calls::Release).expect("the volume forgets the member");
    }
    ask(&leader, control(), calls::Leave).expect("the member leaves");
    written
}

/// Whether every volume has two copies and is open.
fn is_whole(table: &VolumeTable) -> bool {
    table.all_open() && table.volumes().iter().all(|entry| entry.backup.is_some())
}

/// Checks that both copies of every volume have the same bytes: the tables, and the chunks of nodes.
fn check_equal(hosts: &[RunningHost], table: &VolumeTable) {
    for entry in table.volumes() {
        let copies: Vec<Arc<Host>> = entry.copies().map(|(_, copy)| memory(hosts, copy)).collect();
        assert_eq!(copies.len(), 2);
        let geometry = copies[0].superblock().geometry;
        let load = |host: &Host, from: u64, len: u64| {
            let mut bytes = vec![0; len as usize];
            host.memory().load(Space::Host, from, &mut bytes);
            bytes
        };
        let is_lane = |at: u64| {
            let lock = geometry.lock;
            lock.space == Space::Host && (lock.offset..lock.offset + lock.table_bytes()).contains(&at)
        };
        let [one, other] = [0, 1].map(|which| load(&copies[which], 0, geometry.chunks_offset));
        let differ =
            (0..).zip(one.iter().zip(&other)).find(|(at, (one, other))| one != other && !is_lane(*at));
        assert_eq!(differ, None, "in the tables");
        let mut nodes = 0;
        for index in 0..geometry.chunks {
            if !copies[0].look(|tables| matches!(tables.volume.chunk(index), Some(ChunkEntry::Nodes { .. })))
            {
                continue;
            }
            let at = geometry.chunk_offset(index);
            let [one, other] = [0, 1].map(|which| load(&copies[which], at, geometry.chunk_bytes));
            assert!(one == other, "chunk {index}");
            nodes += 1;
        }
        assert!(nodes > 0);
    }
}

/// Waits until all hosts have carried out the table of that epoch.
fn wait_for_epoch(hosts: &[RunningHost], epoch: u64) {
    wait_for("a table that is carried out", || hosts.iter().all(|host| host.epoch() >= epoch).then_some(()));
}

#[test]
fn a_new_host_gets_the_copies_of_a_lost_one_and_can_take_its_place() {
    let folder = Folder::new();
    let settings = settings(3, 3);
    // Two of the hosts have no room for more than their own copies.
    let room = settings.bytes_per_host();
    let mut hosts = cluster_with(&folder, &NAMES, settings, room);
    let formed = agree(&folder, &NAMES, "a cluster of three voters", |info| {
        info.formed && info.hosts.iter().filter(|host| host.voter).count() == 3
    });
    wait_for_epoch(&hosts, formed.epoch);
    let written = write(&folder, &NAMES, &hosts, 5);
    check_equal(&hosts, &table(&formed));

    let lost = (leader_of(&folder, &NAMES, &formed) + 1) % 3;
    drop(hosts.remove(lost));
    let left: Vec<&str> = (0..3).filter(|at| *at != lost).map(|at| NAMES[at]).collect();
    let after = agree(&folder, &left, "open volumes without the lost host", |info| {
        info.epoch > formed.epoch && table(info).all_open()
    });
    assert!(!is_whole(&table(&after)));
    // Some bytes are younger than the loss.
    let later = write(&folder, &left, &hosts, 6);

    hosts.push(join_with(&folder, "d", left[0], room));
    let number = hosts[2].number();
    let names = [left[0], left[1], "d"];
    let whole = agree(&folder, &names, "two copies of every volume", |info| is_whole(&table(info)));
    // One epoch closes the volumes, and one names the new copies.
    assert_eq!(whole.epoch, after.epoch + 2);
    wait_for_epoch(&hosts, whole.epoch);
    let now = table(&whole);
    check_equal(&hosts, &now);
    let on_new = |copy: u16| now.sites()[usize::from(copy)].host == number;
    let made: Vec<usize> =
        (0..3).filter(|volume| now.volumes()[*volume].backup.is_some_and(on_new)).collect();
    assert_eq!(made.len(), 2);
    // What the CPU stores from now on is on both copies too.
    write(&folder, &names, &hosts, 7);
    check_equal(&hosts, &now);

    // One of the old hosts is lost: the leader, if that is one.
    let three = agree(&folder, &names, "three voters again", |info| {
        info.hosts.iter().filter(|host| host.voter && host.up).count() == 3
    });
    let lost = leader_of(&folder, &names, &three).min(1);
    let gone = hosts.remove(lost);
    let lost_number = gone.number();
    drop(gone);
    let left = [names[1 - lost], "d"];
    let end = agree(&folder, &left, "a primary of every volume", |info| {
        info.epoch > whole.epoch && table(info).all_open()
    });
    wait_for_epoch(&hosts, end.epoch);
    let end = table(&end);
    let mut promoted = 0;
    for (volume, entry) in end.volumes().iter().enumerate() {
        let primary = entry.primary.expect("a primary");
        let site = end.sites()[usize::from(primary)].host;
        assert_ne!(site, lost_number);
        promoted += usize::from(site == number);
        let host = memory(&hosts, primary);
        for (offset, byte) in [(written[volume], 5), (later[volume], 6)] {
            assert_eq!(host.memory().load_u64(Space::Host, offset), u64::from_le_bytes([byte; 8]));
        }
        assert!(host.census().chunks_used > 0);
    }
    assert!(promoted > 0, "{end:?}");
    assert!(info(&folder, "d").is_some());
}

#[test]
fn the_hosts_that_are_left_make_the_copies_if_they_have_room() {
    let folder = Folder::new();
    let mut hosts = cluster_with(&folder, &NAMES, settings(3, 3), 64 << 20);
    let formed = agree(&folder, &NAMES, "a cluster of three voters", |info| {
        info.formed && info.hosts.iter().filter(|host| host.voter).count() == 3
    });
    wait_for_epoch(&hosts, formed.epoch);
    write(&folder, &NAMES, &hosts, 5);
    // The leader is lost, and with it the reports that it would get.
    let lost = leader_of(&folder, &NAMES, &formed);
    drop(hosts.remove(lost));
    let left: Vec<&str> = (0..3).filter(|at| *at != lost).map(|at| NAMES[at]).collect();
    let whole = agree(&folder, &left, "two copies of every volume", |info| {
        info.epoch > formed.epoch && is_whole(&table(info))
    });
    wait_for_epoch(&hosts, whole.epoch);
    check_equal(&hosts, &table(&whole));
}

#[test]
fn volumes_open_again_if_a_member_keeps_the_state_from_being_quiet() {
    let folder = Folder::new();
    let settings = settings(3, 3);
    let room = settings.bytes_per_host();
    let mut hosts = cluster_with(&folder, &NAMES, settings, room);
    let formed = agree(&folder, &NAMES, "a cluster of three voters", |info| {
        info.formed && info.hosts.iter().filter(|host| host.voter).count() == 3
    });
    wait_for_epoch(&hosts, formed.epoch);
    let leader = leader_of(&folder, &NAMES, &formed);
    drop(hosts.remove((leader + 1) % 3));
    let seen = || info(&folder, NAMES[leader]);
    let open = wait_for("open volumes without the lost host", || {
        seen().filter(|info| info.epoch > formed.epoch && table(info).all_open())
    });

    // A member renews its lease until volumes close so that copies can be made. Then it says nothing more.
    let at_leader = folder.socket(NAMES[leader]);
    let admission = ask(&at_leader, Role::Newcomer, JoinGroup).expect("an identity");
    let (client, incarnation, cluster) = (admission.client, admission.incarnation, admission.cluster);
    let control = || Role::Control { client, incarnation, cluster };
    ask(&at_leader, control(), calls::Activate).expect("the member is active");
    let (closed, _new) = std::thread::scope(|scope| {
        let new = scope.spawn(|| join_with(&folder, "d", NAMES[leader], room));
        let closed = wait_for("closed volumes", || {
            let _ = ask(&at_leader, control(), calls::Renew);
            seen().filter(|info| info.epoch > open.epoch)
        });
        (closed, new.join().expect("a new host"))
    });
    let closed_for: Vec<bool> = table(&closed).volumes().iter().map(|entry| entry.open).collect();
    assert_eq!(closed_for.iter().filter(|open| !**open).count(), 2, "{closed_for:?}");
    // Nobody recovers the member, so nobody says that nobody writes.
    let opened = wait_for("open volumes", || seen().filter(|info| table(info).all_open()));
    assert_eq!(opened.epoch, closed.epoch);
    assert!(!is_whole(&table(&opened)));

    // When the member is gone, the volumes close again. That ends its recoverer, whose successor recovers it.
    let next = || ask(&at_leader, Role::Newcomer, JoinGroup).expect("an identity");
    let ask_as = |admission: &Admission| {
        let Admission { client, incarnation, cluster, .. } = *admission;
        Role::Control { client, incarnation, cluster }
    };
    let recoverer = next();
    ask(&at_leader, ask_as(&recoverer), calls::Activate).expect("the recoverer is active");
    wait_for("a dead member", || {
        let _ = ask(&at_leader, ask_as(&recoverer), calls::Renew);
        let verdict = ask(&at_leader, ask_as(&recoverer), calls::Suspect { client }).expect("a verdict");
        (verdict == Verdict::Recover).then_some(())
    });
    ask(&at_leader, ask_as(&recoverer), calls::Relieve { client }).expect("nothing to replay");
    ask(&at_leader, ask_as(&recoverer), calls::FreeId { client }).expect("nothing to retire");
    wait_for("closed volumes", || seen().filter(|info| info.epoch > opened.epoch));
    let successor = next();
    let former = recoverer.client;
    let succeed = calls::Succeed { client: former, incarnation: recoverer.incarnation };
    ask(&at_leader, ask_as(&successor), calls::Activate).expect("the successor is active");
    assert_eq!(ask(&at_leader, ask_as(&successor), succeed), Ok(Verdict::Inherit));
    ask(&at_leader, ask_as(&successor), calls::Relieve { client: former }).expect("nothing to replay");
    ask(&at_leader, ask_as(&successor), calls::FreeId { client: former }).expect("nothing to retire");
    wait_for("two copies of every volume", || {
        let _ = ask(&at_leader, ask_as(&successor), calls::Renew);
        seen().filter(|info| is_whole(&table(info)))
    });
}

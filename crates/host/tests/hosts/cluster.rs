//! A cluster forms, loses a host, and goes on.

use crate::common::{
    Folder, agree, ask, cluster, cluster_with, info, join, leader_of, settings, table, wait_for,
};
use sherman_control::wire::Role;
use sherman_fabric::calls::{self, JoinGroup};
use sherman_fabric::{FabricError, Refusal};
use sherman_host::{Ended, RunningHost};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Whether all hosts have carried out their table.
fn carried_out(hosts: &[RunningHost], epoch: u64) -> Option<()> {
    hosts.iter().all(|host| host.epoch() >= epoch).then_some(())
}

#[test]
fn three_hosts_form_a_cluster_and_go_on_when_the_leader_is_lost() {
    let folder = Folder::new();
    let settings = settings(3, 3);
    // No host has room for another copy, so no lost copy is made again.
    let mut hosts = cluster_with(&folder, &NAMES, settings, settings.bytes_per_host());
    let formed = agree(&folder, &NAMES, "a cluster of three voters", |info| {
        info.formed && info.hosts.len() == 3 && info.hosts.iter().all(|host| host.up && host.voter)
    });
    assert_eq!(formed.cluster, hosts[0].cluster());
    let before = table(&formed);
    assert!(before.all_open() && before.is_replicated() && before.volumes().len() == 3);
    wait_for("copies", || carried_out(&hosts, formed.epoch));

    let lost = leader_of(&folder, &NAMES, &formed);
    let number = hosts[lost].number();
    let led = hosts.remove(lost);
    led.stop();
    assert_eq!(led.join().ok(), Some(Ended::Stopped));
    let left: Vec<&str> = (0..3).filter(|at| *at != lost).map(|at| NAMES[at]).collect();
    let after = agree(&folder, &left, "another leader and a new table", |info| {
        info.epoch > formed.epoch && info.hosts.iter().all(|host| host.up == (host.number != number))
    });
    assert_ne!(after.leader, formed.leader);
    let now = table(&after);
    for (volume, entry) in (0..).zip(now.volumes()) {
        let (was, primary) = (before.volume(volume).unwrap(), entry.primary.unwrap());
        assert_ne!(now.sites()[usize::from(primary)].host, number);
        let promoted = was.primary != Some(primary);
        assert!(!promoted || (was.backup == Some(primary) && entry.backup.is_none()), "{volume}: {entry:?}");
    }
    assert_ne!(before.volumes(), now.volumes());
    wait_for("promoted copies", || carried_out(&hosts, after.epoch));
    // No client has ever joined, so nobody must be recovered before the volumes open.
    agree(&folder, &left, "open volumes", |info| table(info).all_open());

    // A new host takes the place of the lost one in the group.
    let joined = join(&folder, "d", left[1]).expect("a new host");
    let all = [left[0], left[1], "d"];
    let grown = agree(&folder, &all, "three voters again", |info| {
        let voters: Vec<u16> = info.hosts.iter().filter(|host| host.voter).map(|host| host.number).collect();
        voters.len() == 3 && voters.contains(&joined.number()) && !voters.contains(&number)
    });
    assert!(grown.hosts.iter().any(|host| host.number == joined.number() && host.up));
}

#[test]
fn only_the_leader_admits_clients_and_only_when_there_are_volumes() {
    let folder = Folder::new();
    let mut hosts = cluster(&folder, &NAMES[..2], settings(3, 2));
    let forming = agree(&folder, &NAMES[..2], "two hosts", |info| info.hosts.len() == 2);
    assert!(!forming.formed && forming.epoch == 0);
    let leader = leader_of(&folder, &NAMES, &forming);
    let at_leader = folder.socket(NAMES[leader]);
    let refused = ask(&at_leader, Role::Newcomer, JoinGroup);
    assert_eq!(refused, Err(FabricError::Refused(Refusal::Forming { hosts: 2, expected: 3 })));
    let at_other = folder.socket(NAMES[1 - leader]);
    let address = forming.leader.clone().unwrap();
    let refused = ask(&at_other, Role::Newcomer, JoinGroup);
    assert_eq!(refused, Err(FabricError::Refused(Refusal::NotLeader { leader: address })));

    hosts.push(join(&folder, NAMES[2], NAMES[1]).expect("the third host"));
    agree(&folder, &NAMES, "volumes", |info| info.formed);
    let admission = ask(&at_leader, Role::Newcomer, JoinGroup).expect("an identity");
    assert_eq!((admission.cluster, admission.hosts.len()), (hosts[0].cluster(), 3));
    // The member asks the leader over a connection of its own.
    let role =
        |incarnation| Role::Control { client: admission.client, incarnation, cluster: admission.cluster };
    let renewal = ask(&at_leader, role(admission.incarnation), calls::Renew).expect("a renewal");
    assert!(renewal.expired.is_empty());
    let other = ask(&at_leader, role(admission.incarnation + 1), calls::Renew);
    assert_eq!(other, Err(FabricError::Fenced { client: admission.client }));
    let members = ask(&at_leader, Role::Admin, calls::Members).expect("the members");
    assert_eq!(members.len(), 1);
}

#[test]
fn a_host_that_was_declared_lost_stops() {
    let folder = Folder::new();
    let mut hosts = cluster(&folder, &NAMES, settings(3, 3));
    let formed = agree(&folder, &NAMES, "a cluster of three voters", |info| {
        info.formed && info.hosts.iter().filter(|host| host.voter).count() == 3
    });
    let leader = leader_of(&folder, &NAMES, &formed);
    let lost = (leader + 1) % 3;
    let number = hosts[lost].number();
    let declared = calls::DeclareLost { server: number };
    ask(&folder.socket(NAMES[leader]), Role::Admin, declared).expect("the leader declares it lost");
    assert_eq!(hosts.remove(lost).join().ok(), Some(Ended::Lost { host: number }));
    let after =
        wait_for("a new table", || info(&folder, NAMES[leader]).filter(|info| info.epoch > formed.epoch));
    assert_eq!(after.leader, formed.leader);
}

#[test]
fn a_cluster_of_two_hosts_survives_the_loss_of_the_one_that_does_not_lead() {
    let folder = Folder::new();
    let mut hosts = cluster(&folder, &NAMES[..2], settings(2, 2));
    let formed = agree(&folder, &NAMES[..2], "two hosts", |info| info.formed);
    drop(hosts.pop());
    let after = wait_for("a new table", || {
        info(&folder, NAMES[0]).filter(|info| info.epoch > formed.epoch && table(info).all_open())
    });
    assert!(table(&after).volumes().iter().all(|entry| entry.primary.is_some() && entry.backup.is_none()));
}

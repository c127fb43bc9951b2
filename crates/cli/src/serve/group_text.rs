//! The metrics of a host about its cluster, as the host knows it.

use sherman::Hosts;
use sherman_metrics::Text;

/// The hosts, volumes and copies of a cluster. `own` is the number of this host.
pub fn group_text(hosts: &Hosts, own: u16) -> String {
    let mut text = Text::new();
    let address = hosts.hosts.iter().find(|host| host.id == own).map(|host| host.address.as_str());
    let leads = hosts.leader.is_some() && hosts.leader.as_deref() == address;
    text.gauge("sherman_host_number", "The number of this host in its cluster", own);
    text.gauge("sherman_group_leads", "1 if this host leads the control group", u8::from(leads));
    text.gauge("sherman_group_epoch", "The epoch of the newest table of volumes", hosts.epoch);
    text.head("sherman_group_hosts", "Hosts of the cluster, by state", "gauge");
    let states = ["present", "leaving", "left", "lost"];
    for state in states {
        let count = hosts.hosts.iter().filter(|host| host.state() == state).count();
        text.sample("sherman_group_hosts", &[("state", state)], count);
    }
    text.head("sherman_volumes", "Volumes of the cluster, by state; a volume may have several", "gauge");
    let counts = [
        ("two_copies", hosts.volumes.iter().filter(|volume| volume.backup.is_some()).count()),
        ("one_copy", hosts.volumes_with_one_copy()),
        ("in_the_making", hosts.volumes_in_the_making()),
        ("moving", hosts.volumes_moving()),
        ("closed", hosts.volumes_closed()),
        ("lost", hosts.volumes_lost()),
    ];
    for (state, count) in counts {
        text.sample("sherman_volumes", &[("state", state)], count);
    }
    let (done, total) = hosts.copied_bytes();
    let help = "Bytes of the copies that are being made now: those that were compared or sent";
    text.gauge("sherman_copies_bytes_done", help, done);
    let help = "Bytes of the copies that are being made now: all of them that are in use";
    text.gauge("sherman_copies_bytes", help, total);
    if let Some(time) = hosts.copies_take() {
        let help = "Estimated time until the copies that are being made have all bytes";
        text.gauge("sherman_copies_seconds_left", help, time.as_secs_f64());
    }
    text.finish()
}

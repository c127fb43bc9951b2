use super::*;

fn v4(last: u8) -> Gid {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn v6(first: u16) -> Gid {
    Gid(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 7).octets())
}

fn entries(gids: &[(Gid, GidKind)]) -> Vec<GidEntry> {
    let entry = |(index, &(gid, kind)): (usize, &(Gid, GidKind))| GidEntry { index: index as u8, gid, kind };
    gids.iter().enumerate().map(entry).collect()
}

fn roce(number: u8, active: bool, gids: &[(Gid, GidKind)]) -> PortInfo {
    PortInfo { number, active, layer: Layer::Ethernet, mtu: Mtu::M1024, lid: 0, gids: entries(gids) }
}

fn device(name: &str, ports: Vec<PortInfo>) -> DeviceInfo {
    DeviceInfo { name: name.to_owned(), ports }
}

fn ip(gid: Gid) -> Option<IpAddr> {
    Some(gid.ip())
}

use GidKind::{InfiniBand, RoceV1, RoceV2};

#[test]
fn the_best_address_is_chosen_and_an_index_overrides_it() {
    let all = [
        (v6(0xfe80), RoceV1),
        (v6(0xfe80), RoceV2),
        (v6(0x2001), RoceV2),
        (v4(1), RoceV1),
        (v4(1), RoceV2),
        (v4(2), RoceV2),
        (Gid::default(), RoceV2),
    ];
    let chosen = |gids: &[(Gid, GidKind)], near| {
        choose_gid(&roce(1, true, gids), None, near, None).map(|entry| (entry.gid, entry.kind))
    };
    assert_eq!(chosen(&all, None), Ok((v4(1), RoceV2)));
    assert_eq!(chosen(&all, ip(v4(2))), Ok((v4(2), RoceV2)));
    assert_eq!(chosen(&all, ip(v4(9))), Ok((v4(1), RoceV2)));
    assert_eq!(chosen(&all[..4], None), Ok((v6(0x2001), RoceV2)));
    assert_eq!(chosen(&all[..2], None), Ok((v6(0xfe80), RoceV2)));
    // RoCE v1 alone is still a usable address.
    assert_eq!(chosen(&[all[0], all[3]], None), Ok((v4(1), RoceV1)));
    assert_eq!(chosen(&all[..1], None), Ok((v6(0xfe80), RoceV1)));
    assert_eq!(chosen(&all[6..], None), Err(AddressError::NoGid));
    assert_eq!(chosen(&[], None), Err(AddressError::NoGid));
    let asked = |index| choose_gid(&roce(1, true, &all), Some(index), None, None).map(|entry| entry.index);
    assert_eq!((asked(0), asked(7)), (Ok(0), Err(AddressError::NoSuchGid { gid: 7 })));
}

#[test]
fn a_server_follows_the_kind_that_the_client_has() {
    let port = roce(1, true, &[(v6(0xfe80), RoceV2), (v4(1), RoceV1), (v4(1), RoceV2)]);
    let follow = |kind, gid| choose_gid(&port, None, None, Some((kind, gid))).map(|entry| entry.index);
    assert_eq!(follow(RoceV2, v4(9)), Ok(2));
    assert_eq!(follow(RoceV1, v4(9)), Ok(1));
    assert_eq!(follow(RoceV2, v6(0xfe80)), Ok(0));
    assert_eq!(follow(RoceV1, v6(0xfe80)), Err(AddressError::NoGid));
}

#[test]
fn the_first_active_port_is_chosen_unless_another_is_near() {
    let devices = [
        device("a", vec![roce(1, false, &[(v4(1), RoceV2)])]),
        device("b", vec![roce(1, false, &[]), roce(2, true, &[(v4(2), RoceV2)])]),
        device("c", vec![roce(1, true, &[(v4(3), RoceV2)])]),
    ];
    let choose = |options: &VerbsOptions, near| choose_port(&devices, options, near);
    let any = VerbsOptions::default();
    assert_eq!(choose(&any, None), Ok((1, 1)));
    assert_eq!(choose(&any, ip(v4(3))), Ok((2, 0)));
    // An address of a port that is down is no reason to prefer that port.
    assert_eq!(choose(&any, ip(v4(1))), Ok((1, 1)));
    let named =
        |name: &str, port| VerbsOptions { device: Some(name.to_owned()), port, ..VerbsOptions::default() };
    assert_eq!(choose(&named("c", None), ip(v4(2))), Ok((2, 0)));
    assert_eq!(choose(&named("b", Some(2)), None), Ok((1, 1)));
    assert_eq!(choose(&named("b", Some(1)), None), Err(AddressError::NoActivePort));
    assert_eq!(choose(&named("a", None), None), Err(AddressError::NoActivePort));
    assert_eq!(choose(&named("c", Some(2)), None), Err(AddressError::NoSuchPort { port: 2 }));
    let there_are = ["a", "b", "c"].map(str::to_owned).to_vec();
    let missing = AddressError::NoSuchDevice { name: "d".to_owned(), there_are };
    assert_eq!(choose(&named("d", None), None), Err(missing));
    assert_eq!(choose_port(&[], &any, None), Err(AddressError::NoActivePort));
}

#[test]
fn infiniband_needs_a_gid_only_across_subnets_and_roce_always() {
    let ib = |lid, subnet| Address { layer: Layer::InfiniBand, lid, kind: InfiniBand, gid: v6(subnet) };
    assert_eq!(ib(1, 0xfe80).needs_gid(&ib(2, 0xfe80)), Some(false));
    assert_eq!(ib(1, 0xfe80).needs_gid(&ib(2, 0x2001)), Some(true));
    assert_eq!(ib(1, 0xfe80).needs_gid(&ib(0, 0xfe80)), Some(true));
    let roce = |kind| Address { layer: Layer::Ethernet, lid: 0, kind, gid: v4(1) };
    assert_eq!(roce(RoceV2).needs_gid(&roce(RoceV2)), Some(true));
    assert_eq!(roce(RoceV2).needs_gid(&roce(RoceV1)), None);
    assert_eq!(roce(RoceV2).needs_gid(&ib(1, 0xfe80)), None);
    let port =
        PortInfo { layer: Layer::InfiniBand, lid: 5, ..self::roce(1, true, &[(v6(0xfe80), InfiniBand)]) };
    assert_eq!(choose_gid(&port, None, None, None).map(|entry| entry.index), Ok(0));
}

#[test]
fn packets_have_five_sizes() {
    for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        let mtu = Mtu::from_code(code).expect("a code");
        assert_eq!((mtu.bytes(), Mtu::from_bytes(bytes)), (bytes, Some(mtu)));
    }
    assert_eq!((Mtu::from_code(0), Mtu::from_code(6), Mtu::from_bytes(1500)), (None, None, None));
}

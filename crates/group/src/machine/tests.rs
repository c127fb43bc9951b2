use super::command::{decode, encode};
use super::*;
use sherman_fabric::group::HostOffer;
use sherman_fabric::{ComputeId, Request};
use sherman_memory_server::cluster::Command;

fn commands() -> Vec<Command> {
    let now = u64::MAX - 1;
    let offer =
        HostOffer { address: "unix:/größe".into(), memory_bytes: 1, boot: 2, cluster: 3, keeps: true };
    let request = Request::OpenTree { name: "orders".into() };
    vec![
        Command::Lead { now },
        Command::HostReturned { now, host: 3, incarnation: 4, offer: offer.clone() },
        Command::Register { now, offer },
        Command::HostLost { now, host: 3, incarnation: 4 },
        Command::Join { now },
        Command::Ask { now, client: ComputeId(5), incarnation: 6, request: request.clone() },
        Command::Ask { now, client: ComputeId(5), incarnation: 6, request: Request::Renew },
        Command::Operate { now, request },
        Command::Tick { now },
        Command::Copied { now, copy: 7 },
        Command::Settled { now, copy: 7, epoch: 1 << 40 },
        Command::AbortMaking { now },
    ]
}

#[test]
fn every_command_is_decoded_to_what_was_encoded() {
    for command in commands() {
        let bytes = encode(&command).unwrap();
        assert_eq!(decode(&bytes).unwrap(), command);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{command:?} cut at {end}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(decode(&longer).is_err(), "{command:?}");
    }
}

#[test]
fn garbage_is_answered_and_changes_nothing() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut machine = Machine::default();
    for _ in 0..10_000 {
        let len = random.usize(..60);
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..40)).take(len).collect();
        let answer = machine.apply(1, &bytes);
        assert!(matches!(answer, Err(FabricError::Refused(Refusal::BadRequest { .. }))), "{bytes:?}");
    }
    assert_eq!(sherman_control::wire::words::known(NO_COMMAND), NO_COMMAND);
    assert!(machine.state().is_none() && machine.snapshot().is_empty());
    assert!(!machine.restore(&[]) && !machine.restore(&[1, 2, 3]));
}

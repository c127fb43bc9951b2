//! Messages between the nodes of a group, and the parts that the log has in common with them, as bytes.
//!
//! The format is our own: fixed little-endian fields behind a version byte. So neither the wire nor the log
//! depends on how the `raft` crate encodes its messages, and a reader checks every length.

use crate::bytes::{Reader, Writer};
use crate::error::BadMessage;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};

/// The version of the format of messages.
const VERSION: u8 = 1;

/// The messages that nodes send each other, by their number on the wire. Nodes forward neither proposals nor
/// reads: a caller asks the leader.
const TYPES: [MessageType; 10] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTimeoutNow,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];

/// Encodes `message`. Returns `None` for a message that nodes do not send.
pub(crate) fn encode(message: &Message) -> Option<Vec<u8>> {
    let kind = TYPES.iter().position(|kind| *kind == message.get_msg_type())?;
    let mut writer = Writer::default();
    writer.u8(VERSION).u8(kind as u8);
    for field in fields(message) {
        writer.u64(field);
    }
    writer.u64(message.priority as u64).u8(u8::from(message.reject)).bytes(&message.context);
    writer.u64(message.entries.len() as u64);
    for entry in message.get_entries() {
        put_entry(&mut writer, entry);
    }
    writer.u8(u8::from(message.has_snapshot()));
    if message.has_snapshot() {
        put_snapshot(&mut writer, message.get_snapshot());
    }
    Some(writer.0)
}

/// The numbers of a message, in their order on the wire.
fn fields(message: &Message) -> [u64; 10] {
    [
        message.to,
        message.from,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
        message.reject_hint,
        message.deprecated_priority,
    ]
}

/// Decodes a message.
pub(crate) fn decode(bytes: &[u8]) -> Result<Message, BadMessage> {
    let mut reader = Reader(bytes);
    let version = reader.u8().ok_or(BadMessage::Malformed { what: "it is empty" })?;
    if version != VERSION {
        return Err(BadMessage::OtherVersion { found: version });
    }
    let message = message(&mut reader).ok_or(BadMessage::Malformed { what: "a field is cut or unknown" })?;
    if !reader.is_empty() {
        return Err(BadMessage::Malformed { what: "bytes follow its end" });
    }
    Ok(message)
}

fn message(reader: &mut Reader<'_>) -> Option<Message> {
    let mut message = Message::default();
    message.set_msg_type(*TYPES.get(usize::from(reader.u8()?))?);
    message.to = reader.u64()?;
    message.from = reader.u64()?;
    message.term = reader.u64()?;
    message.log_term = reader.u64()?;
    message.index = reader.u64()?;
    message.commit = reader.u64()?;
    message.commit_term = reader.u64()?;
    message.request_snapshot = reader.u64()?;
    message.reject_hint = reader.u64()?;
    message.deprecated_priority = reader.u64()?;
    message.priority = reader.u64()? as i64;
    message.reject = reader.flag()?;
    message.context = reader.bytes()?.into();
    let count = reader.u64()?;
    // An entry has at least a byte: a length from outside cannot make this loop long.
    if count > reader.0.len() as u64 {
        return None;
    }
    for _ in 0..count {
        message.mut_entries().push(entry(reader)?);
    }
    if reader.flag()? {
        message.set_snapshot(snapshot(reader)?);
    }
    Some(message)
}

pub(crate) fn put_entry(writer: &mut Writer, entry: &Entry) {
    writer.u8(u8::from(entry.get_entry_type() == EntryType::EntryConfChange));
    writer.u64(entry.term).u64(entry.index).bytes(&entry.context).bytes(&entry.data);
}

pub(crate) fn entry(reader: &mut Reader<'_>) -> Option<Entry> {
    let mut entry = Entry::default();
    if reader.flag()? {
        entry.set_entry_type(EntryType::EntryConfChange);
    }
    entry.term = reader.u64()?;
    entry.index = reader.u64()?;
    entry.context = reader.bytes()?.into();
    entry.data = reader.bytes()?.into();
    Some(entry)
}

pub(crate) fn put_snapshot(writer: &mut Writer, snapshot: &Snapshot) {
    let metadata = snapshot.get_metadata();
    let members = metadata.get_conf_state();
    writer.u64(metadata.index).u64(metadata.term);
    writer.numbers(&members.voters).numbers(&members.learners).bytes(&snapshot.data);
}

pub(crate) fn snapshot(reader: &mut Reader<'_>) -> Option<Snapshot> {
    let place = (reader.u64()?, reader.u64()?);
    let members = conf_state(reader.numbers()?, reader.numbers()?);
    Some(snapshot_of(place, members, reader.bytes()?))
}

/// A snapshot of `data` as of this index and term.
pub(crate) fn snapshot_of((index, term): (u64, u64), members: ConfState, data: Vec<u8>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.set_data(data.into());
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (index, term);
    metadata.set_conf_state(members);
    snapshot
}

/// The members of a group without a joint configuration.
pub(crate) fn conf_state(voters: Vec<u64>, learners: Vec<u64>) -> ConfState {
    let mut members = ConfState::default();
    (members.voters, members.learners) = (voters, learners);
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Message {
        let mut message = Message { to: 2, from: 1, term: 7, index: 9, commit: 8, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppend);
        message.reject = true;
        message.context = vec![1, 2].into();
        let mut change = Entry { term: 7, index: 11, context: vec![3].into(), ..Entry::default() };
        change.set_entry_type(EntryType::EntryConfChange);
        let command = Entry { term: 7, index: 10, data: vec![5; 40].into(), ..Entry::default() };
        message.set_entries(vec![command, change].into());
        message.set_snapshot(snapshot_of((4, 2), conf_state(vec![1, 2], vec![3]), vec![9; 30]));
        message
    }

    #[test]
    fn a_message_reads_back_as_it_was_written() {
        let message = example();
        let bytes = encode(&message).expect("a message that nodes send");
        assert_eq!(decode(&bytes), Ok(message));
    }

    #[test]
    fn every_cut_and_every_other_version_of_a_message_is_refused() {
        let bytes = encode(&example()).expect("a message that nodes send");
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decode(&longer).is_err());
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(decode(&other), Err(BadMessage::OtherVersion { found: 2 }));
    }

    #[test]
    fn changed_bytes_never_panic_and_local_messages_are_not_encoded() {
        let bytes = encode(&example()).expect("a message that nodes send");
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = decode(&changed);
            }
        }
        let mut local = Message::default();
        local.set_msg_type(MessageType::MsgHup);
        assert_eq!(encode(&local), None);
    }
}

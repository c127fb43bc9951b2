use super::*;
use fastrand::Rng;
use sherman_fabric::VerbId;

/// A random list, and the ids of its verbs.
fn any_list(random: &mut Rng, most: usize) -> (WorkList, Vec<VerbId>) {
    let mut list = WorkList::new(3);
    let ids = (0..random.usize(..=most)).map(|_| {
        let space = if random.bool() { Space::Host } else { Space::OnChip };
        let (offset, len) = (random.u64(..), random.usize(..200));
        match random.u8(..5) {
            0 => list.read(space, offset, len as u32),
            1 => list.write(space, offset, &vec![random.u8(..); len]),
            2 => list.write_fenced(space, offset, &vec![random.u8(..); len]),
            3 => list.masked_cas(space, offset, random.u64(..), random.u64(..), random.u64(..)),
            _ => list.faa(space, offset, random.u64(..)),
        }
    });
    let ids = ids.collect();
    (list, ids)
}

/// The verb at `index` as the server should see it.
fn expected(list: &mut WorkList, index: usize) -> (WireVerb<'_>, usize) {
    let (verb, arena) = list.parts_mut(index);
    match verb {
        Verb::Read { space, offset, len, .. } => (WireVerb::Read { space, offset, len }, 16),
        Verb::Write { space, offset, at, len, fenced } => {
            let data = &arena[at as usize..][..len as usize];
            (WireVerb::Write { space, offset, data, fenced }, 16 + data.len())
        }
        Verb::Cas { space, offset, compare, swap, mask, .. } => {
            (WireVerb::Cas { space, offset, compare, swap, mask }, 40)
        }
        Verb::Faa { space, offset, add, .. } => (WireVerb::Faa { space, offset, add }, 24),
    }
}

#[test]
fn a_list_is_decoded_to_the_verbs_that_were_encoded_however_it_arrives() {
    let mut random = Rng::with_seed(1);
    for _ in 0..2_000 {
        let (mut list, _) = any_list(&mut random, 20);
        let mut frame = vec![1, 2, 3];
        let size = put_list(&mut frame, 77, &mut list).unwrap();
        let header = FrameHeader::decode(&frame[3..]).unwrap().unwrap();
        assert_eq!((header.kind, header.tag, header.count), (FrameKind::List, 77, list.len() as u16));
        let body = &frame[3 + HEADER_BYTES..];
        assert_eq!((body.len(), size.body), (header.len as usize, header.len));
        let (mut decoder, mut at, mut end, mut index) = (ListDecoder::new(&header), 0, 0, 0);
        loop {
            match decoder.next(&body[at..end]).unwrap() {
                Next::Verb { verb, used } => {
                    assert_eq!((verb, used), expected(&mut list, index));
                    (at, index) = (at + used, index + 1);
                }
                Next::Partial { needed } => {
                    assert!(needed > end - at && at + needed <= body.len());
                    end = (end + random.usize(1..50)).min(body.len());
                }
                Next::End => break,
            }
        }
        assert_eq!((at, index, decoder.bytes_left()), (body.len(), list.len(), 0));
    }
}

#[test]
fn results_come_back_to_the_verbs_they_belong_to() {
    let mut random = Rng::with_seed(2);
    for _ in 0..2_000 {
        let (mut list, ids) = any_list(&mut random, 20);
        let verbs = list.verbs().to_vec();
        let mut results: Vec<u8> = Vec::new();
        for verb in &verbs {
            let len = match verb {
                Verb::Read { len, .. } => *len as usize,
                Verb::Write { .. } => 0,
                Verb::Cas { .. } | Verb::Faa { .. } => 8,
            };
            results.extend(std::iter::repeat_with(|| random.u8(..)).take(len));
        }
        assert_eq!(list_size(&list).unwrap().results as usize, results.len());
        let written = ids.iter().zip(&verbs).map(|(id, verb)| match verb {
            Verb::Write { .. } => list.bytes(*id).to_vec(),
            _ => Vec::new(),
        });
        let written: Vec<_> = written.collect();
        take_results(&results, &mut list).unwrap();
        let mut rest = &results[..];
        for ((id, verb), written) in ids.iter().zip(&verbs).zip(&written) {
            match verb {
                Verb::Read { len, .. } => {
                    let (mine, left) = rest.split_at(*len as usize);
                    assert_eq!(list.bytes(*id), mine);
                    rest = left;
                }
                Verb::Write { .. } => assert_eq!(list.bytes(*id), written),
                Verb::Cas { .. } | Verb::Faa { .. } => {
                    let (mine, left) = rest.split_at(8);
                    assert_eq!(list.old(*id).to_le_bytes(), mine);
                    rest = left;
                }
            }
        }
        if let Some(last) = results.pop() {
            assert_eq!(take_results(&results, &mut list), Err(WireError::Truncated));
            results.extend([last, 0]);
            assert_eq!(take_results(&results, &mut list), Err(WireError::Leftover));
        }
    }
}

/// Feeds all of `body` to the decoder of `header`. Returns how many verbs it found.
fn feed(header: &FrameHeader, body: &[u8]) -> Result<usize, WireError> {
    let (mut decoder, mut at, mut verbs) = (ListDecoder::new(header), 0, 0);
    loop {
        match decoder.next(&body[at..])? {
            Next::Verb { verb, used } => {
                assert!(used >= VERB_BYTES && at + used <= body.len());
                assert!(verb.result_bytes() <= MAX_TRANSFER);
                (at, verbs) = (at + used, verbs + 1);
            }
            Next::Partial { needed } => {
                assert!(needed > body.len() - at && needed <= MAX_VERB);
                return Ok(verbs);
            }
            Next::End => return Ok(verbs),
        }
    }
}

#[test]
fn garbage_is_refused_and_never_read_past() {
    let mut random = Rng::with_seed(3);
    let (mut refused, mut taken) = (0, 0);
    for round in 0..200_000 {
        let mut frame = Vec::new();
        if round % 2 == 0 {
            let (mut list, _) = any_list(&mut random, 4);
            put_list(&mut frame, 1, &mut list).unwrap();
            for _ in 0..random.usize(..4) {
                let at = random.usize(..frame.len());
                frame[at] = if random.bool() { random.u8(..) } else { frame[at] ^ (1 << random.u8(..8)) };
            }
            frame.truncate(random.usize(..=frame.len()).max(frame.len() / 2));
        } else {
            let len = random.usize(..100);
            frame = std::iter::repeat_with(|| random.u8(..5)).take(len).collect();
        }
        match FrameHeader::decode(&frame) {
            Ok(Some(header)) => match feed(&header, &frame[HEADER_BYTES..]) {
                Ok(verbs) => taken += verbs,
                Err(_) => refused += 1,
            },
            Ok(None) | Err(_) => refused += 1,
        }
        let (mut list, _) = any_list(&mut random, 3);
        let _ = take_results(&frame, &mut list);
    }
    assert!(refused > 10_000 && taken > 10_000, "{refused} {taken}");
}

#[test]
fn lengths_that_do_not_add_up_are_refused() {
    let mut list = WorkList::new(0);
    list.write(Space::Host, 0, &[1; 30]);
    let mut frame = Vec::new();
    put_list(&mut frame, 1, &mut list).unwrap();
    let header = FrameHeader::decode(&frame).unwrap().unwrap();
    let body = &frame[HEADER_BYTES..];
    assert_eq!(feed(&header, body), Ok(1));
    assert_eq!(feed(&FrameHeader { len: 45, ..header }, body), Err(WireError::Truncated));
    assert_eq!(feed(&FrameHeader { len: 47, ..header }, body), Err(WireError::Leftover));
    assert_eq!(feed(&FrameHeader { count: 2, ..header }, body), Err(WireError::Truncated));
    assert_eq!(feed(&FrameHeader { count: 0, ..header }, body), Err(WireError::Leftover));
    assert_eq!(feed(&FrameHeader { count: 0, len: 0, ..header }, body), Ok(0));
    let mut atomic = body.to_vec();
    (atomic[0], atomic[4]) = (FAA, 4);
    assert!(matches!(feed(&header, &atomic), Err(WireError::Unknown { what: "width of an atomic", .. })));
}

#[test]
fn a_list_that_failed_is_skipped_to_its_end_and_no_further() {
    let mut decoder =
        ListDecoder::new(&FrameHeader { len: 100, kind: FrameKind::List, memory: 0, count: 5, tag: 0 });
    assert_eq!(decoder.skip(60), 60);
    assert_eq!(decoder.skip(60), 40);
    assert_eq!(decoder.next(&[]), Ok(Next::End));
    assert_eq!(decoder.skip(60), 0);
}

#[test]
fn a_list_beyond_the_limits_is_not_sent() {
    let mut out = Vec::new();
    let mut many = WorkList::new(0);
    (0..=MAX_VERBS).for_each(|_| _ = many.faa(Space::Host, 0, 1));
    let mut long = WorkList::new(0);
    long.read(Space::Host, 0, MAX_TRANSFER + 1);
    let mut reads = WorkList::new(0);
    (0..=MAX_REPLY / MAX_TRANSFER).for_each(|_| _ = reads.read(Space::Host, 0, MAX_TRANSFER));
    let mut writes = WorkList::new(0);
    (0..=MAX_REPLY / MAX_TRANSFER)
        .for_each(|_| _ = writes.write(Space::Host, 0, &vec![0; MAX_TRANSFER as usize]));
    for list in [&mut many, &mut long, &mut reads, &mut writes] {
        assert!(matches!(put_list(&mut out, 1, list), Err(FabricError::TooLarge { .. })));
        assert!(out.is_empty());
    }
    // The largest list that the index posts: a batch of the largest nodes.
    let mut batch = WorkList::new(0);
    (0..32).for_each(|_| _ = batch.write(Space::Host, 0, &vec![0; 64 << 10]));
    (0..32).for_each(|_| _ = batch.read(Space::Host, 0, 64 << 10));
    assert_eq!(put_list(&mut out, 1, &mut batch).unwrap().results, 2 << 20);
}

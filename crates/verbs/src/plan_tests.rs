use super::*;

const REACH: Reach =
    Reach { server: 3, host_bytes: 1 << 22, chip_bytes: 64, masked_cas: false, inline: 100, slab: 2 << 20 };

fn planned(list: &WorkList, reach: &Reach) -> Result<(u32, Vec<Work>), FabricError> {
    let mut works = vec![Work { verb: 9, space: Space::Host, offset: 0, len: 1, local: 0, task: Task::Read }];
    plan(list, reach, &mut works).map(|bytes| (bytes, works))
}

#[test]
fn each_verb_becomes_one_request_with_a_place_of_its_own() {
    let mut list = WorkList::new(3);
    list.cas(Space::OnChip, 8, 1, 2);
    list.read(Space::Host, 64, 1001);
    list.write(Space::Host, 128, &[7; 100]);
    list.write_fenced(Space::Host, 256, &[8; 101]);
    list.read(Space::Host, 0, 0);
    list.write_fenced(Space::OnChip, 8, &[0; 8]);
    list.faa(Space::Host, 512, 5);
    let (bytes, works) = planned(&list, &REACH).expect("a good list");
    let (host, chip) = (Space::Host, Space::OnChip);
    let work = |verb, space, offset, len, local, task| Work { verb, space, offset, len, local, task };
    let expected = [
        work(0, chip, 8, 8, 0, Task::Cas { compare: 1, swap: 2 }),
        work(1, host, 64, 1001, 8, Task::Read),
        work(2, host, 128, 100, 1016, Task::Inline { fenced: false, at: 1001 }),
        work(3, host, 256, 101, 1016, Task::Write { fenced: true }),
        work(5, chip, 8, 8, 1120, Task::Inline { fenced: true, at: 1202 }),
        work(6, host, 512, 8, 1120, Task::Faa { add: 5 }),
    ];
    assert_eq!((bytes, &works[..]), (1128, &expected[..]));
    assert_eq!(planned(&WorkList::new(3), &REACH), Ok((0, vec![])));
    // If no WRITE travels inside its request, every WRITE has its space too.
    let (bytes, works) = planned(&list, &Reach { inline: 0, ..REACH }).expect("a good list");
    assert_eq!((bytes, works[2].task), (1128 + 104 + 8, Task::Write { fenced: false }));
}

#[test]
fn a_mask_of_all_ones_is_no_mask() {
    let mut list = WorkList::new(3);
    list.masked_cas(Space::Host, 0, 1, 2, u64::MAX);
    let (_, works) = planned(&list, &REACH).expect("a plain CAS");
    assert_eq!(works[0].task, Task::Cas { compare: 1, swap: 2 });
    list.masked_cas(Space::Host, 0, 1, 2, 0xffff);
    let refused = planned(&list, &REACH);
    assert!(matches!(refused, Err(FabricError::Unsupported { .. })), "{refused:?}");
    let (_, works) = planned(&list, &Reach { masked_cas: true, ..REACH }).expect("a masked CAS");
    assert_eq!(works[1].task, Task::MaskedCas { compare: 1, swap: 2, mask: 0xffff });
}

#[test]
fn what_a_nic_would_refuse_is_refused_before_it_is_asked() {
    type Add = fn(&mut WorkList);
    let cases: [(Add, &str); 16] = [
        (|list| _ = list.cas(Space::Host, 4, 0, 1), "misaligned"),
        (|list| _ = list.faa(Space::Host, 1, 1), "misaligned"),
        (|list| _ = list.faa(Space::OnChip, 4, 1), "misaligned"),
        (|list| _ = list.read(Space::OnChip, 6, 4), "misaligned"),
        (|list| _ = list.read(Space::OnChip, 0, 3), "misaligned"),
        (|list| _ = list.read(Space::OnChip, 4, 16), "misaligned"),
        (|list| _ = list.read(Space::OnChip, 0, 12), "misaligned"),
        (|list| _ = list.write(Space::OnChip, 0, &[0; 16]), "misaligned"),
        (|list| _ = list.read(Space::Host, 1 << 22, 1), "outside"),
        (|list| _ = list.read(Space::Host, u64::MAX - 7, 16), "outside"),
        (|list| _ = list.write(Space::Host, (1 << 22) - 8, &[0; 16]), "outside"),
        (|list| _ = list.cas(Space::Host, 1 << 22, 0, 1), "outside"),
        (|list| _ = list.write(Space::OnChip, 64, &[0; 8]), "outside"),
        (|list| _ = list.read(Space::Host, 0, (1 << 20) + 1), "too large"),
        (|list| (0..3).for_each(|_| _ = list.read(Space::Host, 0, 1 << 20)), "too large"),
        (|list| (0..64).for_each(|_| _ = list.read(Space::Host, 0, 8)), "too large"),
    ];
    for (at, (add, word)) in cases.into_iter().enumerate() {
        let mut list = WorkList::new(3);
        list.write(Space::Host, 0, &[1; 8]);
        add(&mut list);
        let error = planned(&list, &REACH).expect_err(word).to_string();
        assert!(error.contains(word), "case {at}: {error}");
    }
    let mut list = WorkList::new(3);
    list.read(Space::OnChip, 0, 8);
    let nothing = planned(&list, &Reach { chip_bytes: 0, ..REACH });
    assert!(matches!(nothing, Err(FabricError::OutOfBounds { .. })), "{nothing:?}");
}

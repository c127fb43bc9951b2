//! For every type, the order of the bytes is the order of the keys, and decoding reverses encoding.

use super::*;
use proptest::prelude::*;
use std::cmp::Reverse;

crate::record! {
    #[derive(Clone, Copy, Debug)]
    struct Stop: Key { line: u8, at: i32, platform: Option<char> }
}

crate::record! {
    #[derive(Clone, Copy, Debug)]
    struct Weight: Key(Total<f32>);
}

crate::record! {
    #[derive(Clone, Debug, PartialEq)]
    struct Reading { celsius: f64, dry: bool, place: ShortBytes<300>, nothing: () }
}

fn bytes<V: Value>(value: &V) -> Vec<u8> {
    // Not zeros, because `encode` must write every byte.
    let mut bytes = vec![0xa5; V::LEN];
    value.encode(&mut bytes);
    bytes
}

/// Checks the properties of any two keys of a type.
#[track_caller]
fn ordered<K: Key + std::fmt::Debug>(a: &K, b: &K) {
    assert_eq!(a.cmp(b), bytes(a).cmp(&bytes(b)), "{a:?} and {b:?} compare otherwise as bytes");
    assert_eq!(&K::decode(&bytes(a)), a);
}

fn short<const N: usize>() -> impl Strategy<Value = ShortBytes<N>> {
    // Few distinct bytes, including zero, because prefixes and padding are the risky cases.
    prop::collection::vec(prop_oneof![4 => 0_u8..3, 1 => any::<u8>()], 0..=N)
        .prop_map(|bytes| ShortBytes::new(&bytes).expect("short enough"))
}

fn stop() -> impl Strategy<Value = Stop> {
    (0_u8..3, -2_i32..3, any::<Option<char>>()).prop_map(|(line, at, platform)| Stop { line, at, platform })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integers_keep_their_order(a: i64, b: i64, c: i128, d: i128, e: u16, f: u16) {
        ordered(&a, &b);
        ordered(&c, &d);
        ordered(&e, &f);
        ordered(&(a as i8), &(b as i8));
        ordered(&(a as u32), &(b as u32));
        ordered(&Reverse(a), &Reverse(b));
    }

    #[test]
    fn floats_keep_their_total_order(a: u64, b: u64, c: u32, d: u32) {
        ordered(&Total(f64::from_bits(a)), &Total(f64::from_bits(b)));
        ordered(&Weight(Total(f32::from_bits(c))), &Weight(Total(f32::from_bits(d))));
        prop_assert_eq!(f64::decode(&bytes(&f64::from_bits(a))).to_bits(), a);
    }

    #[test]
    fn short_bytes_keep_the_order_of_byte_strings(a in short::<4>(), b in short::<4>(), c in short::<300>()) {
        ordered(&a, &b);
        ordered(&c, &ShortBytes::new(&a).expect("short enough"));
        prop_assert_eq!(a.cmp(&b), a.as_bytes().cmp(b.as_bytes()));
        prop_assert_eq!(bytes(&a).len(), 5);
        prop_assert_eq!(bytes(&c).len(), 302);
    }

    #[test]
    fn what_is_composed_keeps_the_order_of_its_parts(
        a in (0_u8..3, -2_i16..3, short::<2>(), any::<bool>()),
        b in (0_u8..3, -2_i16..3, short::<2>(), any::<bool>()),
        c: Option<i8>,
        d: Option<i8>,
        e in stop(),
        f in stop(),
    ) {
        ordered(&a, &b);
        ordered(&(a.0, a.2), &(b.0, b.2));
        ordered(&(c, Reverse(a.0), a.3), &(d, Reverse(b.0), b.3));
        ordered(&c, &d);
        ordered(&e, &f);
    }

    #[test]
    fn records_come_back_whole(celsius: f32, dry: bool, place in short::<300>()) {
        let reading = Reading { celsius: f64::from(celsius), dry, place, nothing: () };
        prop_assert_eq!(Reading::decode(&bytes(&reading)), reading);
        prop_assert_eq!(Reading::LEN, 8 + 1 + 302);
    }

    #[test]
    fn any_bytes_decode_to_something(any in prop::collection::vec(any::<u8>(), 311)) {
        let _ = Reading::decode(&any);
        let _ = <(char, ShortBytes<3>, Option<bool>)>::decode(&any[..10]);
        let short = ShortBytes::<3>::decode(&any[..4]);
        ordered(&short, &ShortBytes::EMPTY);
    }
}

#[test]
fn the_neighbours_of_special_numbers_keep_their_order() {
    let numbers = [i64::MIN, -1_000, -1, 0, 1, 255, 256, i64::MAX];
    numbers.windows(2).for_each(|pair| ordered(&pair[0], &pair[1]));
    let floats =
        [f64::NEG_INFINITY, f64::MIN, -1.0, -f64::MIN_POSITIVE, -0.0, 0.0, f64::MIN_POSITIVE, f64::INFINITY];
    for pair in floats.windows(2) {
        ordered(&Total(pair[0]), &Total(pair[1]));
        assert!(Total(pair[0]) < Total(pair[1]));
    }
    ordered(&'\u{d7ff}', &'\u{e000}');
    ordered(&ShortBytes::<4>::new(b"a").expect("fits"), &ShortBytes::new(b"a\0").expect("fits"));
}

#[test]
fn what_is_too_long_is_refused_with_its_length() {
    assert_eq!(ShortBytes::<3>::try_from("four"), Err(TooLong { limit: 3, found: 4 }));
    assert_eq!(ShortBytes::<3>::try_from(&b"123"[..]).map(|short| short.len()), Ok(3));
    assert_eq!(ShortBytes::<0>::new(b"").map(|short| bytes(&short)), Ok(vec![0]));
    let odd = ShortBytes::<4>::new(b"a\xff").expect("fits");
    assert_eq!(format!("{odd:?} {odd}"), "b\"a\\xff\" a\u{fffd}");
    assert!(odd.as_str().is_err());
}

#[test]
fn long_keys_are_encoded_as_well_as_short_ones() {
    let long = [7_u8; 100];
    assert_eq!(&*OnStack::copy(&long), long);
    assert_eq!(&*OnStack::of::<[u8; 64], _>(&[7_u8; 64]), [7; 64]);
    ordered(&Reverse(long), &Reverse([8; 100]));
    assert_eq!(OnStack::of(&()).len(), 0);
}

//! What a verb costs in process.
use sherman_embedded::copy::CopyPath;
use sherman_embedded::line::Atomicity;
use sherman_embedded::memory::Region;
use sherman_fabric::Space::{Host, OnChip};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn time(name: &str, mut f: impl FnMut(usize)) {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let t = Instant::now();
        let mut n = 0usize;
        while t.elapsed() < Duration::from_millis(60) {
            for _ in 0..1000 {
                f(n);
                n += 1;
            }
        }
        best = best.min(t.elapsed().as_nanos() as f64 / n as f64);
    }
    println!("{name:50} {best:7.1}");
}

fn main() {
    const M: usize = 256 << 20;
    let mut rng: Vec<u64> = Vec::new();
    let mut s = 88172645463325252u64;
    for _ in 0..65536 {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        rng.push((s % (M as u64 / 1024)) * 1024);
    }
    let plain = vec![1u8; M];
    let mut buf = vec![0u8; 4096];
    time("memcpy hot", |_| {
        buf[..1024].copy_from_slice(black_box(&plain[4096..5120]));
        black_box(&mut buf);
    });
    time("memcpy random", |n| {
        let o = rng[n & 65535] as usize;
        buf[..1024].copy_from_slice(black_box(&plain[o..o + 1024]));
        black_box(&mut buf);
    });
    drop(plain);
    for (path, at) in [
        (CopyPath::PORTABLE, Atomicity::Line),
        (CopyPath::fastest(), Atomicity::Line),
        (CopyPath::fastest(), Atomicity::Verb),
    ] {
        let r = Region::new(M, 256 << 10, at, path).unwrap();
        let one = vec![1u8; M];
        r.write(Host, 0, &one).unwrap();
        drop(one);
        println!("{} {at:?}", path.name());
        r.write(Host, 64, &[0; 64]).unwrap();
        time("READ 1K hot", |_| {
            r.read(Host, 4096, &mut buf[..1024]).unwrap();
            black_box(&mut buf);
        });
        time("READ 512 hot", |_| {
            r.read(Host, 4096, &mut buf[..512]).unwrap();
            black_box(&mut buf);
        });
        time("READ 64 hot", |_| {
            r.read(Host, 4096, &mut buf[..64]).unwrap();
            black_box(&mut buf);
        });
        time("READ 17 hot", |_| {
            r.read(Host, 4100, &mut buf[..17]).unwrap();
            black_box(&mut buf);
        });
        time("READ 8 hot", |_| {
            r.read(Host, 4104, &mut buf[..8]).unwrap();
            black_box(&mut buf);
        });
        time("READ 1K random", |n| {
            r.read(Host, rng[n & 65535], &mut buf[..1024]).unwrap();
            black_box(&mut buf);
        });
        time("WRITE 64 hot", |_| {
            r.write(Host, 4096, black_box(&buf[..64])).unwrap();
        });
        time("WRITE 17 hot", |_| {
            r.write(Host, 4100, black_box(&buf[..17])).unwrap();
        });
        time("WRITE 1K hot", |_| {
            r.write(Host, 4096, black_box(&buf[..1024])).unwrap();
        });
        time("WRITE 64 random", |n| {
            r.write(Host, rng[n & 65535], black_box(&buf[..64])).unwrap();
        });
        time("CAS16 chip", |n| {
            black_box(r.cas(OnChip, 64, (n as u64 & 1) << 16, (n as u64 & 1 ^ 1) << 16, 0xffff0000).unwrap());
        });
        time("CAS16 host", |n| {
            black_box(r.cas(Host, 64, (n as u64 & 1) << 16, (n as u64 & 1 ^ 1) << 16, 0xffff0000).unwrap());
        });
        time("WRITE16 chip", |_| {
            r.write(OnChip, 66, black_box(&buf[..2])).unwrap();
        });
    }
}

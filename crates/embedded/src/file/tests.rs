use super::*;
use crate::host::{Asker, Host, HostError};
use crate::memory::Region;
use sherman_fabric::{Request, Response, Space};
use sherman_layout::{FormatOptions, LockOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A path for one test. Dropping it removes the file.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sherman-file-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn options(&self) -> FileOptions {
        FileOptions {
            path: self.0.clone(),
            host_bytes: 64 << 10,
            on_chip_bytes: 4104,
            control_bytes: 64,
            atomicity: Atomicity::Line,
            preallocate: false,
        }
    }

    fn file(&self) -> File {
        OpenOptions::new().read(true).write(true).open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn problem(options: &FileOptions) -> FileProblem {
    let error = Region::in_file(options).unwrap_err();
    assert!(error.to_string().contains(&options.path.display().to_string()), "{error}");
    error.problem
}

fn format() -> FormatOptions {
    FormatOptions {
        chunk_bytes: 4096,
        redo_slot_bytes: 512,
        redo_area_bytes: 1024,
        member_capacity: 2,
        catalog_capacity: 1,
        locks: LockOptions { lanes: Some(64), ..Default::default() },
        ..FormatOptions::default()
    }
}

/// The offset of host memory in the file of [`Scratch::options`].
const HOST_OFFSET: u64 = 20_480;

#[test]
fn memory_and_lanes_are_found_again() {
    for atomicity in [Atomicity::Line, Atomicity::Verb] {
        let scratch = Scratch::new();
        let options = FileOptions { atomicity, ..scratch.options() };
        let (region, contents) = Region::in_file(&options).unwrap();
        assert_eq!(contents, Contents::Fresh);
        region.write(Space::Host, 100, &[7; 1000]).unwrap();
        region.write(Space::Host, (64 << 10) - 1, &[9]).unwrap();
        region.faa(Space::Host, 8, 5).unwrap();
        region.cas(Space::OnChip, 4096, 0, 3 << 16, 0xffff << 16).unwrap();
        drop(region);
        let (region, contents) = Region::in_file(&options).unwrap();
        assert_eq!(contents, Contents::Fresh, "nothing was formatted");
        let mut bytes = [0; 1002];
        region.read(Space::Host, 99, &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[1001]), (0, 0));
        assert_eq!(bytes[1..1001], [7; 1000]);
        assert_eq!(region.faa(Space::Host, 8, 0), Ok(5));
        assert_eq!(region.faa(Space::Host, (64 << 10) - 8, 0), Ok(9 << 56));
        assert_eq!(region.faa(Space::OnChip, 4096, 0), Ok(3 << 16));
        assert_eq!(scratch.file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_slot_left_valid_is_undone() {
    let scratch = Scratch::new();
    let (region, _) = Region::in_file(&scratch.options()).unwrap();
    region.write(Space::Host, 64 * 70, &[7; 192]).unwrap();
    drop(region);
    // The state that a process leaves when it is killed while it changes line 71.
    let (file, slot) = (scratch.file(), JOURNAL_OFFSET as u64 + (71 - 64) * 128);
    file.write_all_at(&[5; 64], slot).unwrap();
    file.write_all_at(&72u64.to_le_bytes(), slot + 64).unwrap();
    file.write_all_at(&[8; 40], HOST_OFFSET + 64 * 71).unwrap();
    let (region, _) = Region::in_file(&scratch.options()).unwrap();
    let mut lines = [0; 192];
    region.read(Space::Host, 64 * 70, &mut lines).unwrap();
    assert_eq!(lines[..64], [7; 64]);
    assert_eq!(lines[64..128], [5; 64]);
    assert_eq!(lines[128..], [7; 64]);
    drop(region);
    let mut name = [1; 8];
    file.read_exact_at(&mut name, slot + 64).unwrap();
    assert_eq!(name, [0; 8]);
    file.write_all_at(&1025u64.to_le_bytes(), slot + 64).unwrap();
    assert!(matches!(problem(&scratch.options()), FileProblem::DamagedJournal { slot: 7 }));
}

#[test]
fn a_file_is_one_server_s_at_a_time() {
    let scratch = Scratch::new();
    let (region, _) = Region::in_file(&scratch.options()).unwrap();
    assert!(matches!(problem(&scratch.options()), FileProblem::InUse));
    drop(region);
    assert!(Region::in_file(&scratch.options()).is_ok());
}

#[test]
fn what_is_not_this_memory_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let options = scratch.options();
    std::fs::write(scratch.path(), b"short").unwrap();
    assert!(matches!(problem(&options), FileProblem::NotAMemory));
    assert_eq!(std::fs::read(scratch.path()).unwrap(), b"short");
    std::fs::write(scratch.path(), [0; 100_000]).unwrap();
    assert!(matches!(problem(&options), FileProblem::NotAMemory));
    std::fs::remove_file(scratch.path()).unwrap();
    drop(Region::in_file(&options).unwrap());
    let whole = std::fs::read(scratch.path()).unwrap();
    assert_eq!(whole.len() as u64, HOST_OFFSET + (64 << 10) + 64);

    let other = FileOptions { host_bytes: 128 << 10, ..options.clone() };
    assert!(matches!(
        problem(&other),
        FileProblem::OtherSizes { host_bytes: 65_536, asked_host_bytes: 131_072, .. }
    ));
    let other = FileOptions { on_chip_bytes: 4096, ..options.clone() };
    assert!(matches!(problem(&other), FileProblem::OtherSizes { on_chip_bytes: 4104, .. }));
    for found in [1, 3] {
        scratch.file().write_all_at(&[found as u8], 8).unwrap();
        let seen = problem(&options);
        assert!(matches!(seen, FileProblem::OtherVersion { found: other, known: 2 } if other == found));
    }
    scratch.file().write_all_at(&[2], 8).unwrap();
    scratch.file().set_len(HOST_OFFSET).unwrap();
    assert!(matches!(problem(&options), FileProblem::Truncated { found: HOST_OFFSET, .. }));
    scratch.file().write_all_at(b"?", 0).unwrap();
    assert!(matches!(problem(&options), FileProblem::NotAMemory));

    let odd = |host_bytes, on_chip_bytes| FileOptions { host_bytes, on_chip_bytes, ..options.clone() };
    for sizes in [odd(100, 8), odd(128, 4), odd(u64::MAX - 63, 8), odd(1 << 63, 8), odd(64, u64::MAX - 7)] {
        assert!(matches!(problem(&sizes), FileProblem::BadSizes), "{sizes:?}");
    }
    let directory = FileOptions { path: std::env::temp_dir(), ..options.clone() };
    assert!(matches!(problem(&directory), FileProblem::Io { what: "open", .. }));
    let device = FileOptions { path: "/dev/null".into(), ..options.clone() };
    assert!(matches!(problem(&device), FileProblem::NotAFile));
    let absent = FileOptions { path: scratch.path().join("absent"), ..options };
    assert!(matches!(problem(&absent), FileProblem::Io { what: "open", .. }));
}

#[test]
fn a_file_that_was_never_finished_is_made_again() {
    let scratch = Scratch::new();
    // Only a header, for other sizes: the process died before or while it extended the file.
    for length in [64, 5000, 10 << 20] {
        std::fs::write(scratch.path(), Image::new(1 << 20, 8, 64).unfinished()).unwrap();
        scratch.file().set_len(length).unwrap();
        let (region, contents) = Region::in_file(&scratch.options()).unwrap();
        assert_eq!(contents, Contents::Fresh);
        assert_eq!(region.faa(Space::Host, (64 << 10) - 8, 1), Ok(0));
        drop(region);
        assert_eq!(scratch.file().metadata().unwrap().len(), HOST_OFFSET + (64 << 10) + 64);
        let (region, _) = Region::in_file(&scratch.options()).unwrap();
        assert_eq!(region.faa(Space::Host, (64 << 10) - 8, 0), Ok(1));
    }
}

#[test]
fn a_file_is_sparse_unless_its_space_is_taken_beforehand() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new();
    let options = FileOptions { host_bytes: 16 << 20, ..scratch.options() };
    drop(Region::in_file(&options).unwrap());
    assert!(scratch.file().metadata().unwrap().blocks() * 512 < 1 << 20);
    let (region, _) = Region::in_file(&FileOptions { preallocate: true, ..options.clone() }).unwrap();
    assert!(scratch.file().metadata().unwrap().blocks() * 512 >= 16 << 20);
    drop(region);
}

#[test]
fn a_file_that_the_disk_has_no_room_for_is_refused_and_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let absurd = FileOptions { host_bytes: 1 << 50, preallocate: true, ..scratch.options() };
    let no_room = |problem| match problem {
        FileProblem::NoSpace { needed, free } => needed > free && needed > 1 << 50,
        other => panic!("{other:?}"),
    };
    assert!(no_room(problem(&absurd)));
    assert!(!scratch.path().exists());
    std::fs::write(scratch.path(), b"").unwrap();
    assert!(no_room(problem(&absurd)));
    assert_eq!(scratch.file().metadata().unwrap().len(), 0);
    // The process died while it made the file: the bytes there stay.
    let unfinished = Image::new(1 << 20, 8, 64).unfinished();
    std::fs::write(scratch.path(), unfinished).unwrap();
    assert!(no_room(problem(&absurd)));
    assert_eq!(std::fs::read(scratch.path()).unwrap(), unfinished);
}

#[test]
fn what_a_file_holds_is_found_without_opening_it() {
    let scratch = Scratch::new();
    assert_eq!(peek(scratch.path()), None);
    drop(Region::in_file(&scratch.options()).unwrap());
    assert_eq!(peek(scratch.path()), None, "it is not formatted");
    let (host, _) = Host::in_file(&scratch.options(), &format()).unwrap();
    let found = peek(scratch.path()).expect("a memory");
    assert_eq!((found.host_bytes, found.on_chip_bytes), (64 << 10, 4104));
    assert_eq!(found.superblock, *host.superblock());
    drop(host);
    scratch.file().write_all_at(&[0; 64], HOST_OFFSET).unwrap();
    assert_eq!(peek(scratch.path()), None, "it is damaged");
    for other in ["/dev/null", "/", "/no/such/file"] {
        assert_eq!(peek(Path::new(other)), None, "{other}");
    }
}

#[test]
fn a_host_finds_its_tables_again_and_is_not_taken_for_another() {
    let scratch = Scratch::new();
    let (host, contents) = Host::in_file(&scratch.options(), &format()).unwrap();
    assert_eq!(contents, Contents::Fresh);
    let joined = host.handle(Asker::Nobody, &Request::Join, || host.now(), |_, response| response);
    let Ok(Response::Joined { client }) = joined else { panic!("{joined:?}") };
    let incarnation = host.member_incarnation(client);
    drop(host);
    let (host, contents) = Host::in_file(&scratch.options(), &format()).unwrap();
    assert_eq!(contents, Contents::Kept);
    assert_eq!(host.member_incarnation(client), incarnation);
    assert!(incarnation.is_some());
    drop(host);
    let other = FormatOptions { servers: 3, ..format() };
    let error = Host::in_file(&scratch.options(), &other).unwrap_err();
    assert!(matches!(error, HostError::OtherServer { servers: 1, asked_servers: 3, .. }), "{error}");
    // The process died while it formatted the memory again: no memory remains that could be opened.
    let (region, _) = Region::in_file(&scratch.options()).unwrap();
    let cut: Result<(), ()> = region.formatting(|| Err(()));
    assert_eq!(cut, Err(()));
    drop(region);
    let (host, contents) = Host::in_file(&scratch.options(), &format()).unwrap();
    assert_eq!(contents, Contents::Fresh);
    assert_eq!(host.member_incarnation(client), None);
    drop(host);
    // Damaged by another program.
    scratch.file().write_all_at(&[0; 64], HOST_OFFSET).unwrap();
    let error = Host::in_file(&scratch.options(), &format()).unwrap_err();
    assert!(matches!(error, HostError::Open(_)), "{error}");
    let small = FormatOptions { member_capacity: 60_000, ..format() };
    std::fs::remove_file(scratch.path()).unwrap();
    let error = Host::in_file(&scratch.options(), &small).unwrap_err();
    assert!(matches!(error, HostError::Format(_)), "{error}");
    assert!(Host::in_file(&scratch.options(), &format()).is_ok());
}

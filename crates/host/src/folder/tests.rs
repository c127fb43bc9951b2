use super::*;
use crate::plane::Identity;
use sherman_fabric::{Memory, Role, Space};
use sherman_layout::{FormatOptions, LockOptions};
use std::sync::atomic::{AtomicU32, Ordering};

const CLUSTER: u64 = 7;

/// A path that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sherman-folder-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_file(&self.0);
    }
}

fn settings() -> ClusterSettings {
    let format = FormatOptions {
        chunk_bytes: 4096,
        redo_slot_bytes: 512,
        redo_area_bytes: 1024,
        member_capacity: 2,
        catalog_capacity: 1,
        locks: LockOptions { lanes: Some(64), ..LockOptions::default() },
        ..FormatOptions::default()
    };
    ClusterSettings { replicas: 2, volumes: 2, hosts: 2, volume_bytes: 64 << 10, on_chip_bytes: 128, format }
}

fn kept() -> Kept {
    Kept {
        own: Identity { cluster: CLUSTER, host: 1, incarnation: 2 },
        node: 2,
        founder: false,
        lost: false,
        served: false,
        machine: machine(),
        memory_bytes: 1 << 20,
        settings: settings().encode(),
        hosts: Vec::new(),
        copies: Vec::new(),
    }
}

fn problem(path: &Path) -> FolderProblem {
    match Folder::open(path) {
        Err(HostError::Folder { path: named, problem }) => {
            assert_eq!(named, path);
            problem
        }
        other => panic!("{other:?}"),
    }
}

/// The names in a folder.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_belongs_to_one_process_and_keeps_who_its_host_is() {
    let scratch = Scratch::new();
    let folder = Folder::open(&scratch.0).unwrap();
    assert_eq!(folder.kept(), None);
    assert!(matches!(problem(&scratch.0), FolderProblem::InUse));
    folder.keep(kept()).unwrap();
    folder.change(|kept| kept.served = true).unwrap();
    drop(folder);
    let folder = Folder::open(&scratch.0).unwrap();
    assert_eq!(folder.kept(), Some(Kept { served: true, ..kept() }));
}

#[test]
fn a_folder_without_a_host_is_left_as_it_was() {
    let scratch = Scratch::new();
    let folder = Folder::open(&scratch.0).unwrap();
    folder.take_room(1 << 20).unwrap();
    drop(folder);
    assert!(!scratch.0.exists());
    fs::create_dir(&scratch.0).unwrap();
    drop(Folder::open(&scratch.0).unwrap());
    assert_eq!(names(&scratch.0), [""; 0]);
}

#[test]
fn other_folders_and_files_are_refused_and_stay() {
    let scratch = Scratch::new();
    fs::write(&scratch.0, "a file").unwrap();
    assert!(matches!(problem(&scratch.0), FolderProblem::NotAFolder));
    fs::remove_file(&scratch.0).unwrap();
    fs::create_dir(&scratch.0).unwrap();
    fs::write(scratch.0.join("letter"), "dear").unwrap();
    assert!(matches!(problem(&scratch.0), FolderProblem::NotAHost));
    assert_eq!(names(&scratch.0), ["letter"]);
    assert!(matches!(problem(Path::new("/nowhere/at/all")), FolderProblem::Io { .. }));
}

#[test]
fn a_damaged_or_missing_file_of_a_host_is_refused_and_nothing_changes() {
    let scratch = Scratch::new();
    let folder = Folder::open(&scratch.0).unwrap();
    folder.keep(kept()).unwrap();
    drop(folder);
    let path = scratch.0.join(HOST);
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0x10;
        for damaged in [&bytes[..at], &other] {
            fs::write(&path, damaged).unwrap();
            assert!(matches!(problem(&scratch.0), FolderProblem::Damaged { .. }), "byte {at}");
            assert_eq!(fs::read(&path).unwrap(), damaged);
        }
    }
    fs::remove_file(&path).unwrap();
    fs::write(scratch.0.join("group.len"), [0; 24]).unwrap();
    assert!(matches!(problem(&scratch.0), FolderProblem::Damaged { what: "it is missing" }));
}

#[test]
fn a_folder_of_an_earlier_start_of_the_machine_counts_only_if_it_was_closed() {
    let scratch = Scratch::new();
    let folder = Folder::open(&scratch.0).unwrap();
    folder.keep(Kept { machine: "another".into(), ..kept() }).unwrap();
    drop(folder);
    assert!(matches!(problem(&scratch.0), FolderProblem::MachineRestarted));
    fs::remove_dir_all(&scratch.0).unwrap();
    let folder = Folder::open(&scratch.0).unwrap();
    folder.keep(kept()).unwrap();
    folder.close().unwrap();
    drop(folder);
    assert_eq!(Folder::open(&scratch.0).unwrap().kept().unwrap().machine, "");
}

#[test]
fn memory_of_a_copy_outlives_the_process_and_a_forgotten_copy_is_gone() {
    let scratch = Scratch::new();
    let folder = Folder::open(&scratch.0).unwrap();
    folder.keep(kept()).unwrap();
    folder.take_room(1 << 20).unwrap();
    let room = || fs::metadata(scratch.0.join(ROOM)).unwrap().len();
    for (copy, role) in [(0, Some(Role::Primary)), (3, None), (5, Some(Role::Backup))] {
        let host = folder.make(&settings(), CLUSTER, (copy, copy % 2)).unwrap();
        host.memory().store(Space::Host, 50_000, &[copy as u8 + 1; 8]);
        folder.note(KeptCopy { copy, volume: copy % 2, role }).unwrap();
    }
    assert_eq!(room(), (1 << 20) - 3 * (64 << 10));
    // The process died while it made this one.
    drop(folder.make(&settings(), CLUSTER, (9, 1)).unwrap());
    drop(folder);
    let folder = Folder::open(&scratch.0).unwrap();
    let memories = folder.open_copies(&folder.kept().unwrap(), &settings()).unwrap();
    assert_eq!(memories.keys().copied().collect::<Vec<_>>(), [0, 3, 5]);
    for (copy, (_, host)) in &memories {
        let mut bytes = [0; 8];
        host.memory().load(Space::Host, 50_000, &mut bytes);
        assert_eq!(bytes, [*copy as u8 + 1; 8]);
    }
    assert!(!scratch.0.join("copy-9").exists());
    folder.forget(3).unwrap();
    assert!(!scratch.0.join("copy-3").exists());
    assert_eq!(folder.kept().unwrap().copies.len(), 2);
    drop(memories);
    folder.clear().unwrap();
    assert!(folder.kept().unwrap().lost);
    assert_eq!(names(&scratch.0), [HOST, LOCK, ROOM]);
}

#[test]
fn memory_that_is_missing_damaged_or_of_another_cluster_is_refused_by_its_copy() {
    let scratch = Scratch::new();
    let folder = Folder::open(&scratch.0).unwrap();
    folder.keep(kept()).unwrap();
    drop(folder.make(&settings(), CLUSTER, (4, 1)).unwrap());
    folder.note(KeptCopy { copy: 4, volume: 1, role: Some(Role::Backup) }).unwrap();
    let open = |kept: Kept| match folder.open_copies(&kept, &settings()) {
        Err(HostError::Folder { problem, .. }) => Err(problem),
        other => Ok(other.unwrap()),
    };
    let kept = || folder.kept().unwrap();
    let other = Identity { cluster: 8, ..kept().own };
    let refused = open(Kept { own: other, ..kept() });
    assert!(matches!(refused, Err(FolderProblem::Copy { copy: 4, .. })), "{refused:?}");
    let path = scratch.0.join("copy-4");
    let bytes = fs::read(&path).unwrap();
    for length in [0, 1, 63, 64, 4096, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..length]).unwrap();
        match open(kept()) {
            Err(FolderProblem::Copy { copy: 4, .. } | FolderProblem::DamagedCopy { copy: 4 }) => {}
            other => panic!("{length} bytes: {other:?}"),
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), length as u64);
    }
    fs::write(&path, &bytes).unwrap();
    assert!(open(kept()).is_ok());
    fs::remove_file(&path).unwrap();
    assert!(matches!(open(kept()), Err(FolderProblem::NoCopy { copy: 4 })));
}

#[test]
fn a_disk_without_room_is_named_with_what_is_missing() {
    let scratch = Scratch::new();
    let folder = Folder::open(&scratch.0).unwrap();
    match folder.take_room(1 << 50) {
        Err(FolderProblem::NoSpace { needed, free }) => assert!(needed > free),
        other => panic!("{other:?}"),
    }
    folder.take_room(1 << 20).unwrap();
}

//! The decisions of `.ci/run` about its machine.

use crate::common::fresh_path;
use std::path::Path;
use std::process::Command;

/// Whether `.ci/run` finds a libclang on a machine with these files below `/usr/lib`.
fn has_libclang(case: &str, files: &[&str]) -> bool {
    let root = fresh_path(&format!("libclang-{case}"));
    for file in files {
        let path = root.join("usr/lib").join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, "").expect("a file");
    }
    std::fs::create_dir_all(&root).expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/has-libclang");
    let status = Command::new("bash").arg(script).arg(&root).status().expect("a shell");
    std::fs::remove_dir_all(&root).expect("its files go");
    status.success()
}

#[test]
fn libclang_is_not_mistaken_for_the_library_of_cplusplus_programs() {
    assert!(!has_libclang("none", &[]));
    // Debian installs this file without libclang, and bindgen cannot load it.
    assert!(!has_libclang("cpp", &["llvm-14/lib/libclang-cpp.so.14", "x86_64-linux-gnu/libclang-cpp.so.14"]));
    assert!(has_libclang("plain", &["llvm-14/lib/libclang.so"]));
    assert!(has_libclang("both", &["llvm-14/lib/libclang-cpp.so.14", "llvm-14/lib/libclang-14.so.1"]));
    assert!(has_libclang("debian", &["x86_64-linux-gnu/libclang-14.so.14.0.6"]));
}

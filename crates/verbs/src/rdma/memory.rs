//! Memory that a device may access: the caller's memory, a buffer of this crate, or the device's own memory.

use super::device::Opened;
use crate::VerbsError;
use crate::qp_info::RegionKey;
use rdma_mummy_sys as ffi;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Registered buffers consist of whole pages.
const PAGE: usize = 4096;

/// What remote requests may do to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: only this process's own requests move its bytes.
    Local,
    /// Everything: it belongs to a memory server.
    Remote,
}

impl Access {
    fn flags(self) -> u32 {
        let local = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let remote = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        match self {
            Self::Local => local.0,
            Self::Remote => (local | remote).0,
        }
    }
}

/// A registration. The registered memory must outlive it.
#[derive(Debug)]
pub(super) struct Registration {
    mr: NonNull<ffi::ibv_mr>,
    _opened: Arc<Opened>,
}

// SAFETY: the library locks what its objects share; handles may be used from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes stay where they are until the registration is dropped. All code that reads or writes them
    /// expects that a device does so too.
    pub(super) unsafe fn new(
        opened: &Arc<Opened>,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let access = i32::try_from(access.flags()).unwrap_or(0);
        // SAFETY: the domain is alive, and the bytes exist as the caller promises.
        let mr = unsafe { ffi::ibv_reg_mr(opened.pd(), start.as_ptr().cast(), len, access) };
        let mr = NonNull::new(mr).ok_or_else(|| VerbsError::last("register memory with an RDMA device"))?;
        Ok(Self { mr, _opened: Arc::clone(opened) })
    }

    /// The key by which local requests name it.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the region is registered until `self` is dropped.
        unsafe { self.mr.as_ref().lkey }
    }

    /// The key by which remote requests name it.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref().rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: `self` owns it, and it is freed once.
        unsafe { ffi::ibv_dereg_mr(self.mr.as_ptr()) };
    }
}

/// Pages that this process allocated.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: they came from this allocator under this layout and are freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A registered buffer of this process. Code reaches its bytes by copying: there is never a reference to
/// bytes that a device may write.
#[derive(Debug)]
pub(super) struct Buffer {
    /// First field: it must be dropped before the pages.
    registration: Registration,
    pages: Pages,
}

// SAFETY: the buffer owns the bytes, and they are reached through `&mut self` or `&self` alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A buffer of `len` bytes, rounded up to pages.
    pub(super) fn new(opened: &Arc<Opened>, len: usize, access: Access) -> Result<Self, VerbsError> {
        let error = || std::io::ErrorKind::OutOfMemory.into();
        let no_memory = || VerbsError::System { what: "allocate memory for a buffer", error: error() };
        let layout =
            Layout::from_size_align(len.max(1).next_multiple_of(PAGE), PAGE).map_err(|_| no_memory())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        let pages = Pages { start, layout };
        // SAFETY: the pages are freed after the registration is dropped.
        let registration = unsafe { Registration::new(opened, start, layout.size(), access) }?;
        Ok(Self { registration, pages })
    }

    pub(super) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// The address of byte `at`, as requests name it.
    pub(super) fn address(&self, at: u32) -> u64 {
        self.pages.start.as_ptr() as u64 + u64::from(at)
    }

    fn checked(&self, at: u32, len: usize) -> NonNull<u8> {
        assert!(at as usize + len <= self.pages.layout.size(), "a copy stays inside its buffer");
        // SAFETY: the result is inside the pages, or at their end.
        unsafe { self.pages.start.add(at as usize) }
    }

    /// Copies bytes in. No request in flight may name them.
    pub(super) fn put(&mut self, at: u32, bytes: &[u8]) {
        // SAFETY: the range is inside the buffer, and no device accesses it now.
        unsafe {
            self.checked(at, bytes.len()).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len())
        };
    }

    /// Copies bytes out. No request in flight may name them any more.
    pub(super) fn get(&self, at: u32, into: &mut [u8]) {
        // SAFETY: the range is inside the buffer, and no device writes to it now.
        unsafe {
            self.checked(at, into.len()).copy_to_nonoverlapping(NonNull::from(&mut *into).cast(), into.len())
        };
    }

    /// Copies a word out: the old value of an atomic, in this machine's byte order.
    pub(super) fn word(&self, at: u32) -> u64 {
        let mut word = [0; 8];
        self.get(at, &mut word);
        u64::from_ne_bytes(word)
    }
}

/// Memory of the device itself.
#[derive(Debug)]
struct Given {
    dm: NonNull<ffi::ibv_dm>,
    _opened: Arc<Opened>,
}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: `self` owns it, nothing of it is registered any more, and it is freed once.
        unsafe { ffi::ibv_free_dm(self.dm.as_ptr()) };
    }
}

/// Memory of the device itself, registered.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    /// First field: it must be dropped before the memory.
    registration: Registration,
    _given: Given,
    bytes: usize,
}

// SAFETY: the library locks what its objects share; handles may be used from any thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// `bytes` bytes of the device's memory, all zero.
    pub(super) fn new(opened: &Arc<Opened>, bytes: usize) -> Result<Self, VerbsError> {
        let mut attr = ffi::ibv_alloc_dm_attr { length: bytes, log_align_req: 3, comp_mask: 0 };
        // SAFETY: the context is open and the attributes are filled in.
        let dm = NonNull::new(unsafe { ffi::ibv_alloc_dm(opened.context(), &raw mut attr) });
        let dm = dm.ok_or_else(|| VerbsError::last("allocate memory of an RDMA device"))?;
        let given = Given { dm, _opened: Arc::clone(opened) };
        let zeroes = vec![0u8; bytes];
        // SAFETY: both have `bytes` bytes.
        let code = unsafe { ffi::ibv_memcpy_to_dm(dm.as_ptr(), 0, zeroes.as_ptr().cast(), bytes) };
        super::done(code, "clear memory of an RDMA device")?;
        // Requests name its bytes from 0 on.
        let access = Access::Remote.flags() | ffi::ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
        // SAFETY: domain and memory are alive, and the memory has `bytes` bytes.
        let mr = unsafe { ffi::ibv_reg_dm_mr(opened.pd(), dm.as_ptr(), 0, bytes, access) };
        let mr = NonNull::new(mr).ok_or_else(|| VerbsError::last("register memory of an RDMA device"))?;
        let registration = Registration { mr, _opened: Arc::clone(opened) };
        Ok(Self { registration, _given: given, bytes })
    }

    /// The region, as requests name it.
    pub(super) fn place(&self) -> RegionKey {
        RegionKey { base: 0, bytes: self.bytes as u64, key: self.registration.remote_key() }
    }
}

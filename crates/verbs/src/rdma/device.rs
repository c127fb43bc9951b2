//! Finds, describes and opens devices.

use super::masked;
use crate::VerbsError;
use crate::address::{self, Address, DeviceInfo, Gid, GidEntry, GidKind, Layer, Mtu, PortInfo};
use crate::facts::Facts;
use crate::options::VerbsOptions;
use rdma_mummy_sys as ffi;
use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Errors of Linux if a function of the library, or its part in the kernel, is missing.
const EOPNOTSUPP: i32 = 95;
const ENOSYS: i32 = 38;

/// A device and a protection domain on it: the parents of everything else.
#[derive(Debug)]
pub(super) struct Opened {
    context: NonNull<ffi::ibv_context>,
    pd: NonNull<ffi::ibv_pd>,
}

// SAFETY: the library locks what its objects share; handles may be used from any thread.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Opened {
    pub(super) fn context(&self) -> *mut ffi::ibv_context {
        self.context.as_ptr()
    }

    pub(super) fn pd(&self) -> *mut ffi::ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: `self` owns both, no object made from them still exists (children hold an `Arc`), and each
        // is freed once.
        unsafe {
            ffi::ibv_dealloc_pd(self.pd.as_ptr());
            ffi::ibv_close_device(self.context.as_ptr());
        }
    }
}

/// A context opened for queries only.
struct Context(NonNull<ffi::ibv_context>);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `self` owns it, no object was made from it, and it is closed once.
        unsafe { ffi::ibv_close_device(self.0.as_ptr()) };
    }
}

/// An RDMA device that is used through one of its ports.
#[derive(Clone, Debug)]
pub struct Device {
    pub(super) opened: Arc<Opened>,
    name: String,
    pub(super) port: PortInfo,
    pub(super) facts: Facts,
    pub(super) options: VerbsOptions,
}

impl Device {
    /// Opens the device that `options` name, or else the first with an active port. Prefers a port with the
    /// address `near`.
    ///
    /// # Errors
    /// If there is no library, no device, no active port, or the device lacks a feature that is needed.
    pub fn open(options: &VerbsOptions, near: Option<IpAddr>) -> Result<Self, VerbsError> {
        let mut found = contexts()?;
        let infos: Vec<DeviceInfo> = found.iter().map(|(name, context)| describe(name, context)).collect();
        let (at, port) = address::choose_port(&infos, options, near)?;
        let (name, context) = found.swap_remove(at);
        let port = infos[at].ports[port].clone();
        let mut facts = facts(&context)?;
        facts.check().map_err(|lack| VerbsError::Lacks { device: name.clone(), lack })?;
        // SAFETY: the context is open.
        let pd = NonNull::new(unsafe { ffi::ibv_alloc_pd(context.0.as_ptr()) });
        let pd = pd.ok_or_else(|| VerbsError::last("make a protection domain"))?;
        let opened = Arc::new(Opened { context: context.0, pd });
        // `opened` closes the context from now on.
        std::mem::forget(context);
        let mut device = Self { opened, name, port, facts: facts.clone(), options: options.clone() };
        facts.masked_cas = masked::works(&device);
        device.facts = facts;
        let (mtu, layer) = (device.mtu().bytes(), device.port.layer);
        tracing::info!(
            device = device.name, port = device.port.number, mtu, ?layer, facts = ?device.facts,
            "opened an RDMA device"
        );
        Ok(device)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its features.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether lanes in a lock table of `bytes` bytes can have 16 bits each ([`Facts::narrow_lanes`]).
    pub fn has_narrow_lanes(&self, bytes: u64) -> bool {
        self.facts.narrow_lanes(bytes, &self.options)
    }

    /// The largest packet.
    pub fn mtu(&self) -> Mtu {
        self.options.mtu.map_or(self.port.mtu, |asked| asked.min(self.port.mtu))
    }

    /// Its best address, and the index of that address in the port's table. If `peer` is given, the best that
    /// reaches `peer`.
    pub(super) fn address(
        &self,
        near: Option<IpAddr>,
        peer: Option<(GidKind, Gid)>,
    ) -> Result<(Address, u8), VerbsError> {
        let entry = address::choose_gid(&self.port, self.options.gid, near, peer)?;
        let PortInfo { layer, lid, .. } = self.port;
        Ok((Address { layer, lid, kind: entry.kind, gid: entry.gid }, entry.index))
    }
}

/// Every device that can be opened.
fn contexts() -> Result<Vec<(String, Context)>, VerbsError> {
    let mut count = 0;
    // SAFETY: this function owns the list until it frees it below.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(EOPNOTSUPP) => VerbsError::NoLibrary,
            Some(ENOSYS) => VerbsError::NoAccess(error),
            _ => VerbsError::System { what: "list RDMA devices", error },
        });
    }
    let mut found = Vec::new();
    let mut failed = None;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices; their names are strings that live as long as they do.
        let (name, context) = unsafe {
            let device = *list.add(at);
            let name = ffi::ibv_get_device_name(device);
            let name = if name.is_null() {
                String::new()
            } else {
                CStr::from_ptr(name).to_string_lossy().into_owned()
            };
            (name, NonNull::new(ffi::ibv_open_device(device)))
        };
        match context {
            Some(context) => found.push((name, Context(context))),
            None => failed = Some(io::Error::last_os_error()),
        }
    }
    // SAFETY: it is the list from above, freed once; devices that were opened stay open.
    unsafe { ffi::ibv_free_device_list(list) };
    match (found.is_empty(), failed) {
        (false, _) => Ok(found),
        (true, Some(error)) => Err(VerbsError::NoAccess(error)),
        (true, None) => Err(VerbsError::NoDevice),
    }
}

fn facts(context: &Context) -> Result<Facts, VerbsError> {
    // SAFETY: plain numbers and pointers, for which zero is valid; the library fills them in.
    let mut all: ffi::ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `all` is a place of the right size.
    let code = unsafe { ffi::ibv_query_device_ex(context.0.as_ptr(), ptr::null(), &raw mut all) };
    super::done(code, "query an RDMA device")?;
    let plain = &all.orig_attr;
    let number = |value: i32| u32::try_from(value).unwrap_or(0);
    Ok(Facts {
        atomics: plain.atomic_cap != ffi::ibv_atomic_cap::IBV_ATOMIC_NONE,
        serves_rd_atomic: number(plain.max_qp_rd_atom),
        starts_rd_atomic: number(plain.max_qp_init_rd_atom),
        device_memory: all.max_dm_size,
        max_work: number(plain.max_qp_wr),
        max_completions: number(plain.max_cqe),
        max_message: max_message(context, plain.phys_port_cnt),
        masked_cas: false,
    })
}

/// The longest message that every port accepts.
fn max_message(context: &Context, ports: u8) -> u32 {
    (1..=ports)
        .filter_map(|number| query_port(context, number))
        .map(|port| port.max_msg_sz)
        .min()
        .unwrap_or(0)
}

fn query_port(context: &Context, number: u8) -> Option<ffi::ibv_port_attr> {
    // SAFETY: plain numbers, for which zero is valid.
    let mut port: ffi::ibv_port_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `port` is a place of the right size.
    let code = unsafe { ffi::ibv_query_port(context.0.as_ptr(), number, &raw mut port) };
    (code == 0).then_some(port)
}

/// Describes the device's ports for [`address::choose_port`].
fn describe(name: &str, context: &Context) -> DeviceInfo {
    // SAFETY: plain numbers, for which zero is valid.
    let mut plain: ffi::ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `plain` is a place of the right size.
    let code = unsafe { ffi::ibv_query_device(context.0.as_ptr(), &raw mut plain) };
    let count = if code == 0 { plain.phys_port_cnt } else { 0 };
    let ports = (1..=count).filter_map(|number| Some((number, query_port(context, number)?))).filter_map(
        |(number, port)| {
            let layer = match port.link_layer {
                2 => Layer::Ethernet,
                _ => Layer::InfiniBand,
            };
            Some(PortInfo {
                number,
                active: port.state == ffi::ibv_port_state::IBV_PORT_ACTIVE,
                layer,
                mtu: Mtu::from_code(u8::try_from(port.active_mtu).ok()?)?,
                lid: port.lid,
                gids: gids(name, context, number, port.gid_tbl_len, layer),
            })
        },
    );
    DeviceInfo { name: name.to_owned(), ports: ports.collect() }
}

/// The addresses of a port. Asks the kernel for all in one call, or, if the kernel is too old, for one at a
/// time.
fn gids(name: &str, context: &Context, port: u8, len: i32, layer: Layer) -> Vec<GidEntry> {
    let len = usize::try_from(len).unwrap_or(0).min(256);
    // The table holds the entries of all ports.
    let mut table: Vec<ffi::ibv_gid_entry> = Vec::with_capacity(len.max(1) * 8);
    // SAFETY: the table has room for the stated number of entries, each of the size that the library expects.
    let found =
        unsafe { ffi::ibv_query_gid_table(context.0.as_ptr(), table.as_mut_ptr(), table.capacity(), 0) };
    if let Ok(found) = usize::try_from(found)
        && found <= table.capacity()
    {
        // SAFETY: the library wrote `found` entries.
        unsafe { table.set_len(found) };
        let ours = table.iter().filter(|entry| entry.port_num == u32::from(port));
        let entry = |entry: &ffi::ibv_gid_entry| {
            // SAFETY: every view of a GID is 16 plain bytes.
            let gid = Gid(unsafe { entry.gid.raw });
            Some(GidEntry {
                index: u8::try_from(entry.gid_index).ok()?,
                gid,
                kind: GidKind::from_code(entry.gid_type)?,
            })
        };
        return ours.filter_map(entry).collect();
    }
    (0..=u8::MAX).take(len).filter_map(|index| one_gid(name, context, port, index, layer)).collect()
}

fn one_gid(name: &str, context: &Context, port: u8, index: u8, layer: Layer) -> Option<GidEntry> {
    let mut gid = ffi::ibv_gid { raw: [0; 16] };
    // SAFETY: the context is open and `gid` has room for one.
    let code = unsafe { ffi::ibv_query_gid(context.0.as_ptr(), port, index.into(), &raw mut gid) };
    // SAFETY: every view of a GID is 16 plain bytes.
    let gid = Gid(unsafe { gid.raw });
    if code != 0 || gid == Gid::default() {
        return None;
    }
    let path = format!("/sys/class/infiniband/{name}/ports/{port}/gid_attrs/types/{index}");
    let kind = match (layer, std::fs::read_to_string(path)) {
        (Layer::InfiniBand, _) => GidKind::InfiniBand,
        (Layer::Ethernet, Ok(text)) if text.contains("v2") => GidKind::RoceV2,
        (Layer::Ethernet, _) => GidKind::RoceV1,
    };
    Some(GidEntry { index, gid, kind })
}

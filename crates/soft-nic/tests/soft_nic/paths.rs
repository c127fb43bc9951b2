//! Another data path beside the control plane: links begin and end with their connections, and end with their
//! sessions.

use crate::raw::{Raw, Reply, eventually, options, start};
use rustix::event::{EventfdFlags, eventfd};
use sherman_control::path::DataPath;
use sherman_control::path::{Attached, Attaching, Link, Stopping};
use sherman_control::wire::{FrameKind, GoodbyeCode};
use sherman_control::{Address, JoinOptions};
use sherman_embedded::host::Session;
use sherman_fabric::{Caps, ComputeId, Endpoint, FabricError, FenceMode, Request, Space, calls};
use sherman_soft_nic::SoftNicFabric;
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// A path whose links echo their messages. When it must stop, it answers as the test requests.
#[derive(Debug, Default)]
struct Echo {
    links: Arc<AtomicU32>,
    exclusive: bool,
    file: Option<OwnedFd>,
    stopped: Mutex<Vec<(ComputeId, u32)>>,
    /// How many times it reports that it has not stopped yet.
    slow: Arc<AtomicU32>,
    stalls: bool,
}

#[derive(Debug)]
struct EchoLink(Arc<AtomicU32>);

impl Link for EchoLink {}

impl Drop for EchoLink {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[derive(Debug)]
struct Slowly(Arc<AtomicU32>, Option<ComputeId>);

impl Stopping for Slowly {
    fn is_over(&mut self) -> Result<bool, FabricError> {
        if let Some(client) = self.1 {
            return Err(FabricError::OwnerStalled { client });
        }
        Ok(self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err())
    }
}

impl DataPath for Echo {
    fn caps(&self) -> Caps {
        Caps {
            atomic_unit: 64,
            crash_unit: 64,
            verb_atomic: false,
            masked_cas: false,
            write_releases: true,
            lock_read: true,
            on_chip_bytes: 8,
            fence: FenceMode::Revoke,
            shortest_write_nanos: 0,
            max_verbs: 7,
            max_transfer: 4096,
        }
    }

    fn takes_frames(&self) -> bool {
        !self.exclusive
    }

    fn attach(&self, asking: &Attaching<'_>) -> Result<Attached, FabricError> {
        if asking.body == b"no" {
            return Err(FabricError::TooLarge { asked: 2, limit: 1 });
        }
        self.links.fetch_add(1, SeqCst);
        let mut reply = asking.body.to_vec();
        reply.extend(asking.session.client().0.to_le_bytes());
        let file = self.file.as_ref().map(|file| file.try_clone().unwrap());
        Ok(Attached { reply, file, link: Box::new(EchoLink(Arc::clone(&self.links))) })
    }

    fn stop(&self, session: &Session) -> Box<dyn Stopping> {
        assert!(session.is_over(), "the flag goes up first");
        self.stopped.lock().unwrap().push((session.client(), session.incarnation()));
        Box::new(Slowly(Arc::clone(&self.slow), self.stalls.then(|| session.client())))
    }
}

fn serve(path: &Arc<Echo>, listen: Listen) -> RunningServer {
    start(ServerOptions {
        listen: vec![listen],
        path: Some(Arc::clone(path) as Arc<dyn DataPath>),
        ..options()
    })
}

fn tcp() -> Listen {
    Listen::Tcp("127.0.0.1:0".into())
}

fn join(server: &RunningServer) -> SoftNicFabric {
    let address = match &server.addresses()[0] {
        Listen::Tcp(address) => Address::Tcp(address.clone()),
        Listen::Unix(path) => Address::Unix(path.clone()),
    };
    SoftNicFabric::join(&JoinOptions::new(vec![address])).unwrap()
}

fn attach(raw: &mut Raw) {
    let mut frame = Vec::new();
    sherman_control::wire::frame::put_frame(&mut frame, FrameKind::Attach, 4, |out| out.push(1)).unwrap();
    raw.send(&frame);
}

#[test]
fn a_link_is_made_in_the_path_s_own_words_and_ends_with_its_connection() {
    let path = Arc::new(Echo::default());
    let server = serve(&path, tcp());
    let fabric = join(&server);
    assert_eq!(fabric.caps(), &path.caps());
    let mut words = b"some words".to_vec();
    let link = fabric.attach(0, &words).unwrap();
    words.extend(fabric.client().0.to_le_bytes());
    assert_eq!(link.reply(), words);
    assert_eq!(path.links.load(SeqCst), 1);
    let mut another = fabric.attach(0, b"").unwrap();
    assert!(another.take_file().is_none() && !link.is_over() && !another.is_over());
    drop(link);
    eventually(|| path.links.load(SeqCst) == 1);
    assert_eq!(fabric.attach(0, b"no").unwrap_err(), FabricError::TooLarge { asked: 2, limit: 1 });
    assert_eq!(fabric.attach(1, b"").unwrap_err(), FabricError::NoSuchServer { server: 1 });
    server.stop();
    eventually(|| another.is_over());
    server.join().unwrap();
    assert_eq!(path.links.load(SeqCst), 0);
    assert_eq!(fabric.attach(0, b"").unwrap_err(), FabricError::Disconnected { server: 0 });
}

#[test]
fn a_file_comes_with_a_link_on_a_unix_socket() {
    let file = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let path = Arc::new(Echo { file: Some(file.try_clone().unwrap()), ..Echo::default() });
    let socket = std::env::temp_dir().join(format!("sherman-paths-{}.sock", std::process::id()));
    let server = serve(&path, Listen::Unix(socket));
    let fabric = join(&server);
    let mut link = fabric.attach(0, &[7; 3000]).unwrap();
    assert_eq!(link.reply().len(), 3002);
    let same = link.take_file().unwrap();
    rustix::io::write(&same, &9u64.to_ne_bytes()).unwrap();
    let mut word = [0; 8];
    assert_eq!(rustix::io::read(&file, &mut word), Ok(8));
    assert_eq!(u64::from_ne_bytes(word), 9);
    // A message that fits no frame does not harm other connections.
    assert!(fabric.attach(0, &[7; 5000]).is_err());
    assert!(fabric.attach(0, &[7; 10]).is_ok());
}

#[test]
fn a_fence_is_answered_when_the_path_has_stopped_the_session_too() {
    let path = Arc::new(Echo::default());
    path.slow.store(5, SeqCst);
    let server = serve(&path, tcp());
    let (mut fencer, _) = Raw::join(&server);
    let (_fenced, welcome) = Raw::join(&server);
    let (mut link, _) = Raw::again(&server, &welcome).unwrap();
    attach(&mut link);
    assert!(matches!(link.receive(), Reply::Frame(FrameKind::Attached, 4, ..)));
    assert_eq!(fencer.call(calls::Fence { client: welcome.client }), Ok(()));
    assert_eq!(link.goodbye().code, GoodbyeCode::Fenced, "though it has said nothing");
    assert_eq!(path.slow.load(SeqCst), 0);
    assert_eq!(*path.stopped.lock().unwrap(), [(welcome.client, welcome.incarnation)]);
    assert_eq!(Raw::again(&server, &welcome).err().unwrap().code, GoodbyeCode::Fenced);
    // A client that leaves is also stopped, before the tables learn of it.
    let fabric = join(&server);
    let client = fabric.client();
    path.slow.store(3, SeqCst);
    drop(fabric);
    assert_eq!(path.slow.load(SeqCst), 0);
    assert_eq!(path.stopped.lock().unwrap().last().unwrap().0, client);
}

#[test]
fn a_fencer_learns_why_a_path_cannot_stop() {
    let path = Arc::new(Echo { stalls: true, ..Echo::default() });
    let server = serve(&path, tcp());
    let (mut fencer, _) = Raw::join(&server);
    let (_fenced, welcome) = Raw::join(&server);
    let fence = Request::Fence { client: welcome.client };
    for _ in 0..2 {
        assert_eq!(fencer.call(fence.clone()), Err(FabricError::OwnerStalled { client: welcome.client }));
    }
    assert_eq!(path.stopped.lock().unwrap().len(), 2, "each attempt asks the path again");
}

#[test]
fn an_exclusive_path_takes_no_lists_in_frames_and_a_server_without_one_no_links() {
    let path = Arc::new(Echo { exclusive: true, ..Echo::default() });
    let server = serve(&path, tcp());
    let (mut raw, _) = Raw::join(&server);
    assert!(raw.call(calls::Usage).is_ok());
    let mut list = sherman_fabric::WorkList::new(0);
    list.read(Space::Host, 0, 8);
    raw.post(&mut list);
    assert_eq!(raw.goodbye().code, GoodbyeCode::NotAllowed);
    let plain = start(options());
    let fabric = join(&plain);
    assert!(matches!(fabric.attach(0, b"").unwrap_err(), FabricError::Unsupported { .. }));
    assert_eq!(fabric.endpoint().unwrap().servers(), 1);
}

#[test]
fn nobody_attaches_twice_nor_before_it_has_introduced_itself() {
    let path = Arc::new(Echo::default());
    let server = serve(&path, tcp());
    let (mut raw, _) = Raw::join(&server);
    attach(&mut raw);
    assert!(matches!(raw.receive(), Reply::Frame(FrameKind::Attached, 4, ..)));
    attach(&mut raw);
    assert_eq!(raw.goodbye().code, GoodbyeCode::Malformed);
    eventually(|| path.links.load(SeqCst) == 0);
    let mut stranger = Raw::connect(&server, 0);
    stranger.hello();
    attach(&mut stranger);
    assert_eq!(stranger.goodbye().code, GoodbyeCode::Malformed);
    assert_eq!(path.links.load(SeqCst), 0);
}
